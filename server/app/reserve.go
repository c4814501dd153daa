package app

import "github.com/prometheus/client_golang/prometheus"

// reserve is a part of the heap that nobody ever touches. It holds no memory, only
// addresses, but the collector counts it as live: it starts when the heap is twice as
// large as what was live, so that a small heap may grow by the size of the reserve
// first. Without one, the few MiB that a busy service keeps alive are collected a dozen
// times a second. Beside a store of gigabytes it is nothing, where a percentage for
// small heaps would be gigabytes of garbage.
type reserve []byte

// Describe implements [prometheus.Collector].
func (r reserve) Describe(to chan<- *prometheus.Desc) { prometheus.DescribeByCollect(r, to) }

var descReserve = prometheus.NewDesc("headgate_heap_reserve_bytes", "Addresses without memory that make collections of a small heap rare; they are in go_memstats_heap_alloc_bytes too.", nil, nil)

// Collect implements [prometheus.Collector].
func (r reserve) Collect(to chan<- prometheus.Metric) {
	to <- prometheus.MustNewConstMetric(descReserve, prometheus.GaugeValue, float64(len(r)))
}
