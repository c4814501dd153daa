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

// leaveWithin is how long the end of a service waits for permits of other processes'
// store: all requests have ended by then.
const leaveWithin = time.Second

// newKeeper makes what keeps the bounds on what is in progress. The permits are those of
// the store itself: layers around it have none.
func (a *App) newKeeper() *inprogress.Keeper {
	options := inprogress.Options{}
	// A store without permits is refused by the policy that needs them.
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

// leave gives back what is left of permits.
func (a *App) leave() error {
	if a.keeper == nil {
		return nil
	}
	ctx, cancel := context.WithTimeout(context.Background(), leaveWithin)
	defer cancel()
	return a.keeper.Close(ctx)
}

// newPermits makes what gives permits to callers in other processes. The permits are those
// of the store itself, as those of the keeper are.
func (a *App) newPermits(registry *prometheus.Registry) *decide.Permits {
	calls := prometheus.NewCounterVec(prometheus.CounterOpts{
		Name: "headgate_permit_calls_total",
		Help: "Calls about permits, by rule, by call (acquire, renew, release, holders, revoke), and by what became of them.",
	}, []string{"rule", "call", "outcome"})
	registry.MustRegister(calls)
	p := &decide.Permits{
		Rules: a.Policy, Ending: a.ending,
		Audit: func(c *decide.PermitCall, answered bool) {
			a.audit.Add(insightapi.Entry{Who: c.From, What: "revoke", OK: answered, Detail: "rule " + c.Rule + ", key " + insight.Name{Raw: c.Key}.Text() + ", holder " + insight.Name{Raw: c.Holder}.Text()})
		},
		Told: func(rule, call, outcome string) { calls.WithLabelValues(rule, call, outcome).Inc() },
	}
	// Callers are told of a store without permits.
	p.Store, _ = store.PermitsOf(a.store.Store)
	// What is written was found right with the settings.
	p.OnError, _ = parseOnError(a.settings.OnStoreError)
	return p
}
