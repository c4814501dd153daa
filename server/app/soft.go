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
func (s *softHits) decided(ask *decide.Ask, decisions []headgate.Decision) {
	if ask.Policy.Set == nil || len(decisions) == 0 || !ask.Policy.Warns() || !headgate.NewVerdict(decisions).Allowed {
		return
	}
	last := -1
	for i := range decisions {
		if d := &decisions[i]; d.Check != last && d.Allowed && ask.Policy.Soft(d) {
			last = d.Check
			s.byRule.inc(d.Rule.Name())
		}
	}
}
