package app

import (
	"github.com/prometheus/client_golang/prometheus"

	"github.com/headgate/headgate/server/envoyrlqs"
	"github.com/headgate/headgate/store"
)

// newQuota makes the service that divides limits among Envoys which do not ask for each request. It
// keeps the shares in the store itself, because the layers around the store keep none.
func (a *App) newQuota(registry *prometheus.Registry) *envoyrlqs.Service {
	answers := prometheus.NewCounterVec(prometheus.CounterOpts{
		Name: "headgate_quota_answers_total",
		Help: "Answers to Envoys about buckets of the rate limit quota service, by kind: share, allow_all, deny_all; undivided and failed are buckets without an answer.",
	}, []string{"kind"})
	var kinds [envoyrlqs.Kinds]prometheus.Counter
	for kind := range envoyrlqs.Kinds {
		kinds[kind] = answers.WithLabelValues(kind.String())
	}
	options := envoyrlqs.Options{
		Rules: a.Policy, Logger: a.settings.Logger, Ending: a.ending,
		Assigned: func(kind envoyrlqs.Kind) { kinds[kind].Inc() },
	}
	// If the store keeps no documents, Envoys are told so.
	options.Documents, _ = store.DocumentsOf(a.store.Store)
	s := envoyrlqs.New(options)
	registry.MustRegister(answers, prometheus.NewGaugeFunc(prometheus.GaugeOpts{
		Name: "headgate_quota_streams",
		Help: "Streams of the rate limit quota service that are open: one for each Envoy and domain.",
	}, func() float64 { return float64(s.Streams()) }))
	return s
}
