package prom_test

import (
	"strings"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus/testutil"

	"github.com/headgate/headgate/flow"
	"github.com/headgate/headgate/flow/adaptive"
	"github.com/headgate/headgate/flow/permits"
	"github.com/headgate/headgate/flow/shed"
	"github.com/headgate/headgate/telemetry/prom"
)

func TestGates(t *testing.T) {
	gates := prom.NewGates()
	one, err := permits.New(permits.Config{Name: "one", Limit: 1, Shared: true})
	if err != nil {
		t.Fatal(err)
	}
	knee, err := adaptive.NewKnee(adaptive.KneeConfig{Initial: 7})
	if err != nil {
		t.Fatal(err)
	}
	limit := adaptive.New("limit", knee)
	queue, err := shed.New(limit, shed.Config{Name: "queue"})
	if err != nil {
		t.Fatal(err)
	}
	first, second := gates.Watch("one", one), gates.Watch("two", queue, queue, limit)
	p, err := first.TryAcquire(t.Context(), flow.Request{Class: flow.Sheddable})
	if err != nil {
		t.Fatal(err)
	}
	for range 3 {
		if _, err := first.TryAcquire(t.Context(), flow.Request{}); err == nil {
			t.Error("there was a second permit")
		}
	}
	q, err := second.TryAcquire(t.Context(), flow.Request{})
	if err != nil {
		t.Fatal(err)
	}
	q.Done(flow.Overload)
	if n := first.Shed(); n[flow.Critical.Rank()][flow.ReasonBusy] != 3 {
		t.Errorf("shed were %v", n)
	}
	stats := gates.Stats()
	if s := stats["one"]; s.Limit != 1 || s.InUse != 1 || s.Admitted != 1 || s.Rejected[flow.ReasonBusy] != 3 {
		t.Errorf("one: %+v", s)
	}
	if s := stats["two"]; s.Limit != 7 || s.InUse != 0 || s.Admitted != 1 || s.Done[flow.Overload] != 1 || len(stats) != 2 {
		t.Errorf("two: %+v of %d", s, len(stats))
	}
	want := func(text string, names ...string) {
		t.Helper()
		if err := testutil.CollectAndCompare(gates, strings.NewReader(text), names...); err != nil {
			t.Error(err)
		}
	}
	want(`
# HELP headgate_gate_limit Units that may be in progress at the same time.
# TYPE headgate_gate_limit gauge
headgate_gate_limit{gate="one"} 1
headgate_gate_limit{gate="two"} 7
# HELP headgate_gate_in_progress Units that are in progress.
# TYPE headgate_gate_in_progress gauge
headgate_gate_in_progress{gate="one"} 1
headgate_gate_in_progress{gate="two"} 0
# HELP headgate_gate_shed_total Requests that were refused.
# TYPE headgate_gate_shed_total counter
headgate_gate_shed_total{class="critical",gate="one",reason="busy"} 3
# HELP headgate_gate_base_seconds How long work takes that does not wait, as the gate estimates it.
# TYPE headgate_gate_base_seconds gauge
headgate_gate_base_seconds{gate="two"} 0
# HELP headgate_gate_pressure How short the process is of processor time or memory: 0 to 1.
# TYPE headgate_gate_pressure gauge
headgate_gate_pressure{gate="two"} 0
`, "headgate_gate_limit", "headgate_gate_in_progress", "headgate_gate_shed_total", "headgate_gate_base_seconds", "headgate_gate_pressure")
	p.Done(flow.Success)

	// Another gate under the name goes on counting; a gate that is forgotten has no metrics.
	for range 100 {
		knee.Update(adaptive.Sample{RTT: time.Millisecond, Outcome: flow.Success})
	}
	gates.Forget("two")
	again := gates.Watch("one", flow.Chain())
	if _, err := again.Acquire(t.Context(), flow.Request{Class: flow.Sheddable}); err != nil {
		t.Error(err)
	}
	want(`
# HELP headgate_gate_admitted_total Requests that were let in.
# TYPE headgate_gate_admitted_total counter
headgate_gate_admitted_total{class="critical",gate="one"} 0
headgate_gate_admitted_total{class="critical_plus",gate="one"} 0
headgate_gate_admitted_total{class="sheddable",gate="one"} 2
headgate_gate_admitted_total{class="sheddable_plus",gate="one"} 0
# HELP headgate_gate_done_total Permits that were given back, by how the work has ended.
# TYPE headgate_gate_done_total counter
headgate_gate_done_total{gate="one",outcome="ignore"} 0
headgate_gate_done_total{gate="one",outcome="overload"} 0
headgate_gate_done_total{gate="one",outcome="success"} 1
headgate_gate_done_total{gate="one",outcome="unused"} 0
headgate_gate_done_total{gate="one",outcome="canceled"} 0
`, "headgate_gate_admitted_total", "headgate_gate_done_total", "headgate_gate_limit")
}
