package decide

import (
	"context"
	"errors"
	"time"

	"github.com/headgate/headgate"
	"github.com/headgate/headgate/policy"
	"github.com/headgate/headgate/store"
)

// Kind is what has become of a request. Each door has an answer of its protocol for
// each kind.
type Kind uint8

const (
	// Decided is a request with a verdict, be it a denial.
	Decided Kind = iota
	// Faulty is a request with mistakes; see [Request.Faults].
	Faulty
	// Refused is a request that the store cannot take as it is; see [Outcome.Invalid].
	Refused
	// Conflict is an id that belongs to another request, or a reservation that was
	// settled at another cost.
	Conflict
	// NoReservation is a reservation that has expired or never was.
	NoReservation
	// Unsupported is a store that does not remember requests by an id.
	Unsupported
	// Unavailable is a store that did not answer: whether the request was charged is not
	// known. Or it has no room, or cannot read a counter; see [Outcome.Text].
	Unavailable
	// Gone is a caller that does not wait for the answer any more.
	Gone
	// NotHeld is a permit that has ended, or that its holder has given back.
	NotHeld
	// Revoked is a permit that somebody has revoked.
	Revoked
	// OtherCost is a holder that has a permit, or a place in line, at another cost.
	OtherCost
	// NoPermits is a store that keeps no permits.
	NoPermits
)

// kindTexts are what callers are told where there is no verdict. The error of a store is
// for the log of whoever runs the server: it may name addresses that are no caller's
// business.
var kindTexts = [...]string{
	Decided:       "",
	Faulty:        "the request has mistakes",
	Refused:       "the request cannot be taken as it is",
	Conflict:      "the id is that of another request, or the reservation was settled at another cost; nothing was charged",
	NoReservation: "there is no such reservation: it has expired, or there never was one; nothing was changed",
	Unsupported:   "the store does not remember requests by an id",
	Unavailable:   "the store did not answer in time; whether the request was charged is not known",
	Gone:          "the caller is gone",
	NotHeld:       "the holder has no such permit: it has ended, or was released",
	Revoked:       "the permit was revoked",
	OtherCost:     "the holder has a permit, or a place in line, at another cost; give each permit a holder of its own",
	NoPermits:     "the server's store keeps no permits",
}

// ComeBack is when a caller may try again after the store did not answer. The store may
// be back at once or much later; nobody knows.
const ComeBack = time.Second

// Outcome is what has become of a request: what a door tells its caller. Everything that
// callers of all doors are told stands here and in [Row].
type Outcome struct {
	Kind Kind
	// Verdict is that of a Decided request.
	Verdict headgate.Verdict
	// Listed is the entry of the policy's deny list that turned the request away, or nil.
	Listed *policy.ListEntry
	// Unenforced are the rules that bound what is in progress and bind the request; see
	// [Ask].
	Unenforced []string
	// At is when the request was decided, on the store's clock, in microseconds since
	// 1970; zero if no store was asked.
	At int64
	// Reservation is the id by which the request is to be settled, or "", and ExpiresIn
	// is how long that can be done.
	Reservation string
	ExpiresIn   time.Duration
	// Invalid is what the store says of a Refused request.
	Invalid *headgate.InvalidError
	// TooLarge has the numbers of a call about permits that is Faulty because its cost
	// exceeds the limit.
	TooLarge *store.TooLargeError
	// Err is the error of a request that was not decided, for the log.
	Err error

	policy  *Policy // that the request was decided by
	permits bool    // it was a call about permits
}

// unanswered is what callers are told of a call about permits without an answer.
const unanswered = "the store did not answer in time; repeat the call with the same holder, which takes no second permit"

// Row is what callers are told of one limit that bound the request.
type Row struct {
	// Decision is the limit's.
	Decision *headgate.Decision
	// Soft says that the limit warns: the rest is below what the rule's soft says.
	Soft bool
	// Source is who decided, or "" for the store.
	Source string
	// The times are those of the decision in milliseconds; see [Millis].
	RetryAfterMS, ResetAfterMS int64
}

// Row returns what is told of the i-th of the verdict's decisions.
func (o *Outcome) Row(i int) Row {
	d := &o.Verdict.Decisions[i]
	row := Row{Decision: d, Soft: o.policy.Soft(d), RetryAfterMS: Millis(d.RetryAfter), ResetAfterMS: Millis(d.ResetAfter)}
	if d.Source != headgate.SourceStore {
		row.Source = d.Source.String()
	}
	return row
}

// DeniedBy is the decision that denied the request, or nil: if the request was admitted,
// or turned away by an entry of a list.
func (o *Outcome) DeniedBy() *headgate.Decision {
	if o.Verdict.Allowed || o.Listed != nil {
		return nil
	}
	return o.Verdict.Deciding()
}

// RetryAfterMS is how long to wait before the request fits, in milliseconds, rounded up;
// see [Millis].
func (o *Outcome) RetryAfterMS() int64 { return Millis(o.Verdict.RetryAfter) }

// DelayMS is how long to hold the request, in milliseconds, rounded up.
func (o *Outcome) DelayMS() int64 { return Millis(o.Verdict.Delay) }

// ExpiresInMS is how long the reservation can be settled, in milliseconds, rounded down:
// whoever settles by then is not too late.
func (o *Outcome) ExpiresInMS() int64 { return o.ExpiresIn.Milliseconds() }

// Text says why there is no verdict, in a sentence for the caller.
func (o *Outcome) Text() string {
	var conflict *headgate.ConflictError
	switch {
	case o.Kind == Conflict && errors.As(o.Err, &conflict):
		return conflict.Reason()
	case o.Kind == Unavailable && o.permits:
		return unanswered
	case o.Kind == Refused:
		return o.Invalid.Problems.String()
	case o.Kind == Unavailable && errors.Is(o.Err, headgate.ErrFull):
		return "the store has no room left to remember the request by an id; nothing was charged"
	case o.Kind == Unavailable && errors.Is(o.Err, headgate.ErrDamaged):
		return "a counter of the request is damaged in the store; nothing was charged, and a reset of the counter mends it"
	}
	return kindTexts[o.Kind]
}

// Fail is the outcome of a request whose deciding ended with err; see [Outcome.Kind].
func Fail(ctx context.Context, err error) *Outcome {
	o := new(Outcome)
	o.fail(ctx, err)
	return o
}

// begin forgets an outcome before.
func (o *Outcome) begin(p *Policy) {
	*o = Outcome{}
	o.policy = p
}

func (o *Outcome) fail(ctx context.Context, err error) {
	o.Err = err
	switch {
	case ctx.Err() != nil:
		o.Kind = Gone
	case errors.As(err, &o.Invalid):
		o.Kind = Refused
	case errors.Is(err, headgate.ErrConflict):
		o.Kind = Conflict
	case errors.Is(err, headgate.ErrNoReservation):
		o.Kind = NoReservation
	case errors.Is(err, errors.ErrUnsupported):
		o.Kind = Unsupported
	case errors.Is(err, store.ErrRevoked):
		o.Kind = Revoked
	case errors.Is(err, store.ErrNotHeld):
		o.Kind = NotHeld
	case errors.Is(err, store.ErrOtherCost):
		o.Kind = OtherCost
	default:
		o.Kind = Unavailable
	}
}

func (o *Outcome) decide(decisions []headgate.Decision) {
	o.Verdict = headgate.NewVerdict(decisions)
	if len(decisions) > 0 {
		o.At = int64(decisions[0].At)
	}
}

func (o *Outcome) reserved(made *headgate.Reservation) {
	if o.Reservation = made.ID; made.ID != "" {
		o.ExpiresIn = time.Duration(int64(made.Expires)-o.At) * time.Microsecond
	}
}

// Millis is d in milliseconds, rounded up so that waiting that long is enough. Never
// stays -1.
func Millis(d time.Duration) int64 { return Ceil(d, time.Millisecond) }

// Ceil is d in whole units, rounded up. Never stays -1.
func Ceil(d, unit time.Duration) int64 {
	if d == headgate.Never {
		return -1
	}
	n := d / unit
	if d%unit > 0 {
		n++
	}
	return int64(n)
}
