package app

import (
	"context"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"google.golang.org/grpc"

	"github.com/headgate/headgate"
	"github.com/headgate/headgate/server/decide"
	"github.com/headgate/headgate/server/grpcapi"
	"github.com/headgate/headgate/telemetry/prom"
)

// grpcOptions are the options of all services of our own.
func (a *App) grpcOptions() grpcapi.Options {
	return grpcapi.Options{SideBySide: a.settings.Store != memoryStore, Ending: a.ending}
}

// newGRPCStore makes the service for callers who bring their own rules, or nothing if the settings
// do not ask for it. The names of such rules are not used as labels of metrics, because there may
// be any number of them.
func (a *App) newGRPCStore(store headgate.Store, recorder *prom.Recorder, registry *prometheus.Registry) func(grpc.ServiceRegistrar) {
	if !a.settings.GRPCStore {
		return func(grpc.ServiceRegistrar) {}
	}
	requests := prometheus.NewCounterVec(prometheus.CounterOpts{
		Name: "headgate_grpc_store_requests_total",
		Help: "Requests to take units by the callers' own rules. Outcome: allowed, denied.",
	}, []string{"outcome"})
	allowed, denied := requests.WithLabelValues("allowed"), requests.WithLabelValues("denied")
	registry.MustRegister(requests)
	recorded := recorder.Hooks()
	hooks := headgate.Hooks{
		Decided: func(ctx context.Context, op headgate.Op, checks []headgate.Check, decisions []headgate.Decision, took time.Duration) {
			recorded.Decided(ctx, op, checks, nil, took)
			if op != headgate.OpTake {
				return
			}
			if v := headgate.NewVerdict(decisions); v.Allowed {
				allowed.Inc()
			} else {
				denied.Inc()
			}
		},
		Failed: recorded.Failed,
	}
	over := &decide.Over{Rules: a.Policy, Store: store, Hooks: a.hooks(hooks)}
	return grpcapi.NewStore(a.seen(over, "grpc-store"), grpcapi.StoreOptions{Options: a.grpcOptions(), Token: a.settings.GRPCStoreToken}).Register
}
