package kafkaprom

import (
	"strconv"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/headgate/headgate/contrib/kafka"
)

// Source is the part of a *kafka.Consumer that a collector needs.
type Source interface{ Stats() kafka.Stats }

// New returns a collector of the metrics of a consumer. It is safe for concurrent use.
func New(consumer Source) prometheus.Collector { return collector{consumer} }

type collector struct{ source Source }

func desc(name, help string, labels ...string) *prometheus.Desc {
	return prometheus.NewDesc("headgate_kafka_"+name, help, labels, nil)
}

// gauge is a gauge of the whole consumer, and partitionGauge one of a partition.
type gauge struct {
	desc  *prometheus.Desc
	value func(s *kafka.Stats) float64
}

type partitionGauge struct {
	desc  *prometheus.Desc
	value func(p *kafka.PartitionStats) float64
}

// counter is a counter with one label, or without one if the label is "".
type counter struct {
	desc  *prometheus.Desc
	label string
	value func(c *kafka.Counts) uint64
}

var gauges = []gauge{
	{desc("running", "Records that are being handled."), func(s *kafka.Stats) float64 { return float64(s.Running) }},
	{desc("held_records", "Records that wait or are being handled."), func(s *kafka.Stats) float64 { return float64(s.Records) }},
	{desc("held_bytes", "Memory of records that wait or are being handled."), func(s *kafka.Stats) float64 { return float64(s.Bytes) }},
	{desc("fetched_bytes", "Memory of records that were fetched ahead."), func(s *kafka.Stats) float64 { return float64(s.Fetched) }},
}

func ofPartition(name, help string) *prometheus.Desc { return desc(name, help, "topic", "partition") }

var partitionGauges = []partitionGauge{
	{
		ofPartition("lag", "Offsets from the first record that is not done to the end of the partition; absent until it is known."),
		func(p *kafka.PartitionStats) float64 { return float64(p.Lag) },
	},
	{
		ofPartition("oldest_seconds", "Age of the oldest record that waits or is being handled, by its timestamp."),
		func(p *kafka.PartitionStats) float64 { return seconds(p.Oldest) },
	},
	{
		ofPartition("held_seconds", "How long the oldest record has been waiting or handled here."),
		func(p *kafka.PartitionStats) float64 { return seconds(p.Held) },
	},
	{
		ofPartition("partition_running", "Records of the partition that are being handled."),
		func(p *kafka.PartitionStats) float64 { return float64(p.Running) },
	},
	{
		ofPartition("paused", "1 while the partition is not fetched."),
		func(p *kafka.PartitionStats) float64 { return flag(p.Paused) },
	},
	{
		ofPartition("behind", "1 while records of the partition are shed because it is behind."),
		func(p *kafka.PartitionStats) float64 { return flag(p.Behind) },
	},
}

var (
	attempts = desc("attempts_total", "Calls of the handler. Outcome: success, failure.", "outcome")
	retries  = desc("retries_total", "Records to be tried again. Where: place (here, in order), topic (a retry topic).", "where")
	ended    = desc("given_up_total", "Records that were not handled in the end. How: dead_letter, discarded, skipped, detoured.", "how")
	pauses   = desc("pauses_total", "Pauses of partitions. Reason: room (it held too much), delay (a retry topic's first record was not due).", "reason")
)

var counters = []counter{
	{attempts, "success", func(c *kafka.Counts) uint64 { return c.Handled - c.Failed }},
	{attempts, "failure", func(c *kafka.Counts) uint64 { return c.Failed }},
	{retries, "place", func(c *kafka.Counts) uint64 { return c.Retried }},
	{retries, "topic", func(c *kafka.Counts) uint64 { return c.Delayed }},
	{ended, "dead_letter", func(c *kafka.Counts) uint64 { return c.DeadLettered }},
	{ended, "discarded", func(c *kafka.Counts) uint64 { return c.Discarded }},
	{ended, "skipped", func(c *kafka.Counts) uint64 { return c.Skipped }},
	{ended, "detoured", func(c *kafka.Counts) uint64 { return c.Detoured }},
	{pauses, "room", func(c *kafka.Counts) uint64 { return c.Pauses }},
	{pauses, "delay", func(c *kafka.Counts) uint64 { return c.Waits }},
	{desc("refused_total", "Records that the gate has held back for a while."), "", func(c *kafka.Counts) uint64 { return c.Refused }},
	{desc("abandoned_total", "Records whose handlers did not end in time when their partition went away."), "", func(c *kafka.Counts) uint64 { return c.Abandoned }},
	{desc("commit_errors_total", "Commits that failed. Each is repeated."), "", func(c *kafka.Counts) uint64 { return c.CommitErrors }},
}

// Describe implements [prometheus.Collector].
func (collector) Describe(to chan<- *prometheus.Desc) {
	for _, g := range gauges {
		to <- g.desc
	}
	for _, g := range partitionGauges {
		to <- g.desc
	}
	for _, c := range counters {
		to <- c.desc
	}
}

// Collect implements [prometheus.Collector].
func (c collector) Collect(to chan<- prometheus.Metric) {
	s := c.source.Stats()
	for _, g := range gauges {
		to <- prometheus.MustNewConstMetric(g.desc, prometheus.GaugeValue, g.value(&s))
	}
	for i := range s.Partitions {
		p := &s.Partitions[i]
		for _, g := range partitionGauges {
			if value := g.value(p); value >= 0 {
				to <- prometheus.MustNewConstMetric(g.desc, prometheus.GaugeValue, value, p.Topic, strconv.Itoa(int(p.Partition)))
			}
		}
	}
	for _, n := range counters {
		var labels []string
		if n.label != "" {
			labels = []string{n.label}
		}
		to <- prometheus.MustNewConstMetric(n.desc, prometheus.CounterValue, float64(n.value(&s.Counts)), labels...)
	}
}

func seconds(d time.Duration) float64 { return d.Seconds() }

func flag(on bool) float64 {
	if on {
		return 1
	}
	return 0
}
