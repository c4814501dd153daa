package decide_test

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"
	"unsafe"

	"github.com/headgate/headgate"
	"github.com/headgate/headgate/policy"
	"github.com/headgate/headgate/server/decide"
	"github.com/headgate/headgate/store/memory"
)

// rules has a rule that binds users, one to be named, and both lists.
func rules(t testing.TB) decide.Policy {
	t.Helper()
	staff := policy.ListEntry{Name: "staff", Match: []policy.Condition{policy.Equal("user", "root")}}
	out := policy.ListEntry{Name: "out", Match: []policy.Condition{policy.Equal("user", "mallory")}}
	set, err := policy.New([]policy.Rule{
		{Limits: headgate.MustRule("users", headgate.Per(10, time.Hour)), Per: []policy.Part{{Entry: "user"}}, Soft: 50},
		{Limits: headgate.MustRule("job", headgate.Per(5, time.Hour)), Direct: true, Reservation: policy.Reservation{For: 7 * time.Second}},
	}, policy.Allowed(staff), policy.Denied(out))
	if err != nil {
		t.Fatal(err)
	}
	return decide.Policy{Set: set, Version: 1}
}

const epoch = 1_763_712_000_000_000

// over decides by the rules, with a memory store whose clock stands.
func over(t testing.TB) *decide.Over {
	p := rules(t)
	return &decide.Over{Rules: func() decide.Policy { return p }, Store: memory.New(memory.Clock(func() int64 { return epoch }))}
}

func by(user string) decide.Request {
	return decide.Request{Ask: decide.Ask{Descriptor: policy.Descriptor{{Name: "user", Value: user}}}, Given: decide.GivenDescriptor}
}

func named(checks ...decide.Named) decide.Request {
	for i := range checks {
		checks[i].Given |= decide.GivenRule | decide.GivenKey
	}
	return decide.Request{Ask: decide.Ask{Named: checks}, Given: decide.GivenChecks}
}

func costing(r decide.Request, cost int64) decide.Request {
	r.Cost = cost
	r.Given |= decide.GivenCost
	return r
}

// TestOutcomes is what doors are told of requests that have a verdict.
func TestOutcomes(t *testing.T) {
	d := over(t)
	tests := []struct {
		name    string
		request decide.Request
		op      headgate.Op
		want    string
	}{
		{"taken", costing(by("anna"), 6), headgate.OpTake, "allowed at 1763712000000000: users soft remaining 4"},
		{"denied", costing(by("anna"), 5), headgate.OpTake, "denied by users, retry after 360000 ms at 1763712000000000: users soft remaining 4"},
		{"peeked", by("anna"), headgate.OpPeek, "allowed at 1763712000000000: users soft remaining 4"},
		{"given back", costing(by("anna"), 2), headgate.OpRefund, "allowed at 1763712000000000: users remaining 6"},
		{"never fits", costing(by("anna"), 11), headgate.OpTake, "denied by users, retry after -1 ms at 1763712000000000: users remaining 6"},
		{"not bound", decide.Request{Given: decide.GivenDescriptor}, headgate.OpTake, "allowed"},
		{"on the deny list", by("mallory"), headgate.OpTake, "listed out, retry after -1 ms"},
		{"refund of one on the deny list", by("mallory"), headgate.OpRefund, "allowed"},
		{"on the allow list", by("root"), headgate.OpTake, "allowed"},
		{"named", named(decide.Named{Rule: "job", Key: "k"}, decide.Named{Rule: "job", Key: "l", Cost: 5, Given: decide.GivenCost}), headgate.OpTake, "allowed at 1763712000000000: job remaining 4: job remaining 0"},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			r := tt.request
			r.Op = tt.op
			if got := said(r.Decide(t.Context(), d)); got != tt.want {
				t.Errorf("%s, want %s", got, tt.want)
			}
			if r.Reset(); r.Descriptor == nil && r.Named == nil && cap(r.Checks) == 0 && len(tt.request.Descriptor) > 0 {
				t.Error("the room is not kept")
			}
		})
	}
}

// said is an outcome in words.
func said(o *decide.Outcome) string {
	var b strings.Builder
	switch by := o.DeniedBy(); {
	case o.Kind != decide.Decided:
		return fmt.Sprintf("kind %d: %s", o.Kind, o.Text())
	case o.Verdict.Allowed:
		b.WriteString("allowed")
	case by != nil:
		fmt.Fprintf(&b, "denied by %s, retry after %d ms", by.Rule.Name(), o.RetryAfterMS())
	case o.Listed != nil:
		fmt.Fprintf(&b, "listed %s, retry after %d ms", o.Listed.Name, o.RetryAfterMS())
	}
	if o.At != 0 {
		fmt.Fprintf(&b, " at %d", o.At)
	}
	for i := range o.Verdict.Decisions {
		row, soft := o.Row(i), ""
		if row.Soft {
			soft = " soft"
		}
		fmt.Fprintf(&b, ": %s%s%s remaining %d", row.Decision.Rule.Name(), soft, row.Source, row.Decision.Remaining)
	}
	return b.String()
}

// failing is a ledger that fails.
type failing struct {
	headgate.Ledger
	err error
}

func (f failing) Take(context.Context, headgate.Op, []headgate.Check, []headgate.Decision) ([]headgate.Decision, error) {
	return nil, f.err
}

// TestFailures: each way of a store not to decide is a kind, and its text names nothing of
// the store's.
func TestFailures(t *testing.T) {
	secret := "redis-7.internal"
	for _, tt := range []struct {
		err  error
		kind decide.Kind
		text string
	}{
		{fmt.Errorf("%w: dial %s", headgate.ErrUnavailable, secret), decide.Unavailable, "the store did not answer in time; whether the request was charged is not known"},
		{fmt.Errorf("%w: %w: %s", headgate.ErrUnavailable, headgate.ErrFull, secret), decide.Unavailable, "the store has no room left to remember the request by an id; nothing was charged"},
		{fmt.Errorf("%w: %w: %s", headgate.ErrUnavailable, headgate.ErrDamaged, secret), decide.Unavailable, "a counter of the request is damaged in the store; nothing was charged, and a reset of the counter mends it"},
		{errors.New(secret), decide.Unavailable, "the store did not answer in time; whether the request was charged is not known"},
		{nil, decide.Unavailable, "the store did not answer in time; whether the request was charged is not known"},
		{&headgate.ConflictError{}, decide.Conflict, "the id is that of another request; give each its own"},
		{&headgate.ConflictError{Units: []int64{2}}, decide.Conflict, "the reservation is settled already, at other units than [2]"},
		{fmt.Errorf("%w at %s", headgate.ErrConflict, secret), decide.Conflict, "the id is that of another request, or the reservation was settled at another cost; nothing was charged"},
		{headgate.ErrNoReservation, decide.NoReservation, "there is no such reservation: it has expired, or there never was one; nothing was changed"},
		{errors.ErrUnsupported, decide.Unsupported, "the store does not remember requests by an id"},
		{headgate.Invalid("request", "checks", "it has too many"), decide.Refused, "it has too many"},
	} {
		r, d := by("anna"), over(t)
		d.Store = failing{err: tt.err}
		o := r.Decide(t.Context(), d)
		if o.Kind != tt.kind || o.Text() != tt.text || tt.err != nil && !errors.Is(o.Err, tt.err) {
			t.Errorf("%v: kind %d, %q, %v; want kind %d, %q", tt.err, o.Kind, o.Text(), o.Err, tt.kind, tt.text)
		}
		gone, leave := context.WithCancel(t.Context())
		leave()
		if o := r.Decide(gone, d); o.Kind != decide.Gone {
			t.Errorf("%v: kind %d of a caller that is gone", tt.err, o.Kind)
		}
	}
}

// TestFaults: every mistake is found at once, each at its place.
func TestFaults(t *testing.T) {
	long := strings.Repeat("x", headgate.MaxKey+1)
	for _, tt := range []struct {
		name    string
		request decide.Request
		kind    decide.FaultKind
		want    string
	}{
		{"neither", decide.Request{}, decide.OutOfRange, "descriptor: is missing; send a descriptor or checks"},
		{"cost", costing(by("anna"), 0), decide.OutOfRange, "cost: is 0, must be 1 to 9007199254740991"},
		{"unknown rule", named(decide.Named{Rule: "jobs", Key: "k"}), decide.UnknownRule, `checks[0].rule: there is no rule "jobs"; there are users, job`},
		{
			"both kinds", named(decide.Named{Rule: "jobs", Key: "k"}, decide.Named{Rule: "job", Key: long, Cost: -1, Given: decide.GivenCost}), decide.OutOfRange,
			`checks[1].cost: is -1, must be 1 to 9007199254740991; checks[0].rule: there is no rule "jobs"; there are users, job; checks[1].key: the key has 1025 bytes, must have at most 1024`,
		},
		{
			"the same twice", named(decide.Named{Rule: "job", Key: "k"}, decide.Named{Rule: "job", Key: "k"}), decide.OutOfRange,
			`checks: check 2 repeats the rule "job" and the key of check 1; add up their costs instead`,
		},
		{
			"entries",
			decide.Request{Ask: decide.Ask{Descriptor: policy.Descriptor{{Value: "v"}, {Name: "a", Value: strings.Repeat("v", policy.MaxValue+1)}}}, Given: decide.GivenDescriptor, Beyond: 31},
			decide.OutOfRange,
			"descriptor: has 33 entries, may have 32; descriptor: the name has 0 bytes, must have 1 to 64; descriptor.a: has 8193 bytes, may have 8192",
		},
		{"a lifetime alone", decide.Request{Given: decide.GivenDescriptor | decide.GivenLifetime, LifetimeMS: 1}, decide.OutOfRange, "lifetime_ms: goes with an id"},
		{"not read", decide.Request{Faults: decide.Faults{{Kind: decide.Malformed, Place: decide.Place{Name: "x"}, Text: "is not a field"}}}, decide.Malformed, "x: is not a field"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			r := tt.request
			o := r.Decide(t.Context(), over(t))
			var got []string
			for _, f := range r.Faults {
				got = append(got, f.Place.String()+": "+f.Text)
			}
			if all := strings.Join(got, "; "); o.Kind != decide.Faulty || all != tt.want || r.Faults.Kind() != tt.kind {
				t.Errorf("kind %d, faults of kind %d: %s\nwant %s", o.Kind, r.Faults.Kind(), all, tt.want)
			}
		})
	}
}

// TestReserveAndSettle goes the whole way of a reservation.
func TestReserveAndSettle(t *testing.T) {
	d := over(t)
	r := named(decide.Named{Rule: "job", Key: "k", Cost: 4, Given: decide.GivenCost})
	r.Reserve, r.ID = true, "a"
	r.Given |= decide.GivenID
	o := r.Decide(t.Context(), d)
	if said(o) != "allowed at 1763712000000000: job remaining 1" || o.Reservation != "a" || o.ExpiresInMS() != 7000 {
		t.Fatalf("%s, %q for %d ms", said(o), o.Reservation, o.ExpiresInMS())
	}
	for _, tt := range []struct {
		to   decide.Settlement
		want string
	}{
		{decide.Settlement{Reservation: "a"}, "kind 1: the request has mistakes"},
		{decide.Settlement{Reservation: "a", Status: 99, Given: decide.GivenStatus}, "kind 1: the request has mistakes"},
		{decide.Settlement{Reservation: "b", Given: decide.GivenCost}, "kind 4: there is no such reservation: it has expired, or there never was one; nothing was changed"},
		{decide.Settlement{Reservation: "a", Cost: 2, Given: decide.GivenCost}, "allowed at 1763712000000000: job remaining 3"},
		{decide.Settlement{Reservation: "a", Cost: 3, Given: decide.GivenCost}, "kind 3: the reservation is settled already, at other units than [3]"},
	} {
		r.Reset()
		if got := said(r.Settle(t.Context(), d, tt.to)); got != tt.want {
			t.Errorf("%+v: %s, want %s", tt.to, got, tt.want)
		}
	}
}

// TestBorrowed: what a store may remember does not keep a whole batch of requests alive.
func TestBorrowed(t *testing.T) {
	batch := strings.Repeat("job k id ", 1000)
	within := func(s string) bool {
		at, from := uintptr(unsafe.Pointer(unsafe.StringData(s))), uintptr(unsafe.Pointer(unsafe.StringData(batch)))
		return at >= from && at < from+uintptr(len(batch))
	}
	for _, remembered := range []bool{false, true} {
		r := named(decide.Named{Rule: batch[:3], Key: batch[4:5]})
		r.Borrowed = true
		if remembered {
			r.ID = batch[6:8]
			r.Given |= decide.GivenID
		}
		if o := r.Decide(t.Context(), over(t)); o.Kind != decide.Decided || within(r.Checks[0].Key) == remembered {
			t.Errorf("remembered %t: kind %d, the key is a part of the batch: %t", remembered, o.Kind, within(r.Checks[0].Key))
		}
	}
}
