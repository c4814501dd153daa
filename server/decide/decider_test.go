package decide_test

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"testing"
	"time"

	"github.com/headgate/headgate"
	"github.com/headgate/headgate/internal/bubbletest"
	"github.com/headgate/headgate/policy"
	"github.com/headgate/headgate/server/decide"
)

// plain is a store that admits, until it fails. It remembers nothing.
type plain struct{ err error }

func (p plain) Take(_ context.Context, _ headgate.Op, checks []headgate.Check, dst []headgate.Decision) ([]headgate.Decision, error) {
	for i, c := range checks {
		limits := c.Rule.Limits()
		dst = append(dst, headgate.Decision{Rule: c.Rule, Limit: &limits[0], Check: i, Allowed: true})
	}
	return dst, p.err
}

// remembers is plain with what a ledger has besides.
type remembers struct{ plain }

func (r remembers) TakeOnce(ctx context.Context, _ headgate.Terms, checks []headgate.Check, dst []headgate.Decision) ([]headgate.Decision, error) {
	return r.Take(ctx, headgate.OpTake, checks, dst)
}

func (r remembers) Reserve(ctx context.Context, terms headgate.Terms, checks []headgate.Check, dst []headgate.Decision) (headgate.Reservation, []headgate.Decision, error) {
	dst, err := r.Take(ctx, headgate.OpTake, checks, dst)
	return headgate.Reservation{ID: terms.ID + "'", Checks: checks}, dst, err
}

func (remembers) Recall(_ context.Context, id string) (headgate.Reservation, error) {
	return headgate.Reservation{ID: id}, nil
}

func (r remembers) Settle(ctx context.Context, made headgate.Reservation, _ []int64, dst []headgate.Decision) ([]headgate.Decision, error) {
	return r.Take(ctx, headgate.OpTake, made.Checks, dst)
}

// TestTold: Decided and Settled are told of everything that is asked.
func TestTold(t *testing.T) {
	limits := headgate.MustRule("api", headgate.PerSecond(1))
	set, err := policy.New([]policy.Rule{{Limits: limits, Match: []policy.Condition{policy.Present("user")}}},
		policy.Denied(policy.ListEntry{Name: "out", Match: []policy.Condition{policy.Equal("user", "mallory")}}))
	if err != nil {
		t.Fatal(err)
	}
	down := errors.New("down")
	for _, failure := range []error{nil, down} {
		var told []string
		d := &decide.Over{
			Rules: func() decide.Policy { return decide.Policy{Set: set, Version: 1} },
			Store: remembers{plain{failure}},
			Decided: func(e decide.Event) {
				told = append(told, fmt.Sprintf("%v, listed %t, reserved %t, id %q, made %q, %d decisions, %v", e.Ask.Op, e.Ask.Denied != nil, e.Ask.Reserve, e.Ask.Terms.ID, e.Ask.Reservation.ID, len(e.Decisions), e.Err))
			},
			Settled: func(r headgate.Reservation, units []int64, err error) {
				told = append(told, fmt.Sprintf("settled %s at %v, %v", r.ID, units, err))
			},
		}
		before := make([]headgate.Decision, 1)
		ask := func(op headgate.Op, user string) *decide.Ask {
			a := &decide.Ask{Op: op, Descriptor: policy.Descriptor{{Name: "user", Value: user}}, Policy: d.Policy()}
			if err := a.Resolve(); err != nil {
				t.Fatal(err)
			}
			return a
		}
		check := func(out []headgate.Decision, err error) {
			t.Helper()
			if len(out) != 2 || !errors.Is(err, failure) {
				t.Errorf("%d decisions, %v", len(out), err)
			}
		}
		check(d.Take(t.Context(), ask(headgate.OpPeek, "anna"), before))
		once, reserve := ask(headgate.OpTake, "anna"), ask(headgate.OpTake, "anna")
		once.Terms.ID, reserve.Terms.ID, reserve.Reserve = "a", "b", true
		check(d.Take(t.Context(), once, before))
		check(d.Take(t.Context(), reserve, before))
		r := reserve.Reservation
		check(d.Settle(t.Context(), r, []int64{3}, before))
		if _, err := d.Take(t.Context(), ask(headgate.OpTake, "mallory"), nil); err != nil {
			t.Error(err)
		}
		if found, err := d.Recall(t.Context(), "c"); err != nil || found.ID != "c" {
			t.Error(found, err)
		}
		want := []string{
			fmt.Sprintf(`peek, listed false, reserved false, id "", made "", 1 decisions, %v`, failure),
			fmt.Sprintf(`take, listed false, reserved false, id "a", made "", 1 decisions, %v`, failure),
			fmt.Sprintf(`take, listed false, reserved true, id "b", made "b'", 1 decisions, %v`, failure),
			fmt.Sprintf(`settled b' at [3], %v`, failure),
			`take, listed true, reserved false, id "", made "", 0 decisions, <nil>`,
		}
		if !slices.Equal(told, want) {
			t.Errorf("told %q, want %q", told, want)
		}
		quiet := &decide.Over{Rules: d.Policy, Store: remembers{plain{failure}}}
		check(quiet.Take(t.Context(), ask(headgate.OpTake, "anna"), before))
		check(quiet.Settle(t.Context(), r, []int64{3}, before))
	}
}

// TestNoLedger: a store that remembers nothing says so, and decides all else.
func TestNoLedger(t *testing.T) {
	set, err := policy.New([]policy.Rule{{Limits: headgate.MustRule("api", headgate.PerSecond(1))}})
	if err != nil {
		t.Fatal(err)
	}
	d := &decide.Over{Rules: func() decide.Policy { return decide.Policy{Set: set} }, Store: plain{}}
	request := decide.Request{Given: decide.GivenDescriptor}
	if out := request.Decide(t.Context(), d); out.Kind != decide.Decided || len(out.Verdict.Decisions) != 1 {
		t.Errorf("%+v", out)
	}
	ask := &request.Ask
	ask.Terms.ID = "a"
	_, once := d.Take(t.Context(), ask, nil)
	ask.Terms, ask.Reserve = headgate.Terms{}, true
	_, reserve := d.Take(t.Context(), ask, nil)
	_, recall := d.Recall(t.Context(), "a")
	_, settle := d.Settle(t.Context(), headgate.Reservation{}, nil, nil)
	for _, err := range []error{once, reserve, recall, settle} {
		if !errors.Is(err, errors.ErrUnsupported) {
			t.Error(err)
		}
	}
	// What nothing binds needs no store.
	_, once = d.Take(t.Context(), &decide.Ask{Terms: headgate.Terms{ID: "a"}}, nil)
	_, reserve = d.Take(t.Context(), &decide.Ask{Reserve: true}, nil)
	if once != nil || reserve != nil {
		t.Error(once, reserve)
	}
}

// TestToldOfParts: Decided is told once of a request of several descriptors, however many calls of
// the store it needs.
func TestToldOfParts(t *testing.T) {
	set, err := policy.New([]policy.Rule{{Limits: headgate.MustRule("api", headgate.PerSecond(1)), Per: []policy.Part{{Entry: "user"}}}})
	if err != nil {
		t.Fatal(err)
	}
	down := errors.New("down")
	for _, failure := range []error{nil, down} {
		var told, calls int
		d := &decide.Over{
			Rules: func() decide.Policy { return decide.Policy{Set: set, Version: 1} }, Store: plain{failure},
			Decided: func(e decide.Event) {
				if told++; len(e.Ask.Parts.List) != 2 || !errors.Is(e.Err, failure) || !e.Ask.Takes() || e.Ask.TurnedAway() {
					t.Errorf("%+v", e)
				}
				e.Ask.Calls(e.Decisions, func(call *decide.Ask, decisions []headgate.Decision) {
					if calls++; len(call.Checks) != 1 || len(decisions) != 1 {
						t.Errorf("%d checks, %d decisions", len(call.Checks), len(decisions))
					}
				})
			},
		}
		r := decide.Request{Ask: decide.Ask{Parts: &decide.Parts{Domain: "d", List: []decide.Part{
			{Op: headgate.OpPeek, Cost: 1, Entries: policy.Descriptor{{Name: "user", Value: "anna"}}},
			{Op: headgate.OpTake, Cost: 1, Entries: policy.Descriptor{{Name: "user", Value: "ben"}}},
		}}}}
		want := 2 // The peek, and what is taken.
		if failure != nil {
			want = 0
		}
		if o := r.Decide(t.Context(), d); !errors.Is(o.Err, failure) || told != 1 || calls != want {
			t.Errorf("%v; told %d times of %d calls", o.Err, told, calls)
		}
	}
}

// TestTook: the hooks of Over are told of each call to the store, and the Ask says how long it
// took. Without a call there is nothing to tell.
func TestTook(t *testing.T) {
	bubbletest.Test(t, func(t *testing.T) {
		set, err := policy.New([]policy.Rule{{Limits: headgate.MustRule("api", headgate.PerSecond(1))}})
		if err != nil {
			t.Fatal(err)
		}
		for _, failure := range []error{nil, errors.New("down")} {
			var told []string
			d := &decide.Over{
				Rules: func() decide.Policy { return decide.Policy{Set: set} },
				Store: slow{remembers{plain{failure}}},
				Hooks: headgate.Hooks{
					Decided: func(_ context.Context, op headgate.Op, checks []headgate.Check, made []headgate.Decision, took time.Duration) {
						told = append(told, fmt.Sprint(op, len(checks), len(made), took))
					},
					Failed: func(_ context.Context, op headgate.Op, checks []headgate.Check, err error, took time.Duration) {
						told = append(told, fmt.Sprint(op, len(checks), err, took))
					},
				},
			}
			ask := &decide.Ask{Op: headgate.OpPeek, Policy: d.Policy()}
			if err := ask.Resolve(); err != nil {
				t.Fatal(err)
			}
			before := make([]headgate.Decision, 1)
			if _, err := d.Take(t.Context(), ask, before); !errors.Is(err, failure) || ask.Took != time.Second {
				t.Error(ask.Took, err)
			}
			ask.Op, ask.Terms.ID = headgate.OpTake, "a"
			if _, err := d.Take(t.Context(), ask, before); !errors.Is(err, failure) || ask.Took != 2*time.Second {
				t.Error(ask.Took, err)
			}
			ask.Reserve = true
			if _, err := d.Take(t.Context(), ask, before); !errors.Is(err, failure) || ask.Took != 3*time.Second {
				t.Error(ask.Took, err)
			}
			ask.Checks = nil
			if _, err := d.Take(t.Context(), ask, before); err != nil || ask.Took != 0 {
				t.Error(ask.Took, err)
			}
			want := []string{"peek 1 1 1s", "take 1 1 2s", "take 1 1 3s"}
			if failure != nil {
				want = []string{"peek 1 down 1s", "take 1 down 2s", "take 1 down 3s"}
			}
			if !slices.Equal(told, want) {
				t.Errorf("told %q, want %q", told, want)
			}
		}
	})
}

// slow takes its time.
type slow struct{ remembers }

func (s slow) Take(ctx context.Context, op headgate.Op, checks []headgate.Check, dst []headgate.Decision) ([]headgate.Decision, error) {
	time.Sleep(time.Second)
	return s.remembers.Take(ctx, op, checks, dst)
}

func (s slow) TakeOnce(ctx context.Context, terms headgate.Terms, checks []headgate.Check, dst []headgate.Decision) ([]headgate.Decision, error) {
	time.Sleep(2 * time.Second)
	return s.remembers.TakeOnce(ctx, terms, checks, dst)
}

func (s slow) Reserve(ctx context.Context, terms headgate.Terms, checks []headgate.Check, dst []headgate.Decision) (headgate.Reservation, []headgate.Decision, error) {
	time.Sleep(3 * time.Second)
	return s.remembers.Reserve(ctx, terms, checks, dst)
}
