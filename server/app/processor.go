package app

import (
	"github.com/prometheus/client_golang/prometheus"

	"github.com/headgate/headgate/httplimit"
	"github.com/headgate/headgate/server/decide"
	"github.com/headgate/headgate/server/extproc"
	"github.com/headgate/headgate/server/forwardauth"
)

// newProcessor makes the service that limits the calls to language models that pass through Envoys.
func (a *App) newProcessor(decider decide.Decider, dialect httplimit.Dialect, registry *prometheus.Registry) *extproc.Service {
	settled := prometheus.NewCounterVec(prometheus.CounterOpts{
		Name: "headgate_ext_proc_settlements_total",
		Help: "Reservations of requests that Envoys sent to be processed, by how they ended: settled, estimated (the cost is not known; an estimate stays), late (the reservation had expired; what was missing was charged), failed (the store did not settle it).",
	}, []string{"result"})
	var results [extproc.Settlements]prometheus.Counter
	for result := range extproc.Settlements {
		results[result] = settled.WithLabelValues(result.String())
	}
	s := extproc.New(decider, extproc.Options{
		Describe: forwardauth.NewDescriber(decider, extproc.Name, a.settings.Logger).Describe, Dialect: dialect, Logger: a.settings.Logger,
		Settled: func(result extproc.Settlement) { results[result].Inc() },
	})
	registry.MustRegister(settled, prometheus.NewGaugeFunc(prometheus.GaugeOpts{
		Name: "headgate_ext_proc_streams",
		Help: "Requests that Envoys have sent to be processed, and that have not ended.",
	}, func() float64 { return float64(s.Streams()) }))
	return s
}
