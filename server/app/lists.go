package app

import (
	"github.com/prometheus/client_golang/prometheus"

	"github.com/headgate/headgate"
	"github.com/headgate/headgate/server/decide"
)

// listHits counts requests that an entry of the policy's lists has answered. No limit is
// asked about these, so that what counts the decisions of a store does not see them.
type listHits struct{ byEntry *prometheus.CounterVec }

func newListHits(registry *prometheus.Registry) *listHits {
	l := &listHits{prometheus.NewCounterVec(prometheus.CounterOpts{
		Name: "headgate_list_hits_total",
		Help: "Requests that an entry of a list of the policy has answered. List: allow, deny.",
	}, []string{"list", "entry"})}
	registry.MustRegister(l.byEntry)
	return l
}

func (l *listHits) decided(e decide.Event) {
	if e.Ask.Op != headgate.OpTake {
		return
	}
	switch {
	case e.Ask.Denied != nil:
		l.byEntry.WithLabelValues("deny", e.Ask.Denied.Name).Inc()
	case e.Ask.Allowed != nil:
		l.byEntry.WithLabelValues("allow", e.Ask.Allowed.Name).Inc()
	}
}
