package joblimit

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/headgate/headgate"
	"github.com/headgate/headgate/flow"
	"github.com/headgate/headgate/policy"
	"github.com/headgate/headgate/policy/inprogress"
	"github.com/headgate/headgate/store/memory"
)

// limited is a rule of so many units a year, so that none comes back while a test lasts.
func limited(name string, count int64, per ...string) policy.Rule {
	r := policy.Rule{Limits: headgate.MustRule(name, headgate.Sliding(count, headgate.MaxPeriod))}
	for _, entry := range per {
		r.Per = append(r.Per, policy.Part{Entry: entry})
	}
	return r
}

func source(t testing.TB, rules []policy.Rule, opts ...policy.Option) *policy.Source {
	t.Helper()
	set, err := policy.New(rules, opts...)
	if err != nil {
		t.Fatal(err)
	}
	return policy.NewSource(set)
}

func newLimiter(t testing.TB, rules *policy.Source) *Limiter {
	t.Helper()
	l, err := New(Config{Name: "jobs", Store: memory.New(), Rules: rules})
	if err != nil {
		t.Fatal(err)
	}
	return l
}

// of is a job of a tenant.
func of(tenant string) Job {
	return Job{Entries: policy.Descriptor{{Name: "tenant", Value: tenant}, {Name: "queue", Value: "mails"}}}
}

// TestJobs: all rules that bind a job are charged, or none is.
func TestJobs(t *testing.T) {
	t.Parallel()
	l := newLimiter(t, source(t, []policy.Rule{limited("tenant", 2, "tenant"), limited("queue", 3, "queue")},
		policy.Denied(policy.ListEntry{Name: "gone", Match: []policy.Condition{policy.Equal("tenant", "gone")}}),
		policy.Allowed(policy.ListEntry{Name: "ours", Match: []policy.Condition{policy.Equal("tenant", "ours")}})))
	for i, c := range []struct {
		job  Job
		want string // the rule that denies
	}{
		{of("a"), ""},
		{of("a"), ""},
		{of("a"), "tenant"},
		{of("b"), ""},
		{of("b"), "queue"},
		{of("gone"), `the entry "gone" of the deny list has the job`},
		{of("ours"), ""},
		{Job{}, ""},
		{Job{Entries: of("c").Entries, Cost: 4}, "never"},
	} {
		_, err := l.Acquire(t.Context(), c.job)
		rejection, _ := errors.AsType[*flow.Rejection](err)
		denied, _ := errors.AsType[*headgate.DeniedError](err)
		switch {
		case c.want == "" && err != nil, c.want != "" && (rejection == nil || denied == nil):
			t.Errorf("job %d: %v", i, err)
		case c.want == "":
		case c.want == "never" || strings.Contains(c.want, "list"):
			if rejection.Retry || rejection.RetryAfter != headgate.Never || c.want != "never" && denied.Reason != c.want {
				t.Errorf("job %d: %+v, want one that never fits", i, rejection)
			}
		case denied.Decision.Rule.Name() != c.want || !rejection.Retry || rejection.RetryAfter <= 0 || rejection.Reason != flow.ReasonRate || rejection.Gate != "jobs":
			t.Errorf("job %d: %+v, want a denial by %s", i, rejection, c.want)
		}
	}
}

// TestOutcomes: a job that never began is charged nothing, and rules by the outcome are kept to.
func TestOutcomes(t *testing.T) {
	t.Parallel()
	failures := limited("failures", 10, "tenant")
	failures.ChargeOn = policy.Statuses{{First: 500, Last: 599}}
	successes := limited("successes", 10, "tenant")
	successes.GiveBackOn = policy.Statuses{{First: 500, Last: 599}}
	rules := source(t, []policy.Rule{failures, successes, limited("all", 10, "tenant")})
	for outcome, want := range map[flow.Outcome]string{
		flow.Unused: "10 10 10", flow.Success: "10 9 9", flow.Overload: "9 10 9", flow.Ignore: "9 9 9",
	} {
		l := newLimiter(t, rules)
		permit, err := l.Acquire(t.Context(), of("a"))
		if err != nil {
			t.Fatal(err)
		}
		if !permit.Done(outcome) || permit.Done(outcome) {
			t.Error("a permit is given back once")
		}
		var left []string
		for _, r := range rules.Set().Rules() {
			d, err := headgate.New(l.config.Store, r.Limits).Peek(t.Context(), "a", 1)
			if err != nil {
				t.Fatal(err)
			}
			left = append(left, fmt.Sprint(d.Remaining))
		}
		if got := strings.Join(left, " "); got != want {
			t.Errorf("%v: %s are left, want %s", outcome, got, want)
		}
	}
}

// broken is a store that panics.
type broken struct{ headgate.Store }

func (broken) Take(context.Context, headgate.Op, []headgate.Check, []headgate.Decision) ([]headgate.Decision, error) {
	panic("a defect")
}

// TestPanic: a job whose store panics holds no permit afterwards.
func TestPanic(t *testing.T) {
	t.Parallel()
	rules := []policy.Rule{limited("rate", 2), {Name: "one", Per: []policy.Part{{Entry: "tenant"}}, InProgress: &policy.InProgress{Limit: 1}}}
	l := newLimiter(t, source(t, rules))
	l.config.Store = broken{l.config.Store}
	func() {
		defer func() {
			if recover() == nil {
				t.Error("the store did not panic")
			}
		}()
		_, _ = l.TryAcquire(t.Context(), of("a"))
	}()
	if n := l.config.Keeper.InUse("one", "a"); n != 0 {
		t.Errorf("%d are in progress", n)
	}
}

// TestInProgress: what is in progress is bounded, and a job that finds no room is charged nothing.
func TestInProgress(t *testing.T) {
	t.Parallel()
	rules := []policy.Rule{limited("rate", 2), {Name: "one", Per: []policy.Part{{Entry: "tenant"}}, InProgress: &policy.InProgress{Limit: 1, Wait: time.Minute}}}
	l := newLimiter(t, source(t, rules))
	first, err := l.Acquire(t.Context(), of("a"))
	if err != nil {
		t.Fatal(err)
	}
	_, err = l.TryAcquire(t.Context(), of("a"))
	if refusal, ok := errors.AsType[*inprogress.Refusal](err); !ok || refusal.Rejection.Reason != flow.ReasonBusy {
		t.Fatalf("a second one: %v", err)
	}
	if _, err := l.TryAcquire(first.Context(t.Context()), of("b")); err != nil {
		t.Errorf("of another tenant: %v", err)
	}
	// The rate is used up now. A job that it denies holds no permit.
	if _, err := l.TryAcquire(t.Context(), of("c")); !errors.Is(err, headgate.ErrDenied) || l.config.Keeper.InUse("one", "c") != 0 {
		t.Errorf("beyond the rate: %v, and %d are in progress", err, l.config.Keeper.InUse("one", "c"))
	}
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if _, err := l.Acquire(ctx, of("a")); !errors.Is(err, context.Canceled) {
		t.Errorf("a caller that is gone: %v", err)
	}
	first.Done(flow.Unused)
	if _, err := l.Acquire(t.Context(), of("a")); err != nil {
		t.Errorf("after the first has ended: %v", err)
	}
}

// TestHeld: Acquire holds a job for a leaky bucket, and TryAcquire refuses what would be held.
func TestHeld(t *testing.T) {
	t.Parallel()
	slow := policy.Rule{Limits: headgate.MustRule("slow", headgate.Limit{Algorithm: headgate.LeakyBucket, Count: 1, Period: time.Millisecond, Burst: 1_000_000})}
	l := newLimiter(t, source(t, []policy.Rule{slow}))
	big := Job{Cost: 100_000}
	if _, err := l.Acquire(t.Context(), big); err != nil {
		t.Fatal(err)
	}
	_, err := l.TryAcquire(t.Context(), Job{})
	if rejection, ok := errors.AsType[*flow.Rejection](err); !ok || !rejection.Retry || rejection.RetryAfter <= 0 {
		t.Errorf("what would be held: %v", err)
	}
	if l, err = New(Config{Name: "jobs", Store: l.config.Store, Rules: l.config.Rules, MaxDelay: time.Nanosecond}); err != nil {
		t.Fatal(err)
	}
	if _, err := l.Acquire(t.Context(), Job{}); !errors.Is(err, headgate.ErrDenied) {
		t.Errorf("what would be held for longer than MaxDelay: %v", err)
	}
}

// TestGate: a gate decides on requests by the entries that the function finds.
func TestGate(t *testing.T) {
	t.Parallel()
	rules := source(t, []policy.Rule{limited("tenant", 2, "tenant")})
	g := newLimiter(t, rules).Gate(func(r flow.Request) policy.Descriptor { return of(r.Tenant).Entries })
	if _, err := g.Acquire(t.Context(), flow.Request{Tenant: "a", Cost: 2}); err != nil {
		t.Fatal(err)
	}
	if _, err := g.TryAcquire(t.Context(), flow.Request{Tenant: "a"}); !errors.Is(err, headgate.ErrDenied) {
		t.Errorf("beyond the limit: %v", err)
	}
	if _, err := g.TryAcquire(t.Context(), flow.Request{Tenant: "b", Cost: -1}); !errors.Is(err, headgate.ErrInvalid) {
		t.Errorf("a cost below zero: %v", err)
	}
	set, err := policy.New([]policy.Rule{limited("tenant", 3, "tenant")})
	if err != nil {
		t.Fatal(err)
	}
	if err := rules.Swap(set); err != nil {
		t.Fatal(err)
	}
	if _, err := g.TryAcquire(t.Context(), flow.Request{Tenant: "a"}); err != nil {
		t.Errorf("after the limit was raised: %v", err)
	}
}

// lost is a store that does not answer.
type lost struct{ headgate.Store }

func (lost) Take(context.Context, headgate.Op, []headgate.Check, []headgate.Decision) ([]headgate.Decision, error) {
	return nil, headgate.ErrUnavailable
}

func TestMistakes(t *testing.T) {
	t.Parallel()
	_, err := New(Config{MaxDelay: -1})
	var invalid *headgate.InvalidError
	if !errors.As(err, &invalid) || len(invalid.Problems) != 4 {
		t.Errorf("an empty config: %v", err)
	}
	rules := source(t, []policy.Rule{limited("all", 1)})
	shared := source(t, []policy.Rule{{Name: "s", InProgress: &policy.InProgress{Limit: 1, Shared: true}}})
	if _, err := New(Config{Name: "x", Store: memory.New(), Rules: shared}); !errors.As(err, &invalid) {
		t.Errorf("shared permits without a keeper that has them: %v", err)
	}
	l, err := New(Config{Name: "x", Store: lost{}, Rules: rules})
	if err != nil {
		t.Fatal(err)
	}
	_, err = l.Acquire(t.Context(), Job{})
	if _, refused := errors.AsType[*flow.Rejection](err); refused || !errors.Is(err, headgate.ErrUnavailable) {
		t.Errorf("without the store: %v", err)
	}
	if _, err := l.Acquire(t.Context(), Job{Cost: -1}); !errors.Is(err, headgate.ErrInvalid) {
		t.Errorf("a cost below zero: %v", err)
	}
}
