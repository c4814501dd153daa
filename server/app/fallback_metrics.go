package app

import (
	"github.com/prometheus/client_golang/prometheus"

	"github.com/headgate/headgate/store/layered/fallback"
)

// The metrics of the fallback. They are computed when they are collected.
var (
	breakerDesc = prometheus.NewDesc("headgate_store_breaker_state",
		"1 for the state that the circuit breaker before the store is in: closed (the store is asked), open (it is not), half_open (about some of the requests).",
		[]string{"state"}, nil)
	openedDesc = prometheus.NewDesc("headgate_store_breaker_opened_total",
		"How often the breaker has opened.", nil, nil)
	storeFailuresDesc = prometheus.NewDesc("headgate_store_failures_total",
		"Calls to the store that failed, whatever became of the request. Those whose caller went away are not among them.", nil, nil)
	probesDesc = prometheus.NewDesc("headgate_store_probes_total",
		"Probes of a store that did not answer. Result: answered, failed.", []string{"result"}, nil)
	withoutDesc = prometheus.NewDesc("headgate_requests_without_store_total",
		"Requests that were decided without the store. By: error (no decision), open (let in), local (this server's share).", []string{"by"}, nil)
	instancesDesc = prometheus.NewDesc("headgate_instances",
		"Servers of Headgate that share the store: local shares are the limits divided by it.", nil, nil)
	learningDesc = prometheus.NewDesc("headgate_store_learning",
		"1 while the store has lost its data and this server's share is enforced as well, else 0.", nil, nil)
	debtsDesc = prometheus.NewDesc("headgate_store_debts",
		"Keys of which units that were admitted locally are still to be charged to the store.", nil, nil)
	debtsDroppedDesc = prometheus.NewDesc("headgate_store_debts_dropped_total",
		"Local admissions that will not be charged to the store, because too many keys are to be.", nil, nil)
	handedBackDesc = prometheus.NewDesc("headgate_store_handed_back_units_total",
		"Units that were admitted locally and charged to the store afterwards.", nil, nil)
)

// Describe is part of [prometheus.Collector].
func (w *withoutStore) Describe(to chan<- *prometheus.Desc) {
	for _, d := range []*prometheus.Desc{
		breakerDesc, openedDesc, storeFailuresDesc, probesDesc, withoutDesc, instancesDesc, learningDesc, debtsDesc, debtsDroppedDesc, handedBackDesc,
	} {
		to <- d
	}
}

// Collect is part of [prometheus.Collector].
func (w *withoutStore) Collect(to chan<- prometheus.Metric) {
	s := w.Stats()
	gauge := func(d *prometheus.Desc, v float64, labels ...string) {
		to <- prometheus.MustNewConstMetric(d, prometheus.GaugeValue, v, labels...)
	}
	counter := func(d *prometheus.Desc, v int64, labels ...string) {
		to <- prometheus.MustNewConstMetric(d, prometheus.CounterValue, float64(v), labels...)
	}
	yes := func(b bool) float64 {
		if b {
			return 1
		}
		return 0
	}
	for _, state := range []fallback.State{fallback.Closed, fallback.Open, fallback.HalfOpen} {
		gauge(breakerDesc, yes(s.State == state), state.String())
	}
	counter(openedDesc, s.Opened)
	counter(storeFailuresDesc, s.Failures)
	counter(probesDesc, s.Probes-s.ProbesFailed, "answered")
	counter(probesDesc, s.ProbesFailed, "failed")
	counter(withoutDesc, s.Refused, "error")
	counter(withoutDesc, s.Open, "open")
	counter(withoutDesc, s.Local, "local")
	gauge(instancesDesc, float64(s.Nodes))
	gauge(learningDesc, yes(s.Learning))
	gauge(debtsDesc, float64(s.Debts))
	counter(debtsDroppedDesc, s.DebtsDropped)
	counter(handedBackDesc, s.HandedBack)
}
