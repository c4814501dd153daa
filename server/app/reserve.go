package app

import "github.com/prometheus/client_golang/prometheus"

// reserve is a part of the heap that is never touched. It takes addresses but no memory, and yet
// the garbage collector counts it as live. The collector starts when the heap is twice as large as
// what was live, so a small heap can grow by the size of the reserve before it starts. Without a
// reserve, the few MiB that a busy service keeps alive are collected a dozen times a second. A
// larger GOGC would do the same for small heaps, but would allow gigabytes of garbage beside a
// store of gigabytes.
type reserve []byte

// Describe implements [prometheus.Collector].
func (r reserve) Describe(to chan<- *prometheus.Desc) { prometheus.DescribeByCollect(r, to) }

var descReserve = prometheus.NewDesc("headgate_heap_reserve_bytes", "Addresses without memory that make collections of a small heap rare; they are in go_memstats_heap_alloc_bytes too.", nil, nil)

// Collect implements [prometheus.Collector].
func (r reserve) Collect(to chan<- prometheus.Metric) {
	to <- prometheus.MustNewConstMetric(descReserve, prometheus.GaugeValue, float64(len(r)))
}
