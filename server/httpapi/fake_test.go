package httpapi

import (
	"context"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"os"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/headgate/headgate"
	"github.com/headgate/headgate/policy"
	"github.com/headgate/headgate/server/decide"
	"github.com/headgate/headgate/store"
)

// samplePolicy has a rule of every kind that the API treats differently.
func samplePolicy(t testing.TB) *policy.Set {
	t.Helper()
	set, err := policy.New([]policy.Rule{
		{
			Limits: headgate.MustRule("auth.createToken", headgate.Sliding(20, time.Minute), headgate.Sliding(5, 3*time.Second)),
			Match:  []policy.Condition{policy.Equal("route", "POST /v1/token")},
			Per:    []policy.Part{{Entry: "api_key"}},
		},
		{
			Limits: headgate.MustRule("heavy", headgate.Limit{Algorithm: headgate.LeakyBucket, Count: 10, Period: time.Second, Burst: 500_000_000}),
			Match:  []policy.Condition{policy.Prefix("route", "GET /export/")},
			Cost:   3,
		},
		{Limits: headgate.MustRule(`direct"é`, headgate.PerSecond(2)), Direct: true},
	}, policy.Denied(policy.ListEntry{Name: "scanners", Match: []policy.Condition{policy.Prefix("route", "GET /wp-")}}))
	if err != nil {
		t.Fatal(err)
	}
	return set
}

// fake is a Store that counts and never forgets.
type fake struct {
	set *policy.Set
	err error

	mu     sync.Mutex // Guards used and checks.
	used   map[string]int64
	checks []headgate.Check // of the last call

	terms       headgate.Terms // of the last call
	reservation headgate.Reservation
	units       []int64
}

// fakeNow is the fake's clock, in microseconds.
const fakeNow = 1_763_712_000_000_000

func newFake(t testing.TB) *fake {
	return &fake{set: samplePolicy(t), used: make(map[string]int64)}
}

// TakeOnce, Reserve, Recall and Settle know one reservation, and one that conflicts.
func (f *fake) TakeOnce(ctx context.Context, terms headgate.Terms, checks []headgate.Check, dst []headgate.Decision) ([]headgate.Decision, error) {
	if terms.ID == conflicting {
		return dst, fmt.Errorf("%w: the id is that of another request", headgate.ErrConflict)
	}
	f.terms = terms
	return f.Take(ctx, headgate.OpTake, checks, dst)
}

func (f *fake) Reserve(ctx context.Context, terms headgate.Terms, checks []headgate.Check, dst []headgate.Decision) (headgate.Reservation, []headgate.Decision, error) {
	dst, err := f.TakeOnce(ctx, terms, checks, dst)
	r := headgate.Reservation{ID: reserved, Expires: headgate.Instant(fakeNow + terms.Term().Microseconds()), Checks: append([]headgate.Check(nil), checks...)}
	if err != nil || !headgate.NewVerdict(dst).Allowed {
		return headgate.Reservation{}, dst, err
	}
	f.reservation = r
	return r, dst, nil
}

func (f *fake) Recall(_ context.Context, id string) (headgate.Reservation, error) {
	switch {
	case f.err != nil:
		return headgate.Reservation{}, f.err
	case id != reserved && id != conflicting:
		return headgate.Reservation{}, headgate.ErrNoReservation
	}
	r := f.reservation
	if r.Checks == nil {
		r.Checks = []headgate.Check{{Rule: f.set.Rules()[1].Limits, Cost: 3, Factor: 3}}
	}
	r.ID = id
	return r, nil
}

func (f *fake) Settle(ctx context.Context, r headgate.Reservation, units []int64, dst []headgate.Decision) ([]headgate.Decision, error) {
	f.units = units
	if r.ID == conflicting {
		return dst, fmt.Errorf("%w: the reservation was settled at other units", headgate.ErrConflict)
	}
	return f.Take(ctx, headgate.OpRefund, r.Checks, dst)
}

// The ids that the fake knows.
const (
	reserved    = "R1"
	conflicting = "R2"
)

// over makes a Decider of a store that has a policy.
func over(f interface {
	headgate.Store
	Policy() decide.Policy
},
) decide.Decider {
	return &decide.Over{Rules: f.Policy, Store: f}
}

func (f *fake) Policy() decide.Policy { return decide.Policy{Set: f.set, Version: 1, Hash: "5ec2e7"} }

func (f *fake) Take(_ context.Context, op headgate.Op, checks []headgate.Check, dst []headgate.Decision) ([]headgate.Decision, error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.checks = append([]headgate.Check(nil), checks...)
	if f.err != nil {
		return dst, f.err
	}
	if err := store.Validate(op, checks); err != nil {
		return dst, err
	}
	before := len(dst)
	fits := true
	for i, c := range checks {
		used := f.used[c.Rule.Name()+" "+c.Key]
		limits := c.Rule.Limits()
		for j := range limits {
			d := headgate.Decision{Rule: c.Rule, Limit: &limits[j], Check: i, Allowed: true, At: fakeNow}
			left := limits[j].Capacity() - used
			switch {
			case op == headgate.OpRefund:
				left = min(limits[j].Capacity(), left+c.Units())
			case c.Units() > limits[j].Capacity():
				d.Allowed, d.RetryAfter, fits = false, headgate.Never, false
			case c.Units() > left:
				d.Allowed, d.RetryAfter, fits = false, limits[j].Period/2+time.Microsecond, false
			default:
				left -= c.Units()
				if limits[j].Algorithm == headgate.LeakyBucket {
					d.Delay = 99*time.Millisecond + 1
				}
			}
			d.Remaining = max(0, left)
			d.ResetAfter = limits[j].Period - time.Microsecond
			dst = append(dst, d)
		}
	}
	for _, c := range checks {
		name := c.Rule.Name() + " " + c.Key
		switch {
		case op == headgate.OpTake && fits:
			f.used[name] += c.Units()
		case op == headgate.OpRefund:
			f.used[name] = max(0, f.used[name]-c.Units())
		case op == headgate.OpReset:
			delete(f.used, name)
		}
	}
	if op == headgate.OpReset {
		return dst[:before], nil
	}
	return dst, nil
}

// post sends body to path as JSON.
func post(h http.Handler, path, body string) *httptest.ResponseRecorder {
	r := httptest.NewRequest(http.MethodPost, path, strings.NewReader(body))
	r.Header.Set("Content-Type", "application/json")
	return serve(h, r)
}

func get(h http.Handler, path string) *httptest.ResponseRecorder {
	return serve(h, httptest.NewRequest(http.MethodGet, path, nil))
}

func serve(h http.Handler, r *http.Request) *httptest.ResponseRecorder {
	w := httptest.NewRecorder()
	h.ServeHTTP(w, r)
	return w
}

// broken is a body that fails with an error after its first bytes.
type broken struct{ err error }

func (b broken) Read(p []byte) (int, error) {
	if len(p) == 0 {
		return 0, nil
	}
	p[0] = '{'
	return 1, b.err
}

var errBroken = fmt.Errorf("cut off: %w", io.ErrUnexpectedEOF)

// timeoutError is what a connection says after its deadline.
type timeoutError struct{}

func (timeoutError) Error() string   { return "i/o timeout" }
func (timeoutError) Is(e error) bool { return e == os.ErrDeadlineExceeded }

func notReady(context.Context) error { return headgate.ErrUnavailable }

// withRule returns the set with another rule that is reached by name.
func withRule(t testing.TB, set *policy.Set, name string) *policy.Set {
	t.Helper()
	rules := append([]policy.Rule(nil), set.Rules()...)
	set, err := policy.New(append(rules, policy.Rule{Limits: headgate.MustRule(name, headgate.PerSecond(1)), Direct: true}))
	if err != nil {
		t.Fatal(err)
	}
	return set
}
