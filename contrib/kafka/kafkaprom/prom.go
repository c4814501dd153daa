package kafkaprom

import (
	"strconv"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/headgate/headgate/contrib/kafka"
)

// Source is the part of a *kafka.Consumer that a collector needs.
type Source interface{ Stats() kafka.Stats }

// New returns a collector of the metrics of a consumer. It is safe for concurrent use.
func New(consumer Source) prometheus.Collector { return collector{consumer} }

type collector struct{ source Source }

// metric is one number of a snapshot: of a consumer, or of a partition. Metrics that differ only by
// a label share a description.
type metric[S any] struct {
	desc  *prometheus.Desc
	kind  prometheus.ValueType
	label string // its value; "" if there is none
	value func(s *S) float64
}

func desc(name, help string, labels ...string) *prometheus.Desc {
	return prometheus.NewDesc("headgate_kafka_"+name, help, labels, nil)
}

func gauge(name, help string, value func(s *kafka.Stats) float64) metric[kafka.Stats] {
	return metric[kafka.Stats]{desc(name, help), prometheus.GaugeValue, "", value}
}

func ofPartition(name, help string, value func(p *kafka.PartitionStats) float64) metric[kafka.PartitionStats] {
	return metric[kafka.PartitionStats]{desc(name, help, "topic", "partition"), prometheus.GaugeValue, "", value}
}

func counter(d *prometheus.Desc, label string, value func(s *kafka.Stats) uint64) metric[kafka.Stats] {
	return metric[kafka.Stats]{d, prometheus.CounterValue, label, func(s *kafka.Stats) float64 { return float64(value(s)) }}
}

var (
	attempts = desc("attempts_total", "Calls of the handler. Outcome: success, failure.", "outcome")
	retries  = desc("retries_total", "Records to be tried again. Where: place (here, in order), topic (a retry topic).", "where")
	ended    = desc("given_up_total", "Records that were not handled in the end. How: dead_letter, discarded, skipped, detoured.", "how")
	pauses   = desc("pauses_total", "Pauses of partitions. Reason: room (it held too much), delay (a retry topic's first record was not due).", "reason")
)

var metrics = []metric[kafka.Stats]{
	gauge("running", "Records that are being handled.", func(s *kafka.Stats) float64 { return float64(s.Running) }),
	gauge("held_records", "Records that wait or are being handled.", func(s *kafka.Stats) float64 { return float64(s.Records) }),
	gauge("held_bytes", "Memory of records that wait or are being handled.", func(s *kafka.Stats) float64 { return float64(s.Bytes) }),
	gauge("fetched_bytes", "Memory of records that were fetched ahead.", func(s *kafka.Stats) float64 { return float64(s.Fetched) }),
	counter(attempts, "success", func(s *kafka.Stats) uint64 { return s.Handled - s.Failed }),
	counter(attempts, "failure", func(s *kafka.Stats) uint64 { return s.Failed }),
	counter(retries, "place", func(s *kafka.Stats) uint64 { return s.Retried }),
	counter(retries, "topic", func(s *kafka.Stats) uint64 { return s.Delayed }),
	counter(ended, "dead_letter", func(s *kafka.Stats) uint64 { return s.DeadLettered }),
	counter(ended, "discarded", func(s *kafka.Stats) uint64 { return s.Discarded }),
	counter(ended, "skipped", func(s *kafka.Stats) uint64 { return s.Skipped }),
	counter(ended, "detoured", func(s *kafka.Stats) uint64 { return s.Detoured }),
	counter(pauses, "room", func(s *kafka.Stats) uint64 { return s.Pauses }),
	counter(pauses, "delay", func(s *kafka.Stats) uint64 { return s.Waits }),
	counter(desc("refused_total", "Records that the gate has held back for a while."), "", func(s *kafka.Stats) uint64 { return s.Refused }),
	counter(desc("abandoned_total", "Records whose handlers did not end in time when their partition went away."), "", func(s *kafka.Stats) uint64 { return s.Abandoned }),
	counter(desc("commit_errors_total", "Commits that failed. Each is repeated."), "", func(s *kafka.Stats) uint64 { return s.CommitErrors }),
}

var partitionMetrics = []metric[kafka.PartitionStats]{
	ofPartition("lag", "Offsets from the first record that is not done to the end of the partition; absent until it is known.", func(p *kafka.PartitionStats) float64 { return float64(p.Lag) }),
	ofPartition("oldest_seconds", "Age of the oldest record that waits or is being handled, by its timestamp.", func(p *kafka.PartitionStats) float64 { return p.Oldest.Seconds() }),
	ofPartition("held_seconds", "How long the oldest record has been waiting or handled here.", func(p *kafka.PartitionStats) float64 { return p.Held.Seconds() }),
	ofPartition("partition_running", "Records of the partition that are being handled.", func(p *kafka.PartitionStats) float64 { return float64(p.Running) }),
	ofPartition("paused", "1 while the partition is not fetched.", func(p *kafka.PartitionStats) float64 { return flag(p.Paused) }),
	ofPartition("behind", "1 while records of the partition are shed because it is behind.", func(p *kafka.PartitionStats) float64 { return flag(p.Behind) }),
}

// Describe implements [prometheus.Collector].
func (collector) Describe(to chan<- *prometheus.Desc) {
	for _, m := range metrics {
		to <- m.desc
	}
	for _, m := range partitionMetrics {
		to <- m.desc
	}
}

// Collect implements [prometheus.Collector].
func (c collector) Collect(to chan<- prometheus.Metric) {
	s := c.source.Stats()
	for _, m := range metrics {
		var labels []string
		if m.label != "" {
			labels = []string{m.label}
		}
		to <- prometheus.MustNewConstMetric(m.desc, m.kind, m.value(&s), labels...)
	}
	for i := range s.Partitions {
		p := &s.Partitions[i]
		for _, m := range partitionMetrics {
			if value := m.value(p); value >= 0 {
				to <- prometheus.MustNewConstMetric(m.desc, m.kind, value, p.Topic, strconv.Itoa(int(p.Partition)))
			}
		}
	}
}

func flag(on bool) float64 {
	if on {
		return 1
	}
	return 0
}
