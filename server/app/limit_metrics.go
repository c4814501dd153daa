package app

import (
	"net/http"
	"sync"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/headgate/headgate"
	"github.com/headgate/headgate/server/decide"
	"github.com/headgate/headgate/telemetry/prom"
)

// labels name a limit in metrics.
type labels struct{ rule, limit string }

// limits exports the limits of the policy in force: gauges give their numbers, and the series of
// limits that are no longer in the policy end. It is safe for concurrent use.
type limits struct {
	policy   func() decide.Policy
	recorder *prom.Recorder
	soft     *softHits
	lists    *listHits

	mu      sync.Mutex // guards what follows
	version int64
	all     map[labels]headgate.Limit
}

// now returns the limits of the policy in force.
func (l *limits) now() map[labels]headgate.Limit {
	policy := l.policy()
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.all != nil && l.version == policy.Version {
		return l.all
	}
	l.all, l.version = make(map[labels]headgate.Limit), policy.Version
	rules := policy.Rules()
	for i := range rules {
		for of := range rules[i].EachLimits() {
			for _, limit := range of.Limits() {
				l.all[labels{of.Name(), limit.String()}] = limit
			}
		}
	}
	return l.all
}

// forget ends the series of limits that are no longer in the policy. It is called before each
// scrape, because requests that began under a former policy may begin a series again.
func (l *limits) forget() {
	now, policy := l.now(), l.policy()
	l.recorder.Keep(func(rule, limit string) bool {
		_, in := now[labels{rule, limit}]
		// Limits that callers bring along are in no policy, but there is only one name for all of
		// them.
		return in || rule == decide.BroughtRule
	})
	l.soft.byRule.keep(func(of [2]string) bool { return policy.Rule(of[0]) != nil })
	l.lists.keep(policy.Set)
}

// fresh serves metrics after it has ended the series of what is gone.
func (l *limits) fresh(metrics http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		l.forget()
		metrics.ServeHTTP(w, r)
	})
}

var (
	limitUnitsDesc = prometheus.NewDesc("headgate_limit_units",
		"The units that a limit of the policy in force grants in its period.", []string{"rule", "limit"}, nil)
	limitPeriodDesc = prometheus.NewDesc("headgate_limit_period_seconds",
		"The period of a limit of the policy in force.", []string{"rule", "limit"}, nil)
)

// Describe is part of [prometheus.Collector].
func (l *limits) Describe(to chan<- *prometheus.Desc) {
	to <- limitUnitsDesc
	to <- limitPeriodDesc
}

// Collect is part of [prometheus.Collector].
func (l *limits) Collect(to chan<- prometheus.Metric) {
	for of, limit := range l.now() {
		to <- prometheus.MustNewConstMetric(limitUnitsDesc, prometheus.GaugeValue, float64(limit.Count), of.rule, of.limit)
		to <- prometheus.MustNewConstMetric(limitPeriodDesc, prometheus.GaugeValue, float64(limit.Micros())/1e6, of.rule, of.limit)
	}
}
