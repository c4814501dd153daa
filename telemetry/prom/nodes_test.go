package prom_test

import (
	"errors"
	"fmt"
	"math"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/headgate/headgate/telemetry/prom"
)

// TestNodes: each node has its own histogram, which knows p99.9 to within a quarter, and
// there are never too many.
func TestNodes(t *testing.T) {
	nodes := prom.NewNodes()
	reg := prometheus.NewRegistry()
	reg.MustRegister(nodes)
	for i := range 10_000 {
		took := 200 * time.Microsecond
		if i%500 == 0 {
			took = 7 * time.Millisecond
		}
		nodes.Observe("10.0.0.1:6379", "take", took, nil)
	}
	nodes.Observe("10.0.0.2:6379", "refund", time.Second, errors.New("away"))
	nodes.Observe("", "take", time.Millisecond, nil)
	if n := testing.AllocsPerRun(100, func() { nodes.Observe("10.0.0.1:6379", "take", 200*time.Microsecond, nil) }); n != 0 {
		t.Errorf("%v allocations", n)
	}
	for i := range 5000 {
		nodes.Observe(fmt.Sprint("node ", i), "take", time.Millisecond, nil)
	}
	families, err := reg.Gather()
	if err != nil {
		t.Fatal(err)
	}
	found := map[string]bool{}
	for _, f := range families {
		if n := len(f.GetMetric()); n > 1026 {
			t.Errorf("%s has %d series", f.GetName(), n)
		}
		for _, m := range f.GetMetric() {
			labels := map[string]string{}
			for _, l := range m.GetLabel() {
				labels[l.GetName()] = l.GetValue()
			}
			found[f.GetName()+" "+labels["node"]+" "+labels["op"]] = true
			switch {
			case f.GetName() == "headgate_store_node_errors_total" && labels["node"] == "10.0.0.2:6379" && m.GetCounter().GetValue() != 1:
				t.Errorf("%v errors, want 1", m.GetCounter().GetValue())
			case f.GetName() == "headgate_store_node_duration_seconds" && labels["node"] == "10.0.0.1:6379":
				h := m.GetHistogram()
				for q, want := range map[float64]float64{0.5: 200e-6, 0.999: 7e-3} {
					rank, got := q*float64(h.GetSampleCount()), math.Inf(1)
					for _, b := range h.GetBucket() {
						if float64(b.GetCumulativeCount()) >= rank {
							got = b.GetUpperBound()
							break
						}
					}
					if got < want || got > 1.25*want {
						t.Errorf("the quantile %v is at most %v, want %v or a quarter more", q, got, want)
					}
				}
			}
		}
	}
	for _, want := range []string{
		"headgate_store_node_duration_seconds 10.0.0.1:6379 take", "headgate_store_node_errors_total 10.0.0.2:6379 refund", "headgate_store_node_duration_seconds unknown take",
	} {
		if !found[want] {
			t.Errorf("there is no %s", want)
		}
	}
}
