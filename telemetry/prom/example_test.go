package prom_test

import (
	"context"
	"fmt"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/headgate/headgate"
	"github.com/headgate/headgate/store/memory"
	"github.com/headgate/headgate/telemetry/prom"
)

func Example() {
	registry := prometheus.NewRegistry()
	recorder, err := prom.New(registry)
	if err != nil {
		fmt.Println(err)
		return
	}
	store := headgate.Observe(memory.New(), recorder.Hooks())
	limiter := headgate.New(store, headgate.MustRule("search", headgate.PerHour(2)))
	for range 3 {
		if _, err := limiter.Allow(context.Background(), "user42"); err != nil {
			fmt.Println(err)
			return
		}
	}

	// What Prometheus would read:
	families, err := registry.Gather()
	if err != nil {
		fmt.Println(err)
		return
	}
	for _, f := range families {
		if f.GetName() != "headgate_decisions_total" {
			continue
		}
		for _, m := range f.GetMetric() {
			for _, l := range m.GetLabel() {
				fmt.Printf("%s=%q ", l.GetName(), l.GetValue())
			}
			fmt.Println(m.GetCounter().GetValue())
		}
	}
	// Output:
	// limit="2 per 1h" outcome="allowed" rule="search" 2
	// limit="2 per 1h" outcome="denied" rule="search" 1
	// limit="2 per 1h" outcome="shadow_denied" rule="search" 0
	// limit="2 per 1h" outcome="uncharged" rule="search" 0
}
