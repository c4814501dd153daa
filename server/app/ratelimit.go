package app

import (
	"context"
	"net/http"
	"path"
	"regexp"
	"strings"
	"time"

	pb "github.com/envoyproxy/go-control-plane/envoy/service/ratelimit/v3"
	"github.com/prometheus/client_golang/prometheus"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/headgate/headgate/server/envoyrls"
)

// RatelimitSettings make the service a replacement for an installed envoyproxy/ratelimit: only gRPC
// is served with TLS, GET /healthcheck and gRPC's health checks answer as there, and /json takes
// requests of the rate limit service as JSON.
type RatelimitSettings struct {
	// HealthNeedsStore has health checks fail while the store does not answer. Otherwise they fail
	// only while the service is being shut down: who restarts what is not healthy does not bring the
	// store back.
	HealthNeedsStore bool `hidden:""`
	// MetricsListen is an address to serve all metrics on, at the path MetricsPath, and those of
	// envoyproxy/ratelimit under its names among them. Empty means that there are none of those.
	MetricsListen string `hidden:""`
	MetricsPath   string `hidden:"" default:"/metrics"`
	// NearLimit is the part of a limit from which on units are near it, 0 to 1, for these metrics.
	NearLimit float64 `hidden:"" default:"0.8"`
}

// newHealthy makes the function that answers gRPC's health checks: that of newReady or, in the place
// of envoyproxy/ratelimit, one that answers as it does.
func (a *App) newHealthy() func(context.Context) error {
	if a.settings.Ratelimit == nil {
		return a.newReady()
	}
	probe := newProbe(a.decisive())
	return func(ctx context.Context) error {
		switch {
		case a.draining.Load():
			return errDraining
		case a.settings.Ratelimit.HealthNeedsStore:
			return probe.ready(ctx)
		}
		return nil
	}
}

// likeRatelimit adds the paths that envoyproxy/ratelimit serves over HTTP.
func likeRatelimit(next http.Handler, envoy *envoyrls.Service, healthy func(context.Context) error) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		switch r.URL.Path {
		case "/json":
			envoy.ServeHTTP(w, r)
		case "/healthcheck":
			ctx, cancel := context.WithTimeout(r.Context(), readyWithin)
			defer cancel()
			if err := healthy(ctx); err != nil {
				http.Error(w, "the store does not answer, or the server is being shut down", http.StatusInternalServerError)
				return
			}
			_, _ = w.Write([]byte("OK")) // The caller may be gone.
		default:
			next.ServeHTTP(w, r)
		}
	})
}

// hits returns what counts the units of limits of envoyproxy/ratelimit's configuration, and makes the
// metrics under its names, if the settings ask for them.
func (a *App) hits(registry *prometheus.Registry) func(envoyrls.Hit) {
	names := newMeasured(registry)
	if a.settings.Ratelimit == nil || a.settings.Ratelimit.MetricsListen == "" {
		return names.add
	}
	a.ratelimit = newRatelimitMetrics(registry, &a.settings, a.source, names)
	return func(h envoyrls.Hit) {
		names.add(h)
		a.ratelimit.hit(h)
	}
}

// ratelimitMetrics are those of envoyproxy/ratelimit, by the names that its own mapping and Envoy
// Gateway's give them. Names without a unit, and counters without _total, are theirs.
type ratelimitMetrics struct {
	near                               float64
	total, within, over, close, shadow *prometheus.CounterVec
	failed, requests                   *prometheus.CounterVec
	took                               *prometheus.HistogramVec
	names                              *measured    // bounds the names that callers make
	served                             http.Handler // the path, once there is an HTTP API
}

func newRatelimitMetrics(registry *prometheus.Registry, settings *Settings, policy *source, names *measured) *ratelimitMetrics {
	limit := func(name, help string) *prometheus.CounterVec {
		c := prometheus.NewCounterVec(prometheus.CounterOpts{Name: "ratelimit_service_rate_limit_" + name, Help: help}, []string{"domain", "key1", "key2"})
		registry.MustRegister(c)
		return c
	}
	m := &ratelimitMetrics{
		near: settings.Ratelimit.NearLimit, names: names,
		total:  limit("total_hits", "Units that descriptors with a limit asked for."),
		within: limit("within_limit", "Units of descriptors within their limit."),
		over:   limit("over_limit", "Units of descriptors over their limit."),
		close:  limit("near_limit", "Units above NEAR_LIMIT_RATIO of the limit, of descriptors within it."),
		shadow: limit("shadow_mode", "Units of descriptors over a limit that does not deny."),
		failed: prometheus.NewCounterVec(prometheus.CounterOpts{
			Name: "ratelimit_service_should_rate_limit_error",
			Help: "Requests without a decision, by reason: redis_error (the store did not answer), service_error.",
		}, []string{"err_type"}),
		requests: prometheus.NewCounterVec(prometheus.CounterOpts{
			Name: "ratelimit_service_total_requests",
			Help: "Calls over gRPC.",
		}, []string{"grpc_method"}),
		took: prometheus.NewHistogramVec(prometheus.HistogramOpts{
			Name: "ratelimit_service_response_time_seconds",
			Help: "How long calls over gRPC took.",
		}, []string{"grpc_method"}),
	}
	loads := func(name, help string, read func() int64) {
		registry.MustRegister(prometheus.NewCounterFunc(prometheus.CounterOpts{Name: "ratelimit_service_config_load_" + name, Help: help},
			func() float64 { return float64(read()) }))
	}
	first := int64(1)
	if settings.XDS != nil && settings.XDS.StartEmpty {
		first = 0 // What the service began with was not loaded.
	}
	loads("success", "How often a configuration was loaded.", func() int64 { return first + policy.counts[changed].Load() + policy.counts[unchanged].Load() })
	loads("error", "How often a configuration had mistakes, or could not be read.", policy.counts[failed].Load)
	registry.MustRegister(m.failed, m.requests, m.took)
	return m
}

// address is what envoyproxy/ratelimit takes for an address in the name of a statistic.
var address = regexp.MustCompile(`\d{1,3}\.\d{1,3}\.\d{1,3}\.\d{1,3}`)

// statLabels returns the labels for a name, as the mapping makes them of the name's first three parts.
func statLabels(name string) []string {
	name = strings.NewReplacer(":", "_", "|", "_").Replace(name)
	name = address.ReplaceAllStringFunc(name, func(ip string) string { return strings.ReplaceAll(ip, ".", "_") })
	return append(strings.SplitN(name, ".", 4), "", "", "")[:3]
}

// hit counts what a descriptor asked for.
func (m *ratelimitMetrics) hit(h envoyrls.Hit) {
	name := h.Limit
	if h.Measured != "" {
		name = m.names.bounded(h.Measured)
	}
	of, units := statLabels(name), float64(h.Units)
	m.total.WithLabelValues(of...).Add(units)
	if h.Became != envoyrls.Within {
		m.over.WithLabelValues(of...).Add(units)
		if h.Became == envoyrls.OverInShadow {
			m.shadow.WithLabelValues(of...).Add(units)
		}
		return
	}
	m.within.WithLabelValues(of...).Add(units)
	near := int64(m.near * float64(h.Count))
	if beyond := min(h.Used-near, h.Units); beyond > 0 {
		m.close.WithLabelValues(of...).Add(float64(beyond))
	}
}

// called counts a call over gRPC, and one of the rate limit service that got no decision.
func (m *ratelimitMetrics) called(method string, began time.Time, err error) {
	name := path.Base(method)
	m.requests.WithLabelValues(name).Inc()
	m.took.WithLabelValues(name).Observe(time.Since(began).Seconds())
	if err == nil || method != pb.RateLimitService_ShouldRateLimit_FullMethodName {
		return
	}
	kind := "service_error"
	if status.Code(err) == codes.Unavailable {
		kind = "redis_error"
	}
	m.failed.WithLabelValues(kind).Inc()
}
