package app

import (
	"context"
	"crypto/tls"
	"net"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/headgate/headgate"
	"github.com/headgate/headgate/httplimit"
	"github.com/headgate/headgate/server/decide"
	"github.com/headgate/headgate/server/httpapi"
	"github.com/headgate/headgate/server/resp"
)

// newRESP makes the server that speaks Redis's protocol.
func (a *App) newRESP(decider decide.Decider, dialect httplimit.Dialect, registry *prometheus.Registry) server {
	s := resp.New(decider, resp.Options{
		Token:      a.settings.RESPToken,
		Announce:   a.settings.RESPAnnounce,
		SideBySide: a.settings.Store != memoryStore,
		Instant:    a.settings.Store == memoryStore && !a.settings.NoStandby,
		Permits:    a.permits,
		// Without what is for operators.
		API: a.leaving(a.traces.http("resp", httpapi.New(decider, httpapi.Options{
			Dialect: dialect, Permits: a.permits, Logger: a.settings.Logger, AccessLog: a.settings.AccessLog,
		}))),
		InstantPath: httpapi.Instant,
		Version:     a.settings.Version,
		Logger:      a.settings.Logger,
		AccessLog:   a.settings.AccessLog,
		Span:        a.traces.resp(),
	})
	registry.MustRegister(
		prometheus.NewGaugeFunc(prometheus.GaugeOpts{
			Name: "headgate_resp_connections",
			Help: "Connections of Redis clients.",
		}, func() float64 { return float64(s.Connections()) }),
		prometheus.NewCounterFunc(prometheus.CounterOpts{
			Name: "headgate_resp_connections_refused_total",
			Help: "Connections of Redis clients that were refused because there were too many.",
		}, func() float64 { return float64(s.Refused()) }),
	)
	if a.certificates != nil {
		return respTLS{s, a.certificates.config()}
	}
	return s
}

// throttleHooks returns hooks that count the decisions of CL.THROTTLE together. Callers of that
// command bring their own limits, of which there may be any number, so the limits cannot be labels
// of a metric.
func (a *App) throttleHooks(hooks headgate.Hooks, registry *prometheus.Registry) headgate.Hooks {
	if a.settings.RESPListen == "" {
		return hooks
	}
	decisions := prometheus.NewCounterVec(prometheus.CounterOpts{
		Name: "headgate_resp_throttle_decisions_total",
		Help: "Decisions of CL.THROTTLE, by limits that its callers bring along. Outcome: allowed, denied.",
	}, []string{"outcome"})
	registry.MustRegister(decisions)
	allowed, denied := decisions.WithLabelValues("allowed"), decisions.WithLabelValues("denied")
	all := hooks.Decided
	hooks.Decided = func(ctx context.Context, op headgate.Op, checks []headgate.Check, made []headgate.Decision, took time.Duration) {
		if len(checks) != 1 || len(made) != 1 || checks[0].Rule.Name() != resp.ThrottleRule || a.Policy().Rule(resp.ThrottleRule) != nil {
			all(ctx, op, checks, made, took)
			return
		}
		all(ctx, op, checks, nil, took)
		switch {
		case op != headgate.OpTake:
		case made[0].Allowed:
			allowed.Inc()
		default:
			denied.Inc()
		}
	}
	return hooks
}

// respTLS is a server of Redis's protocol that speaks TLS.
type respTLS struct {
	*resp.Server
	config *tls.Config
}

// Serve implements [server].
func (s respTLS) Serve(l net.Listener) error { return s.Server.Serve(tls.NewListener(l, s.config)) }
