package app

import (
	"github.com/prometheus/client_golang/prometheus"

	"github.com/headgate/headgate"
	"github.com/headgate/headgate/policy"
	"github.com/headgate/headgate/server/decide"
	"github.com/headgate/headgate/telemetry/insight"
)

// insights is what is known of who uses what.
type insights struct {
	*insight.Recorder
	store insight.Latency
}

// newInsights makes it, or nil if it is not wanted.
func (a *App) newInsights() *insights {
	if a.settings.NoInsight {
		return nil
	}
	return &insights{Recorder: insight.New(insight.Options{Tier: func(rule *headgate.Rule) string {
		return tierOf(a.Policy().Set, rule)
	}})}
}

// tierOf is the tier of the tariff that the limits are of, or what else they are of.
func tierOf(set *policy.Set, limits *headgate.Rule) string {
	rule := set.Rule(limits.Name())
	if rule == nil {
		return ""
	}
	for i := range rule.Overrides {
		if rule.Overrides[i].Limits == limits {
			return "override"
		}
	}
	if rule.Tariff == nil {
		return ""
	}
	for i := range rule.Tariff.Tiers {
		if tier := &rule.Tariff.Tiers[i]; tier.Limits == limits {
			if set.Secret(rule.Tariff.Entry) {
				return set.Hash(rule.Tariff.Entry, tier.Value)
			}
			return tier.Value
		}
	}
	return "*"
}

// seen has what a door asks for recorded. Without insight it is the decider itself.
func (a *App) seen(decider decide.Decider, door string) decide.Decider {
	if a.insights == nil {
		return decider
	}
	to := a.insights.Door(door)
	return decide.Observe(decider, decide.Hooks{Decided: func(e decide.Event) {
		if e.Err == nil && e.Ask.Op == headgate.OpTake {
			to.Decided(e.Ask.Policy.Version, e.Ask.Checks, e.Decisions)
		}
	}})
}

var (
	insightBytesDesc = prometheus.NewDesc("headgate_insight_bytes",
		"Memory of what is known of keys, which is bounded.", nil, nil)
	insightLeftDesc = prometheus.NewDesc("headgate_insight_left_out_total",
		"What was left out of what is known of keys. What: decisions (of rules that there was no memory for), events (denials of a key that had one within the same second).", []string{"what"}, nil)
)

// Describe is part of [prometheus.Collector].
func (i *insights) Describe(to chan<- *prometheus.Desc) {
	to <- insightBytesDesc
	to <- insightLeftDesc
}

// Collect is part of [prometheus.Collector].
func (i *insights) Collect(to chan<- prometheus.Metric) {
	bytes, left := i.Memory()
	to <- prometheus.MustNewConstMetric(insightBytesDesc, prometheus.GaugeValue, float64(bytes))
	to <- prometheus.MustNewConstMetric(insightLeftDesc, prometheus.CounterValue, float64(left.Decisions), "decisions")
	to <- prometheus.MustNewConstMetric(insightLeftDesc, prometheus.CounterValue, float64(left.Events), "events")
}
