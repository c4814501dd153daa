package app

import (
	"fmt"
	"strings"
	"testing"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/headgate/headgate/server/envoyrls"
)

// A configuration's detailed_metric and value_to_metric make metrics by values.
func TestMeasuredByValues(t *testing.T) {
	r := start(t, Settings{GRPCListen: "127.0.0.1:0", EnvoyConfig: envoyDir(t, "edge.yaml", `
domain: edge
descriptors:
  - {key: user, detailed_metric: true, rate_limit: {unit: day, requests_per_unit: 2}}
  - {key: path, value: /a*, value_to_metric: true, shadow_mode: true, rate_limit: {unit: day, requests_per_unit: 1}}
  - {key: plain, rate_limit: {unit: day, requests_per_unit: 2}}
`)})
	for _, ask := range [][2]string{{"user", "anna"}, {"user", "anna"}, {"user", "anna"}, {"user", "berta"}, {"path", "/a/1"}, {"path", "/a/1"}, {"plain", "carla"}} {
		r.shouldLimit(t, "edge", ask[0], ask[1])
	}
	_, metrics := r.do(t, "GET", "/metrics", "")
	for _, want := range []string{
		`headgate_envoy_units_total{descriptor="edge.user_anna",result="within"} 2`,
		`headgate_envoy_units_total{descriptor="edge.user_anna",result="over"} 1`,
		`headgate_envoy_units_total{descriptor="edge.user_berta",result="within"} 1`,
		`headgate_envoy_units_total{descriptor="edge.path_/a/1",result="within"} 1`,
		`headgate_envoy_units_total{descriptor="edge.path_/a/1",result="over_in_shadow"} 1`,
	} {
		if !strings.Contains(metrics, want) {
			t.Errorf("the metrics lack %s", want)
		}
	}
	if strings.Contains(metrics, "carla") {
		t.Error("the metrics have a value that nobody asked for")
	}
}

// Whatever callers send, the metrics are bounded.
func TestMeasuredNamesAreBounded(t *testing.T) {
	registry := prometheus.NewRegistry()
	m := newMeasured(registry)
	for i := range maxMeasured + 50 {
		m.add(envoyrls.Hit{Measured: fmt.Sprint(i), Units: 2})
	}
	m.add(envoyrls.Hit{Measured: "0", Became: envoyrls.Over, Units: 3})
	families, err := registry.Gather()
	if err != nil {
		t.Fatal(err)
	}
	names, other := make(map[string]bool), 0.0
	for _, metric := range families[0].GetMetric() {
		for _, l := range metric.GetLabel() {
			if l.GetName() == "descriptor" {
				names[l.GetValue()] = true
				if l.GetValue() == otherMeasured {
					other += metric.GetCounter().GetValue()
				}
			}
		}
	}
	if len(names) != maxMeasured+1 || other != 100 {
		t.Errorf("there are %d names, and %v units of others", len(names), other)
	}
}
