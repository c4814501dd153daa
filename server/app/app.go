package app

import (
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"log/slog"
	"net/http"
	"runtime"
	"sync"
	"sync/atomic"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/collectors"
	"github.com/prometheus/client_golang/prometheus/promhttp"

	"github.com/headgate/headgate"
	"github.com/headgate/headgate/httplimit"
	"github.com/headgate/headgate/server/decide"
	"github.com/headgate/headgate/server/httpapi"
	"github.com/headgate/headgate/telemetry/prom"
)

// App is the service, ready to serve: its policy is loaded, its store answers
// and its addresses are bound. Make one with [New]; end it with Serve or Close.
type App struct {
	settings Settings
	source   *source
	store    *Store
	doors    []*door
	draining atomic.Bool
}

// errDraining is why a service that is being shut down is not ready.
var errDraining = errors.New("the server is being shut down")

// New does everything that can fail before a request is served. Its errors are
// a [*SettingsError] or an error of the policy file, both of which are
// the caller's to mend, or wrap [ErrUnavailable].
func New(ctx context.Context, settings Settings) (*App, error) {
	s, err := settings.withDefaults()
	if err != nil {
		return nil, err
	}
	if s.Store == memoryStore && s.HashKey == "" {
		// Nobody else has these counters, so nobody else needs the key.
		s.HashKey = rand.Text()
	}
	a := &App{settings: s}
	if a.source, err = newSource(&s); err != nil {
		return nil, err
	}
	if a.store, err = OpenStore(ctx, s); err != nil {
		return nil, err
	}
	if err = a.openDoors(ctx); err == nil {
		a.source.warn()
		return a, nil
	}
	return nil, errors.Join(err, a.Close())
}

// openDoors makes the transports that are asked for and binds their addresses.
func (a *App) openDoors(ctx context.Context) error {
	registry := prometheus.NewRegistry()
	recorder, err := prom.New(registry)
	if err != nil {
		return err
	}
	store := headgate.Observe(a.store, newFailures(a.settings.Logger).hooks(recorder.Hooks()))
	decider := &decide.Over{Rules: a.Policy, Store: store}
	s, err := a.newHTTP(decider, registry)
	if err != nil {
		return err
	}
	return a.open(ctx, "http", a.settings.Listen, s)
}

// newHTTP makes the HTTP API, which serves the metrics of all transports.
func (a *App) newHTTP(decider decide.Decider, registry *prometheus.Registry) (*http.Server, error) {
	build := prometheus.NewGauge(prometheus.GaugeOpts{
		Name:        "headgate_build_info",
		Help:        "Always 1; the labels say which build this is.",
		ConstLabels: prometheus.Labels{"version": a.settings.Version, "go": runtime.Version()},
	})
	build.Set(1)
	registry.MustRegister(build, a.source, collectors.NewGoCollector(), collectors.NewProcessCollector(collectors.ProcessCollectorOpts{}))

	dialect, err := httplimit.ParseDialect(a.settings.Dialect)
	if err != nil {
		return nil, err
	}
	logger := a.settings.Logger
	probe := newProbe(a.store)
	return &http.Server{
		Handler: a.leaving(httpapi.New(decider, httpapi.Options{
			Ready: func(ctx context.Context) error {
				if a.draining.Load() {
					return errDraining
				}
				return probe.ready(ctx)
			},
			Detail: a.source.detail,
			Admin: httpapi.Admin{Token: a.settings.AdminToken, Reload: func() (decide.Policy, bool, error) {
				now, result, err := a.source.reload("an admin asked for it")
				if err != nil {
					return now, false, reloadError(err)
				}
				return now, result == changed, nil
			}},
			Metrics:   promhttp.HandlerFor(registry, promhttp.HandlerOpts{ErrorLog: slog.NewLogLogger(logger.Handler(), slog.LevelError)}),
			Dialect:   dialect,
			Logger:    logger,
			AccessLog: a.settings.AccessLog,
		})),
		ReadHeaderTimeout: readHeaderTimeout,
		ReadTimeout:       a.settings.readTimeout,
		WriteTimeout:      writeTimeout,
		IdleTimeout:       idleTimeout,
		MaxHeaderBytes:    maxHeaderBytes,
		ErrorLog:          slog.NewLogLogger(logger.Handler(), slog.LevelWarn),
	}, nil
}

// leaving asks callers with a connection open to look elsewhere after their next
// answer, once the service is being shut down. Closing the connections that are
// idle would be quicker, and lose the requests that are on their way over them.
func (a *App) leaving(next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if a.draining.Load() {
			w.Header()["Connection"] = []string{"close"}
		}
		next.ServeHTTP(w, r)
	})
}

// Policy is the policy in force.
func (a *App) Policy() decide.Policy { return *a.source.active.Load() }

// Reload loads the policy file anew, for a reason that the log tells, as happens
// by itself when the file changes. If that fails, the policy in force stays in
// force, and the log, the metrics and /readyz say why. The error wraps
// [ErrNotReloadable] if the policy does not come from a file. It is safe for
// concurrent use.
func (a *App) Reload(reason string) error {
	_, _, err := a.source.reload(reason)
	return err
}

// StoreName says which store there is, without what may be secret in its URL.
func (a *App) StoreName() string { return a.store.Name() }

// Serve serves until ctx ends, and then shuts down: /readyz fails first, the
// listener closes after the drain delay, and requests in flight end. It returns
// nil after a shutdown in which every request ended by itself.
func (a *App) Serve(ctx context.Context) error {
	var watching sync.WaitGroup
	watched, stop := context.WithCancel(ctx)
	watching.Go(func() { a.source.watch(watched, a.settings.lookEvery) })
	defer watching.Wait()
	defer stop()
	first, wait := a.serveDoors()
	var err error
	select {
	case err = <-first:
		a.closeDoors()
	case <-ctx.Done():
		err = a.shutDown()
	}
	return errors.Join(err, wait(), a.Close())
}

// unlessClosed is the error of a server that has ended, or nil if it was told to.
func unlessClosed(err error) error {
	if errors.Is(err, http.ErrServerClosed) {
		return nil
	}
	return err
}

func (a *App) shutDown() error {
	logger := a.settings.Logger
	logger.Info("shutting down", slog.Duration("drain_delay", a.settings.DrainDelay), slog.Duration("at_most", a.settings.DrainDelay+a.settings.ShutdownTimeout))
	a.draining.Store(true)
	time.Sleep(a.settings.DrainDelay)
	ctx, cancel := context.WithTimeout(context.Background(), a.settings.ShutdownTimeout)
	defer cancel()
	if err := a.shutDoors(ctx); err != nil {
		return fmt.Errorf("requests in flight did not end within %v and were cut off", a.settings.ShutdownTimeout)
	}
	return nil
}

// Close frees the addresses and the store without regard for requests in flight.
// Closing again does nothing.
func (a *App) Close() error {
	a.closeDoors()
	return a.store.Close()
}
