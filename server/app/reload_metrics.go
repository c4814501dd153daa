package app

import (
	"strconv"

	"github.com/prometheus/client_golang/prometheus"
)

// The metrics of a source. They are read when they are asked for: the version
// and the hash of one answer are always of one policy.
var (
	reloadsDesc = prometheus.NewDesc("headgate_policy_reloads_total",
		"Reloads of the policy since the start. Result: changed, unchanged (the file holds what is in force), failed (what was in force stays).",
		[]string{"result"}, nil)
	policyDesc = prometheus.NewDesc("headgate_policy_info",
		"Always 1; the labels say which policy is in force.",
		[]string{"version", "hash"}, nil)
	succeededDesc = prometheus.NewDesc("headgate_policy_last_reload_success_timestamp_seconds",
		"When the policy was last loaded without a mistake, in seconds since 1970.", nil, nil)
	failedDesc = prometheus.NewDesc("headgate_policy_last_reload_failed",
		"1 if the last reload failed, so that the policy in force is not that of the file; else 0.", nil, nil)
)

// Describe is part of [prometheus.Collector].
func (s *source) Describe(to chan<- *prometheus.Desc) {
	to <- reloadsDesc
	to <- policyDesc
	to <- succeededDesc
	to <- failedDesc
}

// Collect is part of [prometheus.Collector].
func (s *source) Collect(to chan<- prometheus.Metric) {
	for i, name := range results {
		to <- prometheus.MustNewConstMetric(reloadsDesc, prometheus.CounterValue, float64(s.counts[i].Load()), name)
	}
	now := s.active.Load()
	to <- prometheus.MustNewConstMetric(policyDesc, prometheus.GaugeValue, 1, strconv.FormatInt(now.Version, 10), now.Hash)
	to <- prometheus.MustNewConstMetric(succeededDesc, prometheus.GaugeValue, float64(s.succeeded.Load())/1000)
	failing := 0.0
	if s.failed.Load() != nil {
		failing = 1
	}
	to <- prometheus.MustNewConstMetric(failedDesc, prometheus.GaugeValue, failing)
}
