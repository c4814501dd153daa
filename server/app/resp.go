package app

import (
	"crypto/tls"
	"net"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/headgate/headgate/server/decide"
	"github.com/headgate/headgate/server/resp"
)

// newRESP makes the server that speaks Redis's protocol.
func (a *App) newRESP(decider decide.Decider, registry *prometheus.Registry) server {
	s := resp.New(decider, resp.Options{
		Token:      a.settings.RESPToken,
		SideBySide: a.settings.Store != memoryStore,
		Version:    a.settings.Version,
		Logger:     a.settings.Logger,
		AccessLog:  a.settings.AccessLog,
	})
	registry.MustRegister(
		prometheus.NewGaugeFunc(prometheus.GaugeOpts{
			Name: "headgate_resp_connections",
			Help: "Connections of Redis clients.",
		}, func() float64 { return float64(s.Connections()) }),
		prometheus.NewCounterFunc(prometheus.CounterOpts{
			Name: "headgate_resp_refused_connections_total",
			Help: "Connections of Redis clients that were refused because there were too many.",
		}, func() float64 { return float64(s.Refused()) }),
	)
	if a.certificates != nil {
		return respTLS{s, a.certificates.config()}
	}
	return s
}

// respTLS is a server of Redis's protocol that speaks TLS.
type respTLS struct {
	*resp.Server
	config *tls.Config
}

// Serve implements [server].
func (s respTLS) Serve(l net.Listener) error { return s.Server.Serve(tls.NewListener(l, s.config)) }
