package app

import (
	"sync"

	"github.com/prometheus/client_golang/prometheus"
)

// ending is a counter whose series can be ended. It is safe for concurrent use.
type ending struct {
	vec    *prometheus.CounterVec
	series sync.Map // [2]string, the labels, → prometheus.Counter
}

// newEnding registers a counter with one or two labels.
func newEnding(registry *prometheus.Registry, opts prometheus.CounterOpts, labels ...string) *ending {
	e := &ending{vec: prometheus.NewCounterVec(opts, labels)}
	registry.MustRegister(e.vec)
	return e
}

// inc counts one more under the labels.
func (e *ending) inc(labels ...string) {
	var of [2]string
	n := copy(of[:], labels)
	counter, known := e.series.Load(of)
	if !known {
		counter, _ = e.series.LoadOrStore(of, e.vec.WithLabelValues(of[:n]...))
	}
	counter.(prometheus.Counter).Inc()
}

// keep ends the series for whose labels in reports false.
func (e *ending) keep(in func(labels [2]string) bool) {
	e.series.Range(func(key, _ any) bool {
		if of := key.([2]string); !in(of) {
			e.series.Delete(of)
			if !e.vec.DeleteLabelValues(of[:]...) {
				e.vec.DeleteLabelValues(of[0])
			}
		}
		return true
	})
}
