package app

import (
	"sync"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/headgate/headgate/server/envoyrls"
)

// maxMeasured is how many names are counted separately, because callers determine the names by what
// they send. Requests under further names are counted together.
const (
	maxMeasured   = 1000
	otherMeasured = "other"
)

// measured counts the requests for limits that a configuration of envoyproxy/ratelimit wants
// counted by value. It is safe for concurrent use.
type measured struct {
	units *prometheus.CounterVec

	mu    sync.RWMutex // guards known
	known map[string]struct{}
}

func newMeasured(registry *prometheus.Registry) *measured {
	m := &measured{known: make(map[string]struct{}), units: prometheus.NewCounterVec(prometheus.CounterOpts{
		Name: "headgate_envoy_units_total",
		Help: "Units that descriptors asked for whose limit has detailed_metric or value_to_metric, by the name that these make. Of 1000 names; further ones are counted as other.",
	}, []string{"descriptor", "result"})}
	registry.MustRegister(m.units)
	return m
}

// add counts a hit if it is to be measured by values.
func (m *measured) add(h envoyrls.Hit) {
	if h.Measured == "" {
		return
	}
	result := "within"
	switch h.Became {
	case envoyrls.Within:
	case envoyrls.Over:
		result = "over"
	case envoyrls.OverInShadow:
		result = "over_in_shadow"
	}
	m.units.WithLabelValues(m.bounded(h.Measured), result).Add(float64(h.Units))
}

// bounded returns the name, or the name for all others if there are too many.
func (m *measured) bounded(name string) string {
	m.mu.RLock()
	_, known := m.known[name]
	full := len(m.known) >= maxMeasured
	m.mu.RUnlock()
	switch {
	case known:
		return name
	case full:
		return otherMeasured
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	if len(m.known) >= maxMeasured {
		if _, known = m.known[name]; !known {
			return otherMeasured
		}
	}
	m.known[name] = struct{}{}
	return name
}
