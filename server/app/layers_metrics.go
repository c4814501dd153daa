package app

import "github.com/prometheus/client_golang/prometheus"

// The metrics of the layers that save calls to the store. They are computed when they are
// collected.
var (
	leaseKeysDesc = prometheus.NewDesc("headgate_lease_keys",
		"Keys that are asked for so often that units of theirs are taken in advance.", nil, nil)
	leaseHeldDesc = prometheus.NewDesc("headgate_lease_held_units",
		"Units that were taken in advance and neither used nor given back yet.", nil, nil)
	leasesDesc = prometheus.NewDesc("headgate_leases_total",
		"How often units were taken in advance.", nil, nil)
	leaseServedDesc = prometheus.NewDesc("headgate_lease_served_total",
		"Checks that were admitted with units taken in advance.", nil, nil)
	leaseUnitsDesc = prometheus.NewDesc("headgate_lease_units_total",
		"Units that were taken in advance. What: taken, returned (unused), refilled (unused, and free already, since their bucket has refilled them), lost (unused, and not returned).", []string{"what"}, nil)
	asyncKeysDesc = prometheus.NewDesc("headgate_async_keys",
		"Keys that are decided from memory and reported to the store.", nil, nil)
	asyncUnreportedDesc = prometheus.NewDesc("headgate_async_unreported_units",
		"Units that were admitted from memory and that the store does not know of yet.", nil, nil)
	asyncChecksDesc = prometheus.NewDesc("headgate_async_checks_total",
		"Checks of rules that count asynchronously. By: memory, store (too little was known).", []string{"by"}, nil)
	asyncReportsDesc = prometheus.NewDesc("headgate_async_reports_total",
		"Calls that told the store what was admitted. Result: answered, failed.", []string{"result"}, nil)
	denialsDesc = prometheus.NewDesc("headgate_deny_cache_keys",
		"Denials that are remembered.", nil, nil)
	newsDesc = prometheus.NewDesc("headgate_deny_cache_keys_told_total",
		"Keys that the other servers were told to forget. Result: sent, dropped (they find out by themselves).", []string{"result"}, nil)
	heardDesc = prometheus.NewDesc("headgate_deny_cache_messages_total",
		"Messages of servers about keys to forget. Result: heard, unknown (of another version).", []string{"result"}, nil)
	listeningDesc = prometheus.NewDesc("headgate_deny_cache_listening",
		"1 while messages of the other servers arrive, else 0. Absent if the store carries no messages.", nil, nil)
)

// Describe is part of [prometheus.Collector].
func (l *layers) Describe(to chan<- *prometheus.Desc) {
	l.without.Describe(to)
	for _, d := range []*prometheus.Desc{
		leaseKeysDesc, leaseHeldDesc, leasesDesc, leaseServedDesc, leaseUnitsDesc,
		asyncKeysDesc, asyncUnreportedDesc, asyncChecksDesc, asyncReportsDesc,
		denialsDesc, newsDesc, heardDesc, listeningDesc,
	} {
		to <- d
	}
}

// Collect is part of [prometheus.Collector].
func (l *layers) Collect(to chan<- prometheus.Metric) {
	l.without.Collect(to)
	gauge := func(d *prometheus.Desc, v int64) {
		to <- prometheus.MustNewConstMetric(d, prometheus.GaugeValue, float64(v))
	}
	counter := func(d *prometheus.Desc, v int64, labels ...string) {
		to <- prometheus.MustNewConstMetric(d, prometheus.CounterValue, float64(v), labels...)
	}
	leases := l.lease.Stats()
	gauge(leaseKeysDesc, int64(leases.Keys))
	gauge(leaseHeldDesc, leases.Held)
	counter(leasesDesc, leases.Leases)
	counter(leaseServedDesc, leases.Served)
	counter(leaseUnitsDesc, leases.Taken, "taken")
	counter(leaseUnitsDesc, leases.Returned, "returned")
	counter(leaseUnitsDesc, leases.Refilled, "refilled")
	counter(leaseUnitsDesc, leases.Lost, "lost")
	reports := l.async.Stats()
	gauge(asyncKeysDesc, reports.Keys)
	gauge(asyncUnreportedDesc, reports.Unreported)
	counter(asyncChecksDesc, reports.Local, "memory")
	counter(asyncChecksDesc, reports.Asked, "store")
	counter(asyncReportsDesc, reports.Reports-reports.Failed, "answered")
	counter(asyncReportsDesc, reports.Failed, "failed")
	denials := l.denials.Stats()
	gauge(denialsDesc, denials.Keys)
	counter(newsDesc, denials.Published, "sent")
	counter(newsDesc, denials.Dropped, "dropped")
	counter(heardDesc, denials.Received-denials.Unknown, "heard")
	counter(heardDesc, denials.Unknown, "unknown")
	// Without messages there is nobody to listen to.
	if l.carries {
		listening := int64(0)
		if denials.Listening {
			listening = 1
		}
		gauge(listeningDesc, listening)
	}
}
