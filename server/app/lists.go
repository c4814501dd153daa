package app

import (
	"github.com/prometheus/client_golang/prometheus"

	"github.com/headgate/headgate/policy"
	"github.com/headgate/headgate/server/decide"
)

// listHits counts requests that were answered by an entry of the policy's lists. No store is asked
// about them, so the metrics of the store's decisions do not include them.
type listHits struct{ byEntry *ending }

func newListHits(registry *prometheus.Registry) *listHits {
	return &listHits{newEnding(registry, prometheus.CounterOpts{
		Name: "headgate_list_hits_total",
		Help: "Requests that an entry of a list of the policy has answered. List: allow, deny.",
	}, "list", "entry")}
}

func (l *listHits) decided(ask *decide.Ask) {
	switch {
	case ask.Denied != nil:
		l.byEntry.inc("deny", ask.Denied.Name)
	case ask.Allowed != nil:
		l.byEntry.inc("allow", ask.Allowed.Name)
	}
}

// keep ends the series of entries that the policy no longer has.
func (l *listHits) keep(set *policy.Set) {
	in := make(map[[2]string]bool)
	for list, entries := range map[string][]policy.ListEntry{"allow": set.Allowed(), "deny": set.Denied()} {
		for i := range entries {
			in[[2]string{list, entries[i].Name}] = true
		}
	}
	l.byEntry.keep(func(of [2]string) bool { return in[of] })
}
