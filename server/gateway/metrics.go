package gateway

import (
	"slices"
	"sync/atomic"

	"github.com/prometheus/client_golang/prometheus"
)

// counts are the counters of a gateway.
type counts struct {
	inFlight    atomic.Int64
	requests    [outcomes]statuses
	answers     statuses
	refusedConn atomic.Int64
	settlements [settlements]atomic.Int64
	conns       atomic.Int64
}

// statuses counts by the first digit of a status; 0 is for requests without one.
type statuses [6]atomic.Int64

var statusNames = [...]string{"none", "1xx", "2xx", "3xx", "4xx", "5xx"}

func (s *statuses) add(status int) {
	if class := status / 100; class > 0 && class < len(s) {
		s[class].Add(1)
		return
	}
	s[0].Add(1)
}

func (c *counts) add(o outcome, status int) { c.requests[o].add(status) }

var (
	descRequests = prometheus.NewDesc("headgate_gateway_requests_total", "Requests by what became of them and by the status that the client got.", []string{"outcome", "status"}, nil)
	descAnswers  = prometheus.NewDesc("headgate_gateway_answers_total", "Requests that were sent to an upstream server, by the status of its answer or of the one in its place.", []string{"status"}, nil)
	descInFlight = prometheus.NewDesc("headgate_gateway_requests_in_flight", "Requests in progress.", nil, nil)
	descUpgraded = prometheus.NewDesc("headgate_gateway_upgraded_connections", "Connections that have become something other than HTTP.", nil, nil)
	descConns    = prometheus.NewDesc("headgate_gateway_connections", "Connections to clients.", nil, nil)
	descRefused  = prometheus.NewDesc("headgate_gateway_connections_refused_total", "Connections that were one too many.", nil, nil)
	descUp       = prometheus.NewDesc("headgate_gateway_target_up", "1 if the target is neither down nor passed over.", []string{"upstream", "target"}, nil)
	descTarget   = prometheus.NewDesc("headgate_gateway_target_requests_total", "Requests that were sent to the target.", []string{"upstream", "target"}, nil)
	descFailures = prometheus.NewDesc("headgate_gateway_target_failures_total", "Requests that the target did not answer.", []string{"upstream", "target"}, nil)
	descBusy     = prometheus.NewDesc("headgate_gateway_target_requests_in_flight", "Requests that are with the target.", []string{"upstream", "target"}, nil)
	descSettled  = prometheus.NewDesc("headgate_gateway_settlements_total", "Reservations of requests that have ended, by what became of them.", []string{"result"}, nil)
	descKeys     = prometheus.NewDesc("headgate_gateway_token_keys_last_read_timestamp_seconds", "When the keys of tokens were last read well, in seconds since 1970.", nil, nil)
	descKeysBad  = prometheus.NewDesc("headgate_gateway_token_keys_last_read_failed", "1 if the keys of tokens could not be read when that was last tried.", nil, nil)
)

// Describe implements [prometheus.Collector].
func (g *Gateway) Describe(to chan<- *prometheus.Desc) { prometheus.DescribeByCollect(g, to) }

// Collect implements [prometheus.Collector]. Labels come only from the options, never from what
// clients send.
func (g *Gateway) Collect(to chan<- prometheus.Metric) {
	number := func(d *prometheus.Desc, kind prometheus.ValueType, v int64, labels ...string) {
		to <- prometheus.MustNewConstMetric(d, kind, float64(v), labels...)
	}
	for o := range g.counts.requests {
		for class := range g.counts.requests[o] {
			if n := g.counts.requests[o][class].Load(); n > 0 {
				number(descRequests, prometheus.CounterValue, n, outcomeNames[o], statusNames[class])
			}
		}
	}
	for class := 1; class < len(g.counts.answers); class++ {
		number(descAnswers, prometheus.CounterValue, g.counts.answers[class].Load(), statusNames[class])
	}
	g.gates.Collect(to)
	number(descInFlight, prometheus.GaugeValue, g.counts.inFlight.Load())
	number(descUpgraded, prometheus.GaugeValue, int64(g.upgrades.count()))
	number(descConns, prometheus.GaugeValue, g.counts.conns.Load())
	number(descRefused, prometheus.CounterValue, g.counts.refusedConn.Load())
	for i := range g.counts.settlements {
		number(descSettled, prometheus.CounterValue, g.counts.settlements[i].Load(), settlementNames[i])
	}
	g.mu.Lock()
	living := slices.Clone(g.living)
	g.mu.Unlock()
	// Targets that are no longer in force may still have requests in progress.
	known := make(map[[2]string]bool)
	for _, in := range slices.Backward(living) {
		collectTargets(number, in, known)
	}
	if tokens := g.current.Load().tokens; tokens != nil {
		failed := int64(0)
		if tokens.keys.failed.Load() {
			failed = 1
		}
		number(descKeys, prometheus.GaugeValue, tokens.keys.fetched.Load()/1e9)
		number(descKeysBad, prometheus.GaugeValue, failed)
	}
}

// collectTargets collects the metrics of targets that are not in known.
func collectTargets(number func(*prometheus.Desc, prometheus.ValueType, int64, ...string), in *inner, known map[[2]string]bool) {
	for _, p := range in.pools {
		for _, t := range p.targets {
			if known[[2]string{p.Name, t.name}] {
				continue
			}
			known[[2]string{p.Name, t.name}] = true
			up := int64(1)
			if t.down.Load() || t.ejected() {
				up = 0
			}
			number(descUp, prometheus.GaugeValue, up, p.Name, t.name)
			number(descTarget, prometheus.CounterValue, t.requests.Load(), p.Name, t.name)
			number(descFailures, prometheus.CounterValue, t.failures.Load(), p.Name, t.name)
			number(descBusy, prometheus.GaugeValue, t.inFlight.Load(), p.Name, t.name)
		}
	}
}
