package app

import (
	"context"
	"os"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/headgate/headgate/policy/inprogress"
	"github.com/headgate/headgate/server/decide"
	"github.com/headgate/headgate/server/insightapi"
	"github.com/headgate/headgate/store"
	"github.com/headgate/headgate/telemetry/insight"
)

// leaveWithin is how long a service that ends tries to give shared permits back to the store. All
// requests have ended by then.
const leaveWithin = time.Second

// newKeeper makes the keeper of the bounds on what is in progress. It takes shared permits from the
// store itself, because the layers around the store have none.
func (a *App) newKeeper() *inprogress.Keeper {
	options := inprogress.Options{}
	// A policy that needs permits refuses a store that has none.
	options.Permits, _ = store.PermitsOf(a.store.Store)
	// What is written was found right with the settings.
	options.OnError, _ = parseOnError(a.settings.OnStoreError)
	if name, err := os.Hostname(); err == nil && len(name) <= maxOwner {
		options.Owner = name
	}
	return inprogress.New(options)
}

// maxOwner is the longest name that is shown to those who list permits.
const maxOwner = 64

// leave gives back the permits that are still held.
func (a *App) leave() error {
	if a.keeper == nil {
		return nil
	}
	ctx, cancel := context.WithTimeout(context.Background(), leaveWithin)
	defer cancel()
	return a.keeper.Close(ctx)
}

// newPermits makes the service of permits for callers in other processes. Like the keeper, it takes
// permits from the store itself.
func (a *App) newPermits() *decide.Permits {
	p := &decide.Permits{
		Rules: a.Policy, Ending: a.ending,
		Audit: func(of decide.PermitKey, holder, from string, answered bool) {
			a.audit.Add(insightapi.Entry{Who: from, What: "revoke", OK: answered, Detail: "rule " + of.Rule + ", key " + insight.Name{Raw: of.Key}.Text() + ", holder " + insight.Name{Raw: holder}.Text()})
		},
	}
	// If the store has no permits, callers are told so.
	p.Store, _ = store.PermitsOf(a.store.Store)
	// What is written was found right with the settings.
	p.OnError, _ = parseOnError(a.settings.OnStoreError)
	if a.settings.clock != nil {
		p.Now = a.settings.clock.Now
	}
	return p
}

// countPermits has calls about permits counted. Nobody makes any yet.
func (a *App) countPermits(registry *prometheus.Registry) {
	calls := prometheus.NewCounterVec(prometheus.CounterOpts{
		Name: "headgate_permit_calls_total",
		Help: "Calls about permits, by rule, by call (acquire, renew, release, holders, revoke), and by what became of them.",
	}, []string{"rule", "call", "outcome"})
	registry.MustRegister(calls)
	a.permits.OnCall = func(rule, call, outcome string) { calls.WithLabelValues(rule, call, outcome).Inc() }
}
