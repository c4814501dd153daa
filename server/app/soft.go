package app

import (
	"github.com/prometheus/client_golang/prometheus"

	"github.com/headgate/headgate"
	"github.com/headgate/headgate/server/decide"
)

// softHits counts requests that were admitted and have reached the percentage at which a rule
// warns. Only a policy knows which limits warn, so the observer of a store cannot count them.
type softHits struct{ byRule *ending }

func newSoftHits(registry *prometheus.Registry) *softHits {
	return &softHits{newEnding(registry, prometheus.CounterOpts{
		Name: "headgate_soft_total",
		Help: "Requests that were admitted and left a limit of the rule at or above the percentage from which it warns (soft).",
	}, "rule")}
}

// decided counts each rule at most once for a request. The decisions of a rule are adjacent.
func (s *softHits) decided(e *decide.Event) {
	if e.Err != nil || e.Ask.Policy.Set == nil || e.Ask.Op != headgate.OpTake || len(e.Decisions) == 0 || !e.Ask.Policy.Warns() || !headgate.NewVerdict(e.Decisions).Allowed {
		return
	}
	last := -1
	for i := range e.Decisions {
		if d := &e.Decisions[i]; d.Check != last && d.Allowed && e.Ask.Policy.Soft(d) {
			last = d.Check
			s.byRule.inc(d.Rule.Name())
		}
	}
}
