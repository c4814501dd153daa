package rabbitmqprom_test

import (
	"strings"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/testutil"

	"github.com/headgate/headgate/contrib/rabbitmq"
	"github.com/headgate/headgate/contrib/rabbitmq/rabbitmqprom"
)

// TestMetrics: consumer and publisher share a registry, and every number is where it should
// be.
func TestMetrics(t *testing.T) {
	registry := prometheus.NewPedanticRegistry()
	if err := registry.Register(rabbitmqprom.New(consumer{})); err != nil {
		t.Fatal(err)
	}
	if err := registry.Register(rabbitmqprom.NewPublisher(publisher{})); err != nil {
		t.Fatal(err)
	}
	want := `# HELP headgate_rabbitmq_attempts_total Calls of the handler. Outcome: success, failure.
# TYPE headgate_rabbitmq_attempts_total counter
headgate_rabbitmq_attempts_total{outcome="failure"} 4
headgate_rabbitmq_attempts_total{outcome="success"} 6
# HELP headgate_rabbitmq_head_seconds Age of the message that was delivered last, while others wait in the queue.
# TYPE headgate_rabbitmq_head_seconds gauge
headgate_rabbitmq_head_seconds 90
# HELP headgate_rabbitmq_prefetch Messages that may be held.
# TYPE headgate_rabbitmq_prefetch gauge
headgate_rabbitmq_prefetch 30
# HELP headgate_rabbitmq_publisher_blocked 1 while the broker takes no messages.
# TYPE headgate_rabbitmq_publisher_blocked gauge
headgate_rabbitmq_publisher_blocked 1
# HELP headgate_rabbitmq_published_total Messages to publish, by how that ended: confirmed, refused, returned, unsent, unconfirmed.
# TYPE headgate_rabbitmq_published_total counter
headgate_rabbitmq_published_total{outcome="confirmed"} 11
headgate_rabbitmq_published_total{outcome="refused"} 12
headgate_rabbitmq_published_total{outcome="returned"} 13
headgate_rabbitmq_published_total{outcome="unconfirmed"} 15
headgate_rabbitmq_published_total{outcome="unsent"} 14
`
	if err := testutil.GatherAndCompare(registry, strings.NewReader(want), "headgate_rabbitmq_attempts_total", "headgate_rabbitmq_head_seconds",
		"headgate_rabbitmq_prefetch", "headgate_rabbitmq_publisher_blocked", "headgate_rabbitmq_published_total"); err != nil {
		t.Error(err)
	}
	if problems, err := testutil.GatherAndLint(registry); err != nil || len(problems) > 0 {
		t.Errorf("%v, %v", problems, err)
	}
}

type consumer struct{}

func (consumer) Stats() rabbitmq.Stats {
	return rabbitmq.Stats{Prefetch: 30, Head: 90 * time.Second, Counts: rabbitmq.Counts{Handled: 10, Failed: 4}}
}

type publisher struct{}

func (publisher) Stats() rabbitmq.PublisherStats {
	return rabbitmq.PublisherStats{Blocked: true, PublisherCounts: rabbitmq.PublisherCounts{
		Confirmed: 11, Refused: 12, Returned: 13, Unsent: 14, Unconfirmed: 15,
	}}
}
