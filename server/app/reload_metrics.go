package app

import (
	"strconv"

	"github.com/prometheus/client_golang/prometheus"
)

// sourceMetrics are the metrics of a source. They are computed when they are collected, so that
// version and hash always belong to the same policy.
type sourceMetrics struct {
	reloads, info, succeeded, failed *prometheus.Desc
}

// newSourceMetrics returns metrics whose names begin with the prefix. Their help texts call the
// policy name while it is read, and active once it is in force.
func newSourceMetrics(prefix, name, active string) sourceMetrics {
	return sourceMetrics{
		reloads: prometheus.NewDesc(prefix+"_reloads_total",
			"Reloads of the "+name+" since the start. Result: changed, unchanged (the file holds what is in force), failed (what was in force stays).",
			[]string{"result"}, nil),
		info: prometheus.NewDesc(prefix+"_info",
			"Always 1; the labels say which is the "+active+".",
			[]string{"version", "hash"}, nil),
		succeeded: prometheus.NewDesc(prefix+"_last_reload_success_timestamp_seconds",
			"When the "+name+" was last loaded without a mistake, in seconds since 1970.", nil, nil),
		failed: prometheus.NewDesc(prefix+"_last_reload_failed",
			"1 if the last reload of the "+name+" failed, so that its file does not hold what is in force; else 0.", nil, nil),
	}
}

// Describe is part of [prometheus.Collector].
func (s *source) Describe(to chan<- *prometheus.Desc) {
	to <- s.metrics.reloads
	to <- s.metrics.info
	to <- s.metrics.succeeded
	to <- s.metrics.failed
}

// Collect is part of [prometheus.Collector].
func (s *source) Collect(to chan<- prometheus.Metric) {
	for i, name := range results {
		to <- prometheus.MustNewConstMetric(s.metrics.reloads, prometheus.CounterValue, float64(s.counts[i].Load()), name)
	}
	if now := s.now(); now.Set != nil {
		to <- prometheus.MustNewConstMetric(s.metrics.info, prometheus.GaugeValue, 1, strconv.FormatInt(now.Version, 10), now.Hash)
		to <- prometheus.MustNewConstMetric(s.metrics.succeeded, prometheus.GaugeValue, float64(s.succeeded.Load())/1000)
	}
	failing := 0.0
	if s.failed.Load() != nil {
		failing = 1
	}
	to <- prometheus.MustNewConstMetric(s.metrics.failed, prometheus.GaugeValue, failing)
}
