package prom_test

import (
	"errors"
	"strings"
	"testing"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/testutil"

	"github.com/headgate/headgate/flow"
	"github.com/headgate/headgate/policy"
	"github.com/headgate/headgate/policy/inprogress"
	"github.com/headgate/headgate/telemetry/prom"
)

func TestInProgress(t *testing.T) {
	set, err := policy.New([]policy.Rule{
		{Name: "all", InProgress: &policy.InProgress{Limit: 1}},
		{Name: "seen", Mode: policy.ModeShadow, InProgress: &policy.InProgress{Limit: 1}},
	})
	if err != nil {
		t.Fatal(err)
	}
	keeper := inprogress.New(inprogress.Options{})
	if err := keeper.Use(set); err != nil {
		t.Fatal(err)
	}
	registry := prometheus.NewPedanticRegistry()
	registry.MustRegister(prom.InProgress(keeper))
	out, err := set.Decide(nil, 1, nil)
	if err != nil {
		t.Fatal(err)
	}
	held, err := keeper.Enter(t.Context(), out.Bounds, nil)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := keeper.Enter(t.Context(), out.Bounds, nil); !errors.Is(err, flow.ErrShed) {
		t.Errorf("a second request: %v", err)
	}
	if _, err := keeper.Enter(t.Context(), out.Bounds[1:], nil); err != nil {
		t.Errorf("a rule in shadow refuses: %v", err)
	}
	want := `
# HELP headgate_in_progress_permits Permits that requests of this process hold.
# TYPE headgate_in_progress_permits gauge
headgate_in_progress_permits{rule="all"} 1
headgate_in_progress_permits{rule="seen"} 1
# HELP headgate_in_progress_refused_total Requests that got no permit, and with shadow those that would not have got one.
# TYPE headgate_in_progress_refused_total counter
headgate_in_progress_refused_total{reason="busy",rule="all",shadow="false"} 1
headgate_in_progress_refused_total{reason="busy",rule="seen",shadow="true"} 1
`
	if err := testutil.GatherAndCompare(registry, strings.NewReader(want), "headgate_in_progress_permits", "headgate_in_progress_refused_total"); err != nil {
		t.Error(err)
	}
	inprogress.Leave(held, flow.Ignore)
}
