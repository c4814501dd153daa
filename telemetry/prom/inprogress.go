package prom

import (
	"github.com/prometheus/client_golang/prometheus"

	"github.com/headgate/headgate/flow"
	"github.com/headgate/headgate/policy/inprogress"
)

// InProgress returns a collector of what a keeper lets be in progress, for a registry:
//
//	headgate_in_progress_permits{rule}                  permits that requests of this process hold
//	headgate_in_progress_limit{rule}                    how many there are for each key, at most
//	headgate_in_progress_keys{rule}                     keys in use
//	headgate_in_progress_waiting{rule}                  requests that wait
//	headgate_in_progress_refused_total{rule, reason, shadow}
//	headgate_in_progress_wait_seconds{rule}             how long requests waited, where they may
//	headgate_in_progress_lost_total{rule}               shared permits that were lost while held
//
// The reason is that of a flow.Rejection, such as "busy", "queue_full" or "waited". With
// shadow="true" the request was let in all the same. A rule that is no longer in the
// policy has its series until nothing is in progress under it.
func InProgress(keeper *inprogress.Keeper) prometheus.Collector { return inProgress{keeper} }

type inProgress struct{ keeper *inprogress.Keeper }

var (
	descPermits = prometheus.NewDesc("headgate_in_progress_permits", "Permits that requests of this process hold.", []string{"rule"}, nil)
	descLimit   = prometheus.NewDesc("headgate_in_progress_limit", "How many permits there are for each key, at most.", []string{"rule"}, nil)
	descInUse   = prometheus.NewDesc("headgate_in_progress_keys", "Keys in use.", []string{"rule"}, nil)
	descWaiting = prometheus.NewDesc("headgate_in_progress_waiting", "Requests that wait for permits.", []string{"rule"}, nil)
	descRefused = prometheus.NewDesc("headgate_in_progress_refused_total", "Requests that got no permit, and with shadow those that would not have got one.", []string{"rule", "reason", "shadow"}, nil)
	descWait    = prometheus.NewDesc("headgate_in_progress_wait_seconds", "How long requests waited for their permits, where they may wait.", []string{"rule"}, nil)
	descLost    = prometheus.NewDesc("headgate_in_progress_lost_total", "Shared permits that were lost while they were held.", []string{"rule"}, nil)
)

// Describe implements [prometheus.Collector].
func (c inProgress) Describe(to chan<- *prometheus.Desc) {
	for _, d := range []*prometheus.Desc{descPermits, descLimit, descInUse, descWaiting, descRefused, descWait, descLost} {
		to <- d
	}
}

// Collect implements [prometheus.Collector].
func (c inProgress) Collect(to chan<- prometheus.Metric) {
	bounds := inprogress.WaitBounds()
	for _, s := range c.keeper.Stats() {
		gauge := func(d *prometheus.Desc, v int64) {
			to <- prometheus.MustNewConstMetric(d, prometheus.GaugeValue, float64(v), s.Rule)
		}
		gauge(descPermits, s.InUse)
		gauge(descLimit, s.Limit)
		gauge(descInUse, s.Keys)
		gauge(descWaiting, s.Waiting)
		if s.Shared {
			to <- prometheus.MustNewConstMetric(descLost, prometheus.CounterValue, float64(s.Lost), s.Rule)
		}
		for reason := range flow.Reasons {
			name := flow.Reason(reason).String()
			if n := s.Refused[reason]; n > 0 {
				to <- prometheus.MustNewConstMetric(descRefused, prometheus.CounterValue, float64(n), s.Rule, name, "false")
			}
			if n := s.ShadowRefused[reason]; n > 0 {
				to <- prometheus.MustNewConstMetric(descRefused, prometheus.CounterValue, float64(n), s.Rule, name, "true")
			}
		}
		var count uint64
		buckets := make(map[float64]uint64, len(bounds))
		for i, n := range s.Waits {
			if count += n; i < len(bounds) {
				buckets[bounds[i].Seconds()] = count
			}
		}
		if count > 0 {
			to <- prometheus.MustNewConstHistogram(descWait, count, s.WaitSum.Seconds(), buckets, s.Rule)
		}
	}
}
