package kafkaprom_test

import (
	"strings"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/testutil"

	"github.com/headgate/headgate/contrib/kafka"
	"github.com/headgate/headgate/contrib/kafka/kafkaprom"
)

// TestGauges: the gauges of a partition go with its assignment, counters stay, and a lag
// that is not known is not shown.
func TestGauges(t *testing.T) {
	s := &source{kafka.Stats{
		Running: 2, Records: 5, Bytes: 1500, Fetched: 99,
		Partitions: []kafka.PartitionStats{
			{Topic: "orders", Partition: 3, Lag: 17, Oldest: 90 * time.Second, Held: time.Second, Running: 2, Records: 5, Bytes: 1500, Paused: true},
			{Topic: "orders", Partition: 4, Lag: -1, Behind: true},
		},
		Counts: kafka.Counts{Handled: 10, Failed: 4, Retried: 3, Delayed: 2, DeadLettered: 1, Skipped: 7, Pauses: 1, Waits: 6, Refused: 8},
	}}
	registry := prometheus.NewPedanticRegistry()
	if err := registry.Register(kafkaprom.New(s)); err != nil {
		t.Fatal(err)
	}
	want := func(lines string, names ...string) {
		t.Helper()
		if err := testutil.GatherAndCompare(registry, strings.NewReader(lines), names...); err != nil {
			t.Error(err)
		}
	}
	want(`# HELP headgate_kafka_lag Offsets from the first record that is not done to the end of the partition; absent until it is known.
# TYPE headgate_kafka_lag gauge
headgate_kafka_lag{partition="3",topic="orders"} 17
# HELP headgate_kafka_oldest_seconds Age of the oldest record that waits or is being handled, by its timestamp.
# TYPE headgate_kafka_oldest_seconds gauge
headgate_kafka_oldest_seconds{partition="3",topic="orders"} 90
headgate_kafka_oldest_seconds{partition="4",topic="orders"} 0
# HELP headgate_kafka_paused 1 while the partition is not fetched.
# TYPE headgate_kafka_paused gauge
headgate_kafka_paused{partition="3",topic="orders"} 1
headgate_kafka_paused{partition="4",topic="orders"} 0
# HELP headgate_kafka_attempts_total Calls of the handler. Outcome: success, failure.
# TYPE headgate_kafka_attempts_total counter
headgate_kafka_attempts_total{outcome="failure"} 4
headgate_kafka_attempts_total{outcome="success"} 6
# HELP headgate_kafka_running Records that are being handled.
# TYPE headgate_kafka_running gauge
headgate_kafka_running 2
`, "headgate_kafka_lag", "headgate_kafka_oldest_seconds", "headgate_kafka_paused", "headgate_kafka_attempts_total", "headgate_kafka_running")

	s.now.Partitions = s.now.Partitions[:1]
	want(`# HELP headgate_kafka_paused 1 while the partition is not fetched.
# TYPE headgate_kafka_paused gauge
headgate_kafka_paused{partition="3",topic="orders"} 1
`, "headgate_kafka_paused")
	if problems, err := testutil.GatherAndLint(registry); err != nil || len(problems) > 0 {
		t.Errorf("%v, %v", problems, err)
	}
}

// source is a consumer of which only the numbers matter.
type source struct{ now kafka.Stats }

func (s *source) Stats() kafka.Stats { return s.now }
