package decide

import (
	"context"
	"errors"
	"time"

	"github.com/headgate/headgate"
	"github.com/headgate/headgate/policy"
	"github.com/headgate/headgate/store"
)

// Kind says what happened to a request. Each door has an answer in its protocol for each kind.
type Kind uint8

const (
	// Decided means that there is a verdict, which may be a denial.
	Decided Kind = iota
	// Faulty means that the request has mistakes; see [Request.Faults].
	Faulty
	// Refused means that the store cannot take the request as it is; see [Outcome.Invalid].
	Refused
	// Conflict means that the id belongs to another request, or the reservation was settled at
	// another cost.
	Conflict
	// NoReservation means that the reservation has expired or never existed.
	NoReservation
	// Unsupported means that the store does not remember requests by an id.
	Unsupported
	// Unavailable means that the store did not answer, so it is not known whether the request was
	// charged. Or the store has no room, or cannot read a counter; see [Outcome.Text].
	Unavailable
	// Gone means that the caller no longer waits for the answer.
	Gone
	// NotHeld means that the permit has ended, or its holder has given it back.
	NotHeld
	// Revoked means that the permit was revoked.
	Revoked
	// OtherCost means that the holder has a permit, or a place in line, at another cost.
	OtherCost
	// NoPermits means that the store keeps no permits.
	NoPermits
)

// kindTexts are the texts for callers if there is no verdict. The error of a store is only for the
// server's log, because it may name addresses that callers should not see.
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

// ComeBack is the time after which a caller may try again if the store did not answer. The store
// may be back at once or much later.
const ComeBack = time.Second

// Outcome is what a door tells its caller about a request. The answers of all doors are made only
// from it and from [Row].
type Outcome struct {
	Kind Kind
	// Verdict is the verdict on a Decided request.
	Verdict headgate.Verdict
	// Listed is the entry of the policy's deny list that turned the request away, or nil.
	Listed *policy.ListEntry
	// Unenforced are the rules whose bounds on what is in progress bind the request; see [Ask].
	Unenforced []string
	// At is when the request was decided, on the store's clock, in microseconds since
	// 1970; zero if no store was asked.
	At int64
	// Reservation is the id by which the request can be settled, or "". ExpiresIn is how long it
	// can be settled.
	Reservation string
	ExpiresIn   time.Duration
	// Invalid is the store's error for a Refused request.
	Invalid *headgate.InvalidError
	// TooLarge has the numbers of a call about permits that is Faulty because its cost exceeds the
	// limit.
	TooLarge *store.TooLargeError
	// Err is the error of a request that was not decided, for the log.
	Err error

	policy  *Policy // the policy that decided the request
	permits bool    // It was a call about permits.
}

// unanswered is the text for a call about permits to which the store did not answer.
const unanswered = "the store did not answer in time; repeat the call with the same holder, which takes no second permit"

// Row is what callers are told about one limit that bound the request.
type Row struct {
	// Decision is the decision about the limit.
	Decision *headgate.Decision
	// Soft says that the used part of the limit has reached the rule's soft percentage, which is a
	// warning.
	Soft bool
	// Source says who decided, or "" for the store.
	Source string
	// The times are those of the decision in milliseconds; see [Millis].
	RetryAfterMS, ResetAfterMS int64
}

// Row returns the row of the verdict's i-th decision.
func (o *Outcome) Row(i int) Row {
	d := &o.Verdict.Decisions[i]
	row := Row{Decision: d, Soft: o.policy.Soft(d), RetryAfterMS: Millis(d.RetryAfter), ResetAfterMS: Millis(d.ResetAfter)}
	if d.Source != headgate.SourceStore {
		row.Source = d.Source.String()
	}
	return row
}

// DeniedBy returns the decision that denied the request. It is nil if the request was admitted, or
// turned away by an entry of a list.
func (o *Outcome) DeniedBy() *headgate.Decision {
	if o.Verdict.Allowed || o.Listed != nil {
		return nil
	}
	return o.Verdict.Deciding()
}

// RetryAfterMS returns how long to wait until the request fits, in milliseconds, rounded up; see
// [Millis].
func (o *Outcome) RetryAfterMS() int64 { return Millis(o.Verdict.RetryAfter) }

// DelayMS returns how long to hold the request, in milliseconds, rounded up.
func (o *Outcome) DelayMS() int64 { return Millis(o.Verdict.Delay) }

// ExpiresInMS returns how long the reservation can be settled, in milliseconds. It is rounded down,
// so that a settlement within that time is not too late.
func (o *Outcome) ExpiresInMS() int64 { return o.ExpiresIn.Milliseconds() }

// Text says why there is no verdict, in a sentence for the caller.
func (o *Outcome) Text() string {
	var conflict *headgate.ConflictError
	switch {
	case o.Kind == Conflict && errors.As(o.Err, &conflict):
		return conflict.Reason()
	case o.Kind == Unavailable && o.permits && errors.Is(o.Err, headgate.ErrDamaged):
		return "the permits of this rule and key are damaged in the store, and none is given or renewed until an operator deletes them there"
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

// Fail returns the outcome of a request that ended with err; see [Outcome.Kind].
func Fail(ctx context.Context, err error) *Outcome {
	o := new(Outcome)
	o.fail(ctx, err)
	return o
}

// begin resets the outcome for the next request.
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

// Millis returns d in milliseconds, rounded up, so that waiting that long is enough. Never becomes
// -1.
func Millis(d time.Duration) int64 { return Ceil(d, time.Millisecond) }

// Ceil returns d in whole units, rounded up. Never becomes -1.
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
