package app

import (
	"log/slog"
	"net/http"
	"runtime"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/collectors"
	"github.com/prometheus/client_golang/prometheus/promhttp"

	"github.com/headgate/headgate/httplimit"
	"github.com/headgate/headgate/server/decide"
	"github.com/headgate/headgate/server/envoyrls"
	"github.com/headgate/headgate/server/forwardauth"
	"github.com/headgate/headgate/server/httpapi"
	"github.com/headgate/headgate/server/insightapi"
	"github.com/headgate/headgate/server/keepalive"
)

// newHTTP makes the HTTP API, which serves the metrics of all transports.
func (a *App) newHTTP(decider decide.Decider, envoy *envoyrls.Service, registry *prometheus.Registry) (server, error) {
	build := prometheus.NewGauge(prometheus.GaugeOpts{
		Name:        "headgate_build_info",
		Help:        "Always 1; the labels say which build this is.",
		ConstLabels: prometheus.Labels{"version": a.settings.Version, "go": runtime.Version()},
	})
	build.Set(1)
	registry.MustRegister(build, scraped(func(m scrape) {
		a.source.collect(m, "headgate_policy", "policy", "policy in force")
		m.gauge("headgate_heap_reserve_bytes", "Addresses without memory that make collections of a small heap rare; they are in go_memstats_heap_alloc_bytes too.", float64(len(a.reserve)))
	}), collectors.NewGoCollector(), collectors.NewProcessCollector(collectors.ProcessCollectorOpts{}))

	dialect, err := httplimit.ParseDialect(a.settings.Dialect)
	if err != nil {
		return nil, err
	}
	logger := a.settings.Logger
	metrics := a.limits.fresh(promhttp.HandlerFor(registry, promhttp.HandlerOpts{ErrorLog: slog.NewLogLogger(logger.Handler(), slog.LevelError)}))
	if a.ratelimit != nil {
		a.ratelimit.served = http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			if r.URL.Path != a.settings.Ratelimit.MetricsPath {
				http.NotFound(w, r)
				return
			}
			metrics.ServeHTTP(w, r)
		})
	}
	api := httpapi.New(a.seen(decider, "http"), httpapi.Options{
		Ready:  a.newReady(),
		Detail: a.detail,
		Admin: httpapi.Admin{Token: a.settings.AdminToken, Reload: func(from string) (decide.Policy, bool, error) {
			now, result, err := a.reload("an admin asked for it")
			a.audit.Add(insightapi.Entry{Who: from, What: "reload", Detail: "through the HTTP API", OK: err == nil})
			if err != nil {
				return now, false, reloadError(err)
			}
			return now, result == changed, nil
		}, Clock: a.turnClock(), Candidate: a.candidateReport(), Insight: a.insightPaths()},
		Auth:      forwardauth.New(a.seen(decider, "forward-auth"), forwardauth.Options{Dialect: dialect, Logger: logger}),
		Metrics:   metrics,
		Dialect:   dialect,
		Permits:   a.permits,
		Logger:    logger,
		AccessLog: a.settings.AccessLog,
	})
	s := &http.Server{
		Handler:           a.leaving(a.traces.http("http", api)),
		ReadHeaderTimeout: readHeaderTimeout,
		ReadTimeout:       a.settings.readTimeout,
		WriteTimeout:      writeTimeout,
		IdleTimeout:       idleTimeout,
		MaxHeaderBytes:    maxHeaderBytes,
		ErrorLog:          slog.NewLogLogger(logger.Handler(), slog.LevelWarn),
	}
	if a.settings.Ratelimit != nil {
		s.Handler = likeRatelimit(s.Handler, envoy, a.newHealthy())
	}
	if a.certificates != nil {
		registry.MustRegister(prometheus.NewGaugeFunc(prometheus.GaugeOpts{
			Name: "headgate_tls_certificate_expiry_timestamp_seconds",
			Help: "When the certificate in force expires, in seconds since 1970.",
		}, a.certificates.notAfter))
		if a.settings.Ratelimit != nil {
			return s, nil
		}
		s.TLSConfig = a.certificates.config()
		return tlsServer{s}, nil
	}
	if a.settings.Store == memoryStore && !a.settings.NoStandby {
		return keepalive.New(s, httpapi.Instant), nil
	}
	return s, nil
}

// leaving makes each answer ask its caller to close the connection, once the service is being shut
// down. Closing idle connections at once would be quicker, but would lose requests that are already
// on their way over them.
func (a *App) leaving(next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if a.draining.Load() {
			w.Header()["Connection"] = []string{"close"}
		}
		next.ServeHTTP(w, r)
	})
}
