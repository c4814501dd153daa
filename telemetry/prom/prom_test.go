package prom_test

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/testutil"

	"github.com/headgate/headgate"
	"github.com/headgate/headgate/store"
	"github.com/headgate/headgate/telemetry/prom"
)

// scripted is a store that answers each limit as the key says: one letter for
// each limit, "y" admits and "s" is a shadow's denial.
type scripted struct{ err error }

func (s scripted) Take(_ context.Context, _ headgate.Op, checks []headgate.Check, dst []headgate.Decision) ([]headgate.Decision, error) {
	if s.err != nil {
		return dst, s.err
	}
	for i, c := range checks {
		limits := c.Rule.Limits()
		for j := range limits {
			dst = append(dst, headgate.Decision{Rule: c.Rule, Limit: &limits[j], Check: i, Allowed: c.Key[j] == 'y', Shadow: c.Key[j] == 's'})
		}
	}
	return dst, nil
}

var login = headgate.MustRule("login", headgate.PerMinute(20), headgate.Per(5, 3*time.Second))

func TestDecisions(t *testing.T) {
	tests := []struct {
		name string
		op   headgate.Op
		key  string
		want string
	}{
		{"charged", headgate.OpTake, "yy", `
headgate_decisions_total{limit="20 per 1m",outcome="allowed",rule="login"} 1
headgate_decisions_total{limit="20 per 1m",outcome="denied",rule="login"} 0
headgate_decisions_total{limit="20 per 1m",outcome="shadow_denied",rule="login"} 0
headgate_decisions_total{limit="20 per 1m",outcome="uncharged",rule="login"} 0
headgate_decisions_total{limit="5 per 3s",outcome="allowed",rule="login"} 1
headgate_decisions_total{limit="5 per 3s",outcome="denied",rule="login"} 0
headgate_decisions_total{limit="5 per 3s",outcome="shadow_denied",rule="login"} 0
headgate_decisions_total{limit="5 per 3s",outcome="uncharged",rule="login"} 0
`},
		{"a shadow denies", headgate.OpTake, "ys", `
headgate_decisions_total{limit="20 per 1m",outcome="allowed",rule="login"} 1
headgate_decisions_total{limit="20 per 1m",outcome="denied",rule="login"} 0
headgate_decisions_total{limit="20 per 1m",outcome="shadow_denied",rule="login"} 0
headgate_decisions_total{limit="20 per 1m",outcome="uncharged",rule="login"} 0
headgate_decisions_total{limit="5 per 3s",outcome="allowed",rule="login"} 0
headgate_decisions_total{limit="5 per 3s",outcome="denied",rule="login"} 0
headgate_decisions_total{limit="5 per 3s",outcome="shadow_denied",rule="login"} 1
headgate_decisions_total{limit="5 per 3s",outcome="uncharged",rule="login"} 0
`},
		{"one limit denies", headgate.OpTake, "yn", `
headgate_decisions_total{limit="20 per 1m",outcome="allowed",rule="login"} 0
headgate_decisions_total{limit="20 per 1m",outcome="denied",rule="login"} 0
headgate_decisions_total{limit="20 per 1m",outcome="shadow_denied",rule="login"} 0
headgate_decisions_total{limit="20 per 1m",outcome="uncharged",rule="login"} 1
headgate_decisions_total{limit="5 per 3s",outcome="allowed",rule="login"} 0
headgate_decisions_total{limit="5 per 3s",outcome="denied",rule="login"} 1
headgate_decisions_total{limit="5 per 3s",outcome="shadow_denied",rule="login"} 0
headgate_decisions_total{limit="5 per 3s",outcome="uncharged",rule="login"} 0
`},
		{"a peek is no decision", headgate.OpPeek, "yn", ""},
		{"a refund is no decision", headgate.OpRefund, "yy", ""},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			reg := prometheus.NewRegistry()
			store := headgate.Observe(scripted{}, recorder(t, reg).Hooks())
			if _, err := store.Take(t.Context(), tt.op, []headgate.Check{{Rule: login, Key: tt.key}}, nil); err != nil {
				t.Fatal(err)
			}
			want := tt.want
			if want != "" {
				want = "# HELP headgate_decisions_total Decisions on requests, one for each limit that bound them. " +
					"Outcome: allowed (charged), denied (by this limit), uncharged (another limit denied), shadow_denied (this limit is on trial and would have denied).\n" +
					"# TYPE headgate_decisions_total counter" + want
			}
			if err := testutil.GatherAndCompare(reg, strings.NewReader(want), "headgate_decisions_total"); err != nil {
				t.Error(err)
			}
			if n := observations(t, reg, tt.op); n != 1 {
				t.Errorf("%d observations for %s, want 1", n, tt.op)
			}
		})
	}
}

func TestErrors(t *testing.T) {
	tests := []struct {
		err    error
		reason string
	}{
		{fmt.Errorf("%w: connection refused", headgate.ErrUnavailable), "unavailable"},
		{context.DeadlineExceeded, "unavailable"},
		{fmt.Errorf("%w: %w", headgate.ErrUnavailable, context.Canceled), "canceled"},
		{store.Validate(headgate.OpTake, nil), "invalid"},
		{errors.New("broken"), "other"},
	}
	for _, tt := range tests {
		reg := prometheus.NewRegistry()
		store := headgate.Observe(scripted{tt.err}, recorder(t, reg).Hooks())
		if _, err := store.Take(t.Context(), headgate.OpTake, nil, nil); err == nil {
			t.Fatalf("%v was lost", tt.err)
		}
		if got := value(t, reg, "headgate_store_errors_total", map[string]string{"op": "take", "reason": tt.reason}); got != 1 {
			t.Errorf("%v: %v errors with reason %q, want 1", tt.err, got, tt.reason)
		}
		if n := observations(t, reg, headgate.OpTake); n != 1 {
			t.Errorf("%v: %d observations, want 1", tt.err, n)
		}
	}
}

// TestManyLimits goes beyond what the recorder remembers, from several
// goroutines: no count may be lost.
func TestManyLimits(t *testing.T) {
	const rules, workers = 5000, 4
	reg := prometheus.NewRegistry()
	store := headgate.Observe(scripted{}, recorder(t, reg).Hooks())
	same := make([]*headgate.Rule, rules) // as many reloads of one policy
	for i := range same {
		same[i] = headgate.MustRule("same", headgate.PerSecond(1))
	}
	var wg sync.WaitGroup
	for range workers {
		wg.Go(func() {
			for _, rule := range same {
				if _, err := store.Take(t.Context(), headgate.OpTake, []headgate.Check{{Rule: rule, Key: "y"}}, nil); err != nil {
					t.Error(err)
				}
			}
		})
	}
	wg.Wait()
	labels := map[string]string{"rule": "same", "limit": "1 per 1s", "outcome": "allowed"}
	if got := value(t, reg, "headgate_decisions_total", labels); got != rules*workers {
		t.Errorf("counted %v decisions, want %d", got, rules*workers)
	}
}

func TestNewTwice(t *testing.T) {
	reg := prometheus.NewRegistry()
	recorder(t, reg)
	if _, err := prom.New(reg); err == nil {
		t.Error("the same registry took the same metrics twice")
	}
}

// TestNoAllocations keeps the recorder off the hot path's heap.
func TestNoAllocations(t *testing.T) {
	hooks := recorder(t, prometheus.NewRegistry()).Hooks()
	limits := login.Limits()
	decisions := []headgate.Decision{{Rule: login, Limit: &limits[0], Allowed: true}, {Rule: login, Limit: &limits[1], Allowed: true}}
	ctx := t.Context()
	decide := func() { hooks.Decided(ctx, headgate.OpTake, nil, decisions, time.Microsecond) }
	decide()
	if n := testing.AllocsPerRun(100, decide); n != 0 {
		t.Errorf("%v allocations for each decision, want 0", n)
	}
}

func recorder(t *testing.T, reg prometheus.Registerer) *prom.Recorder {
	t.Helper()
	r, err := prom.New(reg)
	if err != nil {
		t.Fatal(err)
	}
	return r
}

// value returns what the counter with these labels stands at.
func value(t *testing.T, reg prometheus.Gatherer, name string, labels map[string]string) float64 {
	t.Helper()
	families, err := reg.Gather()
	if err != nil {
		t.Fatal(err)
	}
	for _, f := range families {
		if f.GetName() != name {
			continue
		}
	metrics:
		for _, m := range f.GetMetric() {
			for _, l := range m.GetLabel() {
				if labels[l.GetName()] != l.GetValue() {
					continue metrics
				}
			}
			return m.GetCounter().GetValue()
		}
	}
	return 0
}

func observations(t *testing.T, reg prometheus.Gatherer, op headgate.Op) uint64 {
	t.Helper()
	families, err := reg.Gather()
	if err != nil {
		t.Fatal(err)
	}
	for _, f := range families {
		if f.GetName() != "headgate_store_duration_seconds" {
			continue
		}
		for _, m := range f.GetMetric() {
			if m.GetLabel()[0].GetValue() == op.String() {
				return m.GetHistogram().GetSampleCount()
			}
		}
	}
	return 0
}

// TestSources: who decided is counted, and a node's share as the limit that it is a
// part of, however many nodes there are.
func TestSources(t *testing.T) {
	reg := prometheus.NewRegistry()
	hooks := recorder(t, reg).Hooks()
	other := headgate.MustRule("other", headgate.PerHour(9))
	decided := func(source headgate.Source, shares *headgate.Rule) {
		d := func(r, shares *headgate.Rule, place, check int) headgate.Decision {
			return headgate.Decision{Rule: r, Limit: &shares.Limits()[place], Check: check, Allowed: true, Source: source}
		}
		hooks.Decided(t.Context(), headgate.OpTake, nil, []headgate.Decision{d(other, other, 0, 0), d(login, shares, 0, 1), d(login, shares, 1, 1)}, 0)
	}
	decided(headgate.SourceStore, login)
	decided(headgate.SourceOpen, login)
	decided(headgate.SourceLocal, headgate.MustRule("login", headgate.PerMinute(10), headgate.Per(2, 3*time.Second)))
	decided(headgate.SourceLocal, headgate.MustRule("login", headgate.PerMinute(5), headgate.Per(1, 3*time.Second)))
	if err := testutil.GatherAndCompare(reg, strings.NewReader(`
# HELP headgate_decisions_by_source_total Decisions on requests, one for each limit that bound them, by who decided. Source: store, deny_cache (a denial that was remembered), lease (units taken in advance), async (this process, which tells the store afterwards), local (the store did not answer: this process's share), open (the store did not answer: nobody, the request was let in).
# TYPE headgate_decisions_by_source_total counter
headgate_decisions_by_source_total{source="async"} 0
headgate_decisions_by_source_total{source="deny_cache"} 0
headgate_decisions_by_source_total{source="lease"} 0
headgate_decisions_by_source_total{source="local"} 6
headgate_decisions_by_source_total{source="open"} 3
headgate_decisions_by_source_total{source="store"} 3
# HELP headgate_decisions_total Decisions on requests, one for each limit that bound them. Outcome: allowed (charged), denied (by this limit), uncharged (another limit denied), shadow_denied (this limit is on trial and would have denied).
# TYPE headgate_decisions_total counter
headgate_decisions_total{limit="20 per 1m",outcome="allowed",rule="login"} 4
headgate_decisions_total{limit="20 per 1m",outcome="denied",rule="login"} 0
headgate_decisions_total{limit="20 per 1m",outcome="shadow_denied",rule="login"} 0
headgate_decisions_total{limit="20 per 1m",outcome="uncharged",rule="login"} 0
headgate_decisions_total{limit="5 per 3s",outcome="allowed",rule="login"} 4
headgate_decisions_total{limit="5 per 3s",outcome="denied",rule="login"} 0
headgate_decisions_total{limit="5 per 3s",outcome="shadow_denied",rule="login"} 0
headgate_decisions_total{limit="5 per 3s",outcome="uncharged",rule="login"} 0
headgate_decisions_total{limit="9 per 1h",outcome="allowed",rule="other"} 4
headgate_decisions_total{limit="9 per 1h",outcome="denied",rule="other"} 0
headgate_decisions_total{limit="9 per 1h",outcome="shadow_denied",rule="other"} 0
headgate_decisions_total{limit="9 per 1h",outcome="uncharged",rule="other"} 0
`), "headgate_decisions_total", "headgate_decisions_by_source_total"); err != nil {
		t.Error(err)
	}
}

func BenchmarkDecided(b *testing.B) {
	r, err := prom.New(prometheus.NewRegistry())
	if err != nil {
		b.Fatal(err)
	}
	hooks, limits := r.Hooks(), login.Limits()
	decisions := []headgate.Decision{{Rule: login, Limit: &limits[0], Allowed: true}, {Rule: login, Limit: &limits[1], Allowed: true}}
	b.ReportAllocs()
	for b.Loop() {
		hooks.Decided(b.Context(), headgate.OpTake, nil, decisions, 12*time.Microsecond)
	}
}

// TestKeep: the series of a limit that has gone end, and begin anew at zero if the limit is
// asked about again. The others go on.
func TestKeep(t *testing.T) {
	reg := prometheus.NewRegistry()
	r, err := prom.New(reg)
	if err != nil {
		t.Fatal(err)
	}
	other := headgate.MustRule("other", headgate.PerHour(9))
	store := headgate.Observe(scripted{}, r.Hooks())
	take := func() {
		t.Helper()
		if _, err := store.Take(t.Context(), headgate.OpTake, []headgate.Check{{Rule: login, Key: "yy"}, {Rule: other, Key: "y"}}, nil); err != nil {
			t.Fatal(err)
		}
	}
	series := func(rule, limit string) float64 {
		return value(t, reg, "headgate_decisions_total", map[string]string{"rule": rule, "limit": limit, "outcome": "allowed"})
	}
	take()
	r.Keep(func(rule, limit string) bool { return rule == "login" && limit == "5 per 3s" })
	if n := testutil.CollectAndCount(reg, "headgate_decisions_total"); n != 4 {
		t.Errorf("there are %d series, want the 4 of one limit", n)
	}
	take()
	if kept, back, anew := series("login", "5 per 3s"), series("login", "20 per 1m"), series("other", "9 per 1h"); kept != 2 || back != 1 || anew != 1 {
		t.Errorf("a kept limit has %v, limits that came back have %v and %v; want 2, 1 and 1", kept, back, anew)
	}
}
