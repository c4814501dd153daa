package app

import (
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"log/slog"
	"net/http"
	"sync"
	"sync/atomic"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"google.golang.org/grpc"

	"github.com/headgate/headgate"
	"github.com/headgate/headgate/httplimit"
	"github.com/headgate/headgate/policy/inprogress"
	"github.com/headgate/headgate/policy/models"
	"github.com/headgate/headgate/server/dashboard"
	"github.com/headgate/headgate/server/decide"
	"github.com/headgate/headgate/server/envoyrls"
	"github.com/headgate/headgate/server/forwardauth"
	"github.com/headgate/headgate/server/gateway"
	"github.com/headgate/headgate/server/grpcapi"
	"github.com/headgate/headgate/server/insightapi"
	"github.com/headgate/headgate/store/memory"
	"github.com/headgate/headgate/telemetry/prom"
)

// App is the service, ready to serve: its policy is loaded, and its addresses are bound. Its store
// answers, or is waited for while the service says that it is not ready. Make one with [New]. End
// it with Serve or Close.
type App struct {
	settings Settings
	source   *source
	store    *Store
	nodes    *prom.Nodes   // the servers that the store is on
	layers   *layers       // nil if the store is memory
	without  *withoutStore // of the layers; nil without them
	trial    *trial        // of the candidate; nil without one
	xds      *xds          // nil if the policy comes from files
	// certificates is nil without TLS.
	certificates *certificates
	gateway      *gatewaySource // nil without a gateway file
	keeper       *inprogress.Keeper
	permits      *decide.Permits // for callers in other processes
	reserve      reserve
	ratelimit    *ratelimitMetrics // nil if they are not wanted
	requests     *requests
	limits       *limits
	insights     *insights           // nil if they are not wanted
	traces       *traces             // nil if they are not wanted
	gated        *gateway.Gateway    // nil without a gateway
	answers      *insightapi.Handler // nil without insights
	peers        *http.Client        // asks the other instances
	dashboard    *dashboard.Handler  // nil without one
	audit        insightapi.Audit
	doors        []*door
	draining     atomic.Bool
	// ending is closed by end before the doors are shut. Calls without a deadline of their own end
	// then.
	ending chan struct{}
	end    func()

	closing sync.Once
	closed  error // what the first Close returned
}

// errDraining is why a service that is being shut down is not ready.
var errDraining = errors.New("the server is being shut down")

// New does everything that can fail before the first request. Its error is a [*SettingsError] or
// that of the policy file, both of which the caller can correct, or it wraps [ErrUnavailable].
func New(ctx context.Context, settings Settings) (*App, error) {
	s, err := settings.withDefaults()
	if err != nil {
		return nil, err
	}
	if s.Store == memoryStore && s.HashKey == "" {
		// Nobody else has these counters, so nobody else needs the key.
		s.HashKey, s.madeUpKey = rand.Text(), true
	}
	a := &App{settings: s, nodes: prom.NewNodes(), ending: make(chan struct{}), reserve: make(reserve, s.HeapReserve)}
	a.end = sync.OnceFunc(func() { close(a.ending) })
	if a.source, err = newSource(&s); err != nil {
		return nil, err
	}
	if a.certificates, err = newCertificates(&s); err != nil {
		return nil, err
	}
	if a.peers, err = s.peerClient(a.certificates); err != nil {
		return nil, err
	}
	if s.XDS != nil {
		if a.xds, err = a.startXDS(ctx); err != nil {
			return nil, err
		}
	}
	if a.store, err = s.openStore(func(b *backend) (closer, error) {
		return b.openLate(ctx, s.Store, backendOptions{timeout: s.StoreTimeout, observer: a.nodes.Observe}, s.Logger)
	}); err != nil {
		if a.xds != nil {
			a.xds.close()
		}
		return nil, err
	}
	a.keeper, a.permits = a.newKeeper(), a.newPermits()
	if a.layers, err = a.newLayers(); err != nil {
		return nil, errors.Join(err, a.Close())
	}
	if a.layers != nil {
		a.without = a.layers.without
	}
	if s.Candidate != "" {
		a.trial, err = newTrial(ctx, &s, a.Policy)
	}
	a.insights = a.newInsights()
	if err == nil {
		a.traces, err = a.newTraces(ctx)
	}
	a.answers = a.insightAPI()
	if err == nil {
		err = a.openDoors(ctx)
	}
	if err != nil {
		return nil, errors.Join(err, a.Close())
	}
	a.source.warn()
	if a.trial != nil {
		a.trial.logCandidate()
	}
	return a, nil
}

// openDoors makes the transports that the settings ask for. It binds their addresses last, so that
// mistakes in a file are reported even if an address is taken.
func (a *App) openDoors(ctx context.Context) error {
	registry := prometheus.NewRegistry()
	recorder, err := prom.New(registry)
	if err != nil {
		return err
	}
	store := a.decisive()
	a.requests = newRequests(registry)
	decider := a.newDecider(store, recorder, registry)
	a.countPermits(registry)
	dialect, err := httplimit.ParseDialect(a.settings.Dialect)
	if err != nil {
		return err
	}
	envoy := envoyrls.New(a.seen(decider, "envoy"), envoyrls.Options{Dialect: dialect, Independent: a.settings.EnvoyIndependent, Hit: a.hits(registry), RefusedReport: (&warned{logger: a.settings.Logger}).refusedReport})
	s, err := a.newHTTP(decider, envoy, registry)
	if err != nil {
		return err
	}
	a.add("http", a.settings.Listen, s)
	if a.ratelimit != nil {
		a.add("metrics", a.settings.Ratelimit.MetricsListen, &http.Server{Handler: a.ratelimit.served, ReadTimeout: a.settings.readTimeout, WriteTimeout: writeTimeout, IdleTimeout: idleTimeout})
	}
	if a.settings.Gateway != nil {
		if err := a.openGateway(ctx, a.seen(decider, "gateway"), registry); err != nil {
			return err
		}
	}
	if a.settings.DashboardListen != "" {
		a.openDashboard()
	}
	if a.settings.RESPListen != "" {
		a.add("resp", a.settings.RESPListen, a.newRESP(a.seen(decider, "resp"), dialect, registry))
	}
	if a.settings.GRPCListen != "" {
		// A line for each service.
		services := []func(grpc.ServiceRegistrar){
			envoy.Register,
			a.newQuota(registry).Register,
			forwardauth.NewService(a.seen(decider, "ext-authz"), forwardauth.Options{Dialect: dialect, Logger: a.settings.Logger}).Register,
			a.newProcessor(a.seen(decider, "ext-proc"), dialect, registry).Register,
			grpcapi.New(a.seen(decider, "grpc"), a.grpcOptions()).Register,
			grpcapi.NewPermits(a.permits, grpcapi.PermitsOptions{AdminToken: a.settings.AdminToken}).Register,
			a.newGRPCStore(store, recorder, registry),
		}
		a.add("grpc", a.settings.GRPCListen, a.newGRPC(a.newHealthy(), services...))
	}
	return a.bind(ctx)
}

// newDecider makes the decider that all transports ask.
func (a *App) newDecider(store headgate.Store, recorder *prom.Recorder, registry *prometheus.Registry) decide.Decider {
	if a.layers != nil {
		registry.MustRegister(scraped(a.layers.collect), a.nodes, ofMemory(a.without.local))
	} else if store, ok := a.store.Store.(*memory.Store); ok {
		registry.MustRegister(ofMemory(store))
	}
	if a.insights != nil {
		registry.MustRegister(scraped(a.collectInsights))
	}
	spending := prom.NewSpending()
	a.limits = &limits{policy: a.Policy, recorder: recorder, hits: new(hits), spending: spending}
	registry.MustRegister(scraped(a.limits.collect), spending)
	plain := &warned{logger: a.settings.Logger}
	over := &decide.Over{Rules: a.Policy, Store: store, Hooks: a.hooks(a.throttleHooks(recorder.Hooks(), registry)), Spending: func(ctx context.Context, s *models.Spending) {
		spending.Spent(ctx, s)
		a.traces.spent(ctx, s)
		if a.insights != nil {
			a.insights.Spent(s)
		}
	}}
	over.Decided = func(e decide.Event) {
		if a.trial != nil {
			a.trial.Decided(e)
		}
		if e.Err != nil {
			return
		}
		e.Ask.Calls(e.Decisions, func(call *decide.Ask, decisions []headgate.Decision) {
			if call.Op == headgate.OpTake {
				a.limits.hits.decided(call, decisions)
				plain.unsettled(call, decisions)
			}
		})
	}
	if a.trial != nil {
		registry.MustRegister(scraped(a.trial.collect))
		over.Settled = a.trial.Settled
	}
	return over
}

// hooks tells of each call to the store whom the hooks are of, and those who are told of all calls.
func (a *App) hooks(of headgate.Hooks) headgate.Hooks {
	all := []headgate.Hooks{of}
	if a.without != nil {
		all = append(all, a.without.logRefusals())
	}
	if a.insights != nil {
		all = append(all, a.insights.store.Hooks())
	}
	if a.traces != nil {
		all = append(all, a.traces.Hooks())
	}
	return headgate.Hooks{
		Decided: func(ctx context.Context, op headgate.Op, checks []headgate.Check, decisions []headgate.Decision, took time.Duration) {
			for i := range all {
				if all[i].Decided != nil {
					all[i].Decided(ctx, op, checks, decisions, took)
				}
			}
		},
		Failed: func(ctx context.Context, op headgate.Op, checks []headgate.Check, err error, took time.Duration) {
			for i := range all {
				all[i].Failed(ctx, op, checks, err, took)
			}
		},
	}
}

// Policy is the policy in force.
func (a *App) Policy() decide.Policy { return *a.source.active.Load() }

// Reload reads the policy file, the candidate and the gateway file again, as happens by itself when
// they change. The reason appears in the log. If a file has mistakes, what was in force stays in
// force, and the log, the metrics and /readyz say why. A mistake in the policy or the gateway file
// is returned, one in the candidate is not. The error wraps [ErrNotReloadable] if the policy does
// not come from a file. Reload is safe for concurrent use.
func (a *App) Reload(reason string) error {
	_, _, err := a.reload(reason)
	return err
}

func (a *App) reload(reason string) (decide.Policy, result, error) {
	if a.trial != nil {
		// What went wrong stands in the log, and in its report.
		_, _, _ = a.trial.source.reload(reason)
	}
	if a.gateway == nil {
		return a.source.reload(reason)
	}
	of, err := a.gateway.reload(reason)
	if a.source.fixed != "" {
		return a.Policy(), of, err
	}
	now, result, wrong := a.source.reload(reason)
	switch {
	case wrong != nil:
		// That of the gateway file stands in the log.
		return now, failed, wrong
	case of == unchanged:
		return now, result, nil
	}
	return now, of, err
}

// StoreName is the store's URL without its secrets, or says that it is the memory store.
func (a *App) StoreName() string { return a.store.Name() }

// Serve serves until ctx ends, and then shuts down: /readyz fails first, the listeners close after
// the drain delay, and requests in flight may end. Serve returns nil if all of them ended in time.
func (a *App) Serve(ctx context.Context) error {
	stop := a.work(ctx)
	first, wait := a.serveDoors()
	var err error
	select {
	case err = <-first:
		a.closeDoors()
	case <-ctx.Done():
		err = a.shutDown()
	}
	err = errors.Join(err, wait())
	stop()
	return errors.Join(err, a.Close())
}

// work starts what runs while the service serves: files are watched until ctx ends, and decisions
// are compared and denials logged until the returned function is called.
func (a *App) work(ctx context.Context) (stop func()) {
	var working sync.WaitGroup
	watched, stopWatching := context.WithCancel(ctx)
	working.Go(func() { a.source.watch(watched, a.settings.lookEvery) })
	if a.certificates != nil {
		working.Go(func() { a.certificates.watch(watched, a.settings.lookEvery) })
	}
	if a.gateway != nil {
		working.Go(func() { a.gateway.watch(watched, a.settings.lookEvery) })
	}
	compared, stopComparing := context.WithCancel(context.WithoutCancel(ctx))
	if a.settings.DenialLog {
		log := &denialLog{from: a.insights.Recorder, logger: a.settings.Logger}
		working.Go(func() { log.run(compared) })
	}
	if a.insights != nil && a.insights.file != nil {
		working.Go(func() { a.insights.file.Run(compared, a.answers.Happened) })
	}
	if a.trial != nil {
		working.Go(func() { a.trial.source.watch(watched, a.settings.lookEvery) })
		working.Go(func() { a.trial.Run(compared) })
	}
	return func() {
		stopWatching()
		stopComparing()
		working.Wait()
	}
}

// unlessClosed returns the error of a server that has ended, or nil if it was told to end.
func unlessClosed(err error) error {
	if errors.Is(err, http.ErrServerClosed) || errors.Is(err, grpc.ErrServerStopped) {
		return nil
	}
	return err
}

func (a *App) shutDown() error {
	logger := a.settings.Logger
	logger.Info("shutting down", slog.Duration("drain_delay", a.settings.DrainDelay), slog.Duration("at_most", a.settings.DrainDelay+a.settings.ShutdownTimeout))
	a.draining.Store(true)
	a.settings.sleep(a.settings.DrainDelay)
	a.end()
	ctx, cancel := context.WithTimeout(context.Background(), a.settings.ShutdownTimeout)
	defer cancel()
	if err := a.shutDoors(ctx); err != nil {
		return fmt.Errorf("requests in flight did not end within %v and were cut off", a.settings.ShutdownTimeout)
	}
	return nil
}

// Close closes the listeners and the store at once, and cuts off requests in flight. Closing again
// does nothing.
func (a *App) Close() error {
	a.closing.Do(func() {
		a.end()
		a.closeDoors()
		if a.xds != nil {
			a.xds.close()
		}
		if a.trial != nil {
			a.trial.close()
		}
		if a.dashboard != nil {
			a.dashboard.Close()
		}
		if a.insights != nil {
			a.insights.Close()
		}
		if a.peers != nil {
			a.peers.CloseIdleConnections()
		}
		lost := a.leave()
		a.layers.close()
		a.traces.close()
		a.closed = errors.Join(lost, a.store.Close())
	})
	return a.closed
}
