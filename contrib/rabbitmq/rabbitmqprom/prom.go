package rabbitmqprom

import (
	"github.com/prometheus/client_golang/prometheus"

	"github.com/headgate/headgate/contrib/rabbitmq"
)

// Source is the part of a *rabbitmq.Consumer that a collector needs.
type Source interface{ Stats() rabbitmq.Stats }

// PublisherSource is the part of a *rabbitmq.Publisher that a collector needs.
type PublisherSource interface {
	Stats() rabbitmq.PublisherStats
}

// New returns a collector of the metrics of a consumer. It is safe for concurrent use.
func New(consumer Source) prometheus.Collector {
	return collector[rabbitmq.Stats]{consumer.Stats, consumerMetrics}
}

// NewPublisher returns a collector of the metrics of a publisher. It is safe for
// concurrent use.
func NewPublisher(publisher PublisherSource) prometheus.Collector {
	return collector[rabbitmq.PublisherStats]{publisher.Stats, publisherMetrics}
}

// metric is one number of a snapshot. Metrics that differ only by a label share a description.
type metric[S any] struct {
	desc  *prometheus.Desc
	kind  prometheus.ValueType
	label string // its value; "" if there is none
	value func(s *S) float64
}

func desc(name, help string, labels ...string) *prometheus.Desc {
	return prometheus.NewDesc("headgate_rabbitmq_"+name, help, labels, nil)
}

func gauge[S any](name, help string, value func(s *S) float64) metric[S] {
	return metric[S]{desc(name, help), prometheus.GaugeValue, "", value}
}

func counter[S any](name, help string, value func(s *S) uint64) metric[S] {
	return counts(desc(name, help), "", value)
}

func counts[S any](d *prometheus.Desc, label string, value func(s *S) uint64) metric[S] {
	return metric[S]{d, prometheus.CounterValue, label, func(s *S) float64 { return float64(value(s)) }}
}

var (
	attempts = desc("attempts_total", "Calls of the handler. Outcome: success, failure.", "outcome")
	retries  = desc("retries_total", "Messages to be tried again. Where: place (here), tier (after a delay).", "where")
	givenUp  = desc("given_up_total", "Messages that no attempt could handle. How: dead_letter, rejected, discarded.", "how")
	again    = desc("returned_total", "Messages that come again. Why: requeued (given back before they were handled), abandoned (handlers did not end in time), lost (a connection broke).", "why")
	ended    = desc("published_total", "Messages to publish, by how that ended: confirmed, refused, returned, unsent, unconfirmed.", "outcome")
)

var consumerMetrics = []metric[rabbitmq.Stats]{
	gauge("connected", "1 while there is a connection.", func(s *rabbitmq.Stats) float64 { return flag(s.Connected) }),
	gauge("running", "Messages that are being handled.", func(s *rabbitmq.Stats) float64 { return float64(s.Running) }),
	gauge("held_messages", "Messages that were delivered and are not settled.", func(s *rabbitmq.Stats) float64 { return float64(s.Held) }),
	gauge("held_bytes", "Bodies of messages that were delivered and are not settled.", func(s *rabbitmq.Stats) float64 { return float64(s.Bytes) }),
	gauge("prefetch", "Messages that may be held.", func(s *rabbitmq.Stats) float64 { return float64(s.Prefetch) }),
	gauge("ready_messages", "Messages that wait in the queue, as of the last look.", func(s *rabbitmq.Stats) float64 { return float64(s.Ready) }),
	gauge("round_trip_seconds", "How long the broker took to answer when it was asked last.", func(s *rabbitmq.Stats) float64 { return s.RoundTrip.Seconds() }),
	gauge("oldest_seconds", "Age of the oldest message that is held, by when it was sent.", func(s *rabbitmq.Stats) float64 { return s.Oldest.Seconds() }),
	gauge("head_seconds", "Age of the message that was delivered last, while others wait in the queue.", func(s *rabbitmq.Stats) float64 { return s.Head.Seconds() }),
	counter("delivered_total", "Deliveries.", func(s *rabbitmq.Stats) uint64 { return s.Delivered }),
	counter("redelivered_total", "Deliveries of what was delivered before, to whomever.", func(s *rabbitmq.Stats) uint64 { return s.Redelivered }),
	counts(attempts, "success", func(s *rabbitmq.Stats) uint64 { return s.Handled - s.Failed }),
	counts(attempts, "failure", func(s *rabbitmq.Stats) uint64 { return s.Failed }),
	counts(retries, "place", func(s *rabbitmq.Stats) uint64 { return s.Retried }),
	counts(retries, "tier", func(s *rabbitmq.Stats) uint64 { return s.Delayed }),
	counts(givenUp, "dead_letter", func(s *rabbitmq.Stats) uint64 { return s.DeadLettered }),
	counts(givenUp, "rejected", func(s *rabbitmq.Stats) uint64 { return s.Rejected }),
	counts(givenUp, "discarded", func(s *rabbitmq.Stats) uint64 { return s.Discarded }),
	counts(again, "requeued", func(s *rabbitmq.Stats) uint64 { return s.Requeued }),
	counts(again, "abandoned", func(s *rabbitmq.Stats) uint64 { return s.Abandoned }),
	counts(again, "lost", func(s *rabbitmq.Stats) uint64 { return s.Lost }),
	counter("refused_total", "Messages that the gate has held back for a while.", func(s *rabbitmq.Stats) uint64 { return s.Refused }),
	counter("connects_total", "Connections that were made.", func(s *rabbitmq.Stats) uint64 { return s.Connects }),
	counter("prefetch_changes_total", "Changes of the prefetch.", func(s *rabbitmq.Stats) uint64 { return s.Tuned }),
}

var publisherMetrics = []metric[rabbitmq.PublisherStats]{
	gauge("publisher_connected", "1 while there is a connection.", func(s *rabbitmq.PublisherStats) float64 { return flag(s.Connected) }),
	gauge("publisher_blocked", "1 while the broker takes no messages.", func(s *rabbitmq.PublisherStats) float64 { return flag(s.Blocked) }),
	gauge("publisher_outstanding", "Messages in memory that are not confirmed.", func(s *rabbitmq.PublisherStats) float64 { return float64(s.Outstanding) }),
	counts(ended, "confirmed", func(s *rabbitmq.PublisherStats) uint64 { return s.Confirmed }),
	counts(ended, "refused", func(s *rabbitmq.PublisherStats) uint64 { return s.Refused }),
	counts(ended, "returned", func(s *rabbitmq.PublisherStats) uint64 { return s.Returned }),
	counts(ended, "unsent", func(s *rabbitmq.PublisherStats) uint64 { return s.Unsent }),
	counts(ended, "unconfirmed", func(s *rabbitmq.PublisherStats) uint64 { return s.Unconfirmed }),
	counter("publisher_resent_total", "Messages that were sent again after a connection broke.", func(s *rabbitmq.PublisherStats) uint64 { return s.Resent }),
	counter("publisher_connects_total", "Connections that were made.", func(s *rabbitmq.PublisherStats) uint64 { return s.Connects }),
	counter("publisher_blocks_total", "How often the broker took no messages.", func(s *rabbitmq.PublisherStats) uint64 { return s.Blocks }),
}

type collector[S any] struct {
	stats   func() S
	metrics []metric[S]
}

// Describe implements [prometheus.Collector].
func (c collector[S]) Describe(to chan<- *prometheus.Desc) {
	for _, m := range c.metrics {
		to <- m.desc
	}
}

// Collect implements [prometheus.Collector].
func (c collector[S]) Collect(to chan<- prometheus.Metric) {
	s := c.stats()
	for _, m := range c.metrics {
		var labels []string
		if m.label != "" {
			labels = []string{m.label}
		}
		to <- prometheus.MustNewConstMetric(m.desc, m.kind, m.value(&s), labels...)
	}
}

func flag(on bool) float64 {
	if on {
		return 1
	}
	return 0
}
