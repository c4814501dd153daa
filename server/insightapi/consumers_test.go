package insightapi_test

import (
	"context"
	"fmt"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"

	"github.com/headgate/headgate/policy"
	"github.com/headgate/headgate/server/decide"
	"github.com/headgate/headgate/server/insightapi"
	"github.com/headgate/headgate/telemetry/insight"
)

const consumerMetrics = `# TYPE go_goroutines gauge
go_goroutines 12
# TYPE headgate_kafka_running gauge
headgate_kafka_running{consumer="orders"} 4
headgate_kafka_running{consumer="mails"} 1
# TYPE headgate_kafka_held_records gauge
headgate_kafka_held_records{consumer="orders"} 40
# TYPE headgate_kafka_attempts_total counter
headgate_kafka_attempts_total{consumer="orders",outcome="success"} 90
headgate_kafka_attempts_total{consumer="orders",outcome="failure"} 10
# TYPE headgate_kafka_given_up_total counter
headgate_kafka_given_up_total{consumer="orders",how="dead_letter"} 2
headgate_kafka_given_up_total{consumer="orders",how="skipped"} 1
# TYPE headgate_kafka_refused_total counter
headgate_kafka_refused_total{consumer="orders"} 7
# TYPE headgate_kafka_lag gauge
headgate_kafka_lag{consumer="orders",topic="orders",partition="0"} 1000
headgate_kafka_lag{consumer="orders",topic="orders",partition="10"} 5
headgate_kafka_lag{consumer="orders",topic="a\\n` + "\u202e" + `<b>",partition="9"} 5
# TYPE headgate_kafka_paused gauge
headgate_kafka_paused{consumer="orders",topic="orders",partition="0"} 1
headgate_kafka_paused{consumer="orders",topic="orders",partition="3"} 0
# TYPE headgate_kafka_behind gauge
headgate_kafka_behind{consumer="orders",topic="orders",partition="0"} 1
# TYPE headgate_kafka_oldest_seconds gauge
headgate_kafka_oldest_seconds{consumer="orders",topic="orders",partition="0"} 61.5
# TYPE headgate_rabbitmq_connected gauge
headgate_rabbitmq_connected 0
# TYPE headgate_rabbitmq_ready_messages gauge
headgate_rabbitmq_ready_messages NaN
# TYPE headgate_rabbitmq_publisher_connected gauge
headgate_rabbitmq_publisher_connected 1
`

// TestConsumersOutliveTheViewer: the one who asked has gone, and the answer that others get is whole.
func TestConsumersOutliveTheViewer(t *testing.T) {
	t.Parallel()
	s := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		_, _ = w.Write([]byte(consumerMetrics))
	}))
	t.Cleanup(s.Close)
	c := &insightapi.Consumers{URLs: []string{s.URL + "/metrics"}}
	gone, leave := context.WithCancel(t.Context())
	leave()
	for _, ctx := range []context.Context{gone, t.Context()} {
		if consumers, programs := c.Ask(ctx); len(consumers) == 0 || !programs[0].OK {
			t.Errorf("%d consumers, of %+v", len(consumers), programs)
		}
	}
}

// TestConsumers reads what programs show Prometheus.
func TestConsumers(t *testing.T) {
	t.Parallel()
	serve := func(body string, status int) string {
		s := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			if r.Header.Get("Authorization") != "" {
				t.Error("the token is sent to a consumer")
			}
			w.WriteHeader(status)
			_, _ = w.Write([]byte(body))
		}))
		t.Cleanup(s.Close)
		return s.URL + "/metrics"
	}
	var many strings.Builder
	for i := range 1000 {
		fmt.Fprintf(&many, "headgate_kafka_lag{topic=\"t\",partition=\"%d\"} %d\n", i, i)
	}
	gone := httptest.NewServer(nil)
	gone.Close()
	c := &insightapi.Consumers{URLs: []string{
		serve(consumerMetrics, http.StatusOK), serve(many.String(), http.StatusOK), serve("<html>", http.StatusOK), serve("", http.StatusNotFound),
		serve("headgate_kafka_running 1\n"+strings.Repeat("# long\n", 2<<20), http.StatusOK), gone.URL, "http://consumers.example:9/metrics",
	}, Resolve: func(_ context.Context, host string) ([]string, error) { return nil, fmt.Errorf("no %s", host) }}
	recorder := insight.New(insight.Options{})
	t.Cleanup(recorder.Close)
	set, err := policy.New(nil)
	if err != nil {
		t.Fatal(err)
	}
	n := &flowNode{Server: httptest.NewServer(insightapi.New(insightapi.Options{
		Recorder: recorder, Name: "a", Policy: func() decide.Policy { return decide.Policy{Set: set} }, Take: nothing, Consumers: c,
	}))}
	t.Cleanup(n.Close)
	f := n.flow(t, "")
	byName := make(map[string]insightapi.Consumer)
	for _, one := range f.Consumers {
		byName[one.Kind+" "+one.Name] = one
	}
	orders := byName["kafka consumer=orders"]
	if orders.Lag != 1010 || orders.Running != 4 || orders.Held != 40 || orders.Handled != 100 || orders.Failed != 10 || orders.GivenUp != 3 || orders.Refused != 7 || orders.Paused != 1 || orders.Behind != 1 || orders.OldestMS != 61_500 || orders.Away {
		t.Errorf("orders: %+v", orders)
	}
	if p := orders.Partitions; len(p) != 4 || p[0] != (insightapi.ConsumerPartition{Topic: "orders", Partition: "0", Lag: 1000, OldestMS: 61_500, Paused: true, Behind: true}) || p[3].Lag != -1 {
		t.Errorf("the partitions of orders: %+v", p)
	}
	if mails := byName["kafka consumer=mails"]; mails.Running != 1 || mails.Lag != -1 {
		t.Errorf("mails: %+v", mails)
	}
	if rabbit := byName["rabbitmq "]; !rabbit.Away || rabbit.Lag != 0 {
		t.Errorf("RabbitMQ: %+v", rabbit)
	}
	if large := f.Consumers[0]; large.Lag != 999*1000/2 || len(large.Partitions) != 20 || large.MorePartitions != 980 || large.Partitions[0].Partition != "999" {
		t.Errorf("many partitions: %+v", large)
	}
	failed := 0
	for _, p := range f.Programs {
		if !p.OK && p.Error != "" {
			failed++
		}
	}
	if len(f.Programs) != 7 || failed != 5 || len(f.Consumers) != 4 {
		t.Errorf("%d consumers of %+v", len(f.Consumers), f.Programs)
	}
}
