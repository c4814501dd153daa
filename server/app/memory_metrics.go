package app

import (
	"github.com/prometheus/client_golang/prometheus"

	"github.com/headgate/headgate/store/memory"
)

var (
	memoryCountersDesc = prometheus.NewDesc("headgate_memory_counters",
		"Counters in memory: those of the memory store, or of what is decided without the store. Idle ones that have not been dropped yet are among them.", nil, nil)
	memoryBytesDesc = prometheus.NewDesc("headgate_memory_bytes",
		"Memory that the counters take.", nil, nil)
	memoryMaxDesc = prometheus.NewDesc("headgate_memory_max_bytes",
		"The bound on the memory that the counters take.", nil, nil)
	memorySharedDesc = prometheus.NewDesc("headgate_memory_shared_total",
		"Decisions on counters that keys share because memory is full: stricter than the limits say, never laxer.", nil, nil)
	memoryMergedDesc = prometheus.NewDesc("headgate_memory_merged_total",
		"Entries that the logs of sliding windows took without growing because memory is full: stricter than the limits say, never laxer.", nil, nil)
)

// memoryMetrics are those of the counters in memory.
type memoryMetrics struct{ store *memory.Store }

// Describe is part of [prometheus.Collector].
func (m memoryMetrics) Describe(to chan<- *prometheus.Desc) {
	for _, d := range []*prometheus.Desc{memoryCountersDesc, memoryBytesDesc, memoryMaxDesc, memorySharedDesc, memoryMergedDesc} {
		to <- d
	}
}

// Collect is part of [prometheus.Collector].
func (m memoryMetrics) Collect(to chan<- prometheus.Metric) {
	s := m.store.Stats()
	to <- prometheus.MustNewConstMetric(memoryCountersDesc, prometheus.GaugeValue, float64(s.Counters))
	to <- prometheus.MustNewConstMetric(memoryBytesDesc, prometheus.GaugeValue, float64(s.Bytes))
	to <- prometheus.MustNewConstMetric(memoryMaxDesc, prometheus.GaugeValue, float64(s.MaxBytes))
	to <- prometheus.MustNewConstMetric(memorySharedDesc, prometheus.CounterValue, float64(s.Shared))
	to <- prometheus.MustNewConstMetric(memoryMergedDesc, prometheus.CounterValue, float64(s.Merged))
}
