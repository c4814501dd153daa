package decide

import (
	"context"
	"errors"
	"slices"
	"strings"
	"time"

	"github.com/headgate/headgate"
	"github.com/headgate/headgate/policy"
	"github.com/headgate/headgate/policy/explain"
	"github.com/headgate/headgate/policy/models"
	"github.com/headgate/headgate/store"
)

// Given is the set of the fields that a caller has sent, whatever their values.
type Given uint16

// The fields.
const (
	GivenDescriptor  Given = 1 << iota // of a request; not with GivenChecks
	GivenChecks                        // of a request; not with GivenDescriptor
	GivenCost                          // of a request, a check or a settlement
	GivenAt                            // of a request
	GivenID                            // of a request
	GivenLifetime                      // of a request
	GivenRule                          // of a check or a call about permits
	GivenKey                           // of a check or a call about permits
	GivenReservation                   // of a settlement
	GivenStatus                        // of a settlement
	GivenHolder                        // of a call about permits, as are those below
	GivenTTL
	GivenWait
	GivenKeep
	GivenEpoch
	GivenUsage // of a request or a settlement
)

// Request is one request of a door. The door fills in what the caller asks for, calls Decide, and
// answers with the [Outcome]. After Reset, a Request can be used again, and keeps its memory. It is
// not safe for concurrent use.
type Request struct {
	// Ask has the fields that the door fills in: Op, Reserve, Descriptor or Named, Cost and At; or Parts
	// in their place. A door may also set Policy to one that it got from the Decider; otherwise the
	// policy in force is used.
	Ask
	// Given says which fields the caller has sent. Without GivenCost the cost is 1.
	Given Given
	// Beyond is how many entries or checks the caller sent beyond the bounds. The door does not
	// have to keep them.
	Beyond int
	// Outcome says that the caller will tell how the work ends: the request is reserved if a rule
	// that binds it charges by that, and not otherwise. Op must be OpTake.
	Outcome bool
	// ID and LifetimeMS are the terms by which the request is remembered.
	ID         string
	LifetimeMS int64
	// Unordered says that the door does not know the order of the descriptor's entries.
	Unordered bool
	// Borrowed says that the strings share memory with more than the request, so strings that are
	// remembered must be copied.
	Borrowed bool

	// Faults are the mistakes in the request. The door adds what it could not read;
	// Decide adds the others.
	Faults Faults

	outcome   Outcome
	decisions []headgate.Decision
	wrong     error // The parts could not be resolved.
}

// Reset forgets the request and its outcome.
func (r *Request) Reset() {
	clear(r.Descriptor)
	clear(r.Named)
	clear(r.Checks)
	clear(r.Faults)
	clear(r.decisions)
	clear(r.Unenforced)
	unenforced := r.Unenforced[:0]
	descriptor, named, checks, faults, decisions := r.Descriptor[:0], r.Named[:0], r.Checks[:0], r.Faults[:0], r.decisions[:0]
	*r = Request{} // Assigning one literal with the kept fields would copy the whole request.
	r.Descriptor, r.Named, r.Checks, r.Faults, r.decisions = descriptor, named, checks, faults, decisions
	r.Unenforced = unenforced
}

// maxAt is the latest time of a charge, in microseconds since 1970: the integers up to it fit a
// float64 exactly, and so do the numbers of many languages.
const maxAt = 1 << 53

// Entry returns the descriptor's entry of that name, or nil.
func (r *Request) Entry(name string) *policy.Entry {
	for i := range r.Descriptor {
		if e := &r.Descriptor[i]; e.Name == name {
			return e
		}
	}
	return nil
}

// AddEntry adds an entry to the descriptor, or counts it if there are MaxEntries.
func (r *Request) AddEntry(e policy.Entry) {
	if len(r.Descriptor) == policy.MaxEntries {
		r.Beyond++
		return
	}
	r.Descriptor = append(r.Descriptor, e)
}

// AddCheck adds a check that the caller names, or counts it if there are MaxChecks.
func (r *Request) AddCheck(n Named) {
	if len(r.Named) == headgate.MaxChecks {
		r.Beyond++
		return
	}
	r.Named = append(r.Named, n)
}

// Decide checks the request, finds what binds it, and has it decided. The outcome is
// valid until the request is used again.
func (r *Request) Decide(ctx context.Context, d Decider) *Outcome {
	r.Bind(d)
	return r.Take(ctx, d)
}

// Bind is the first half of Decide: it finds what binds the request, or the faults.
func (r *Request) Bind(d Decider) {
	if r.Policy.Set == nil {
		r.Policy = d.Policy()
	}
	if r.Parts != nil {
		r.wrong = r.Resolve()
		return
	}
	if len(r.Faults) > 0 && r.Faults.Kind() == Malformed {
		// Many further faults would only follow from what could not be read.
		return
	}
	r.Check()
	r.bindNamed()
	if len(r.Faults) > 0 {
		return
	}
	p := Place{Name: "checks"}
	if r.Given&GivenDescriptor != 0 {
		p.Name = "descriptor"
		if err := r.Resolve(); err != nil {
			r.Faults.AddError(p, false, err)
			return
		}
	}
	for i := range r.Checks {
		r.Checks[i].At = headgate.Instant(r.At)
	}
	// The store would refuse the same checks, but does not know the name of the field.
	if len(r.Checks) > 1 {
		if err := store.Validate(headgate.OpTake, r.Checks); err != nil {
			r.Faults.AddError(p, false, err)
		}
	}
}

// Take is the second half of Decide, for a request that was bound.
func (r *Request) Take(ctx context.Context, d Decider) *Outcome {
	o := &r.outcome
	o.begin(&r.Policy)
	if len(r.Faults) > 0 {
		o.Kind = Faulty
		return o
	}
	if r.wrong != nil {
		o.fail(ctx, r.wrong)
		return o
	}
	r.Reserve = r.Reserve || r.Outcome && r.Policy.Awaits(r.Checks)
	r.Terms = headgate.Terms{ID: r.ID, For: time.Duration(r.LifetimeMS) * time.Millisecond}
	if r.Reserve && r.Terms.For == 0 {
		r.Terms.For = r.Policy.Term(r.Checks)
	}
	if r.Borrowed && (r.Terms.ID != "" || r.Reserve) {
		r.Terms.ID = strings.Clone(r.Terms.ID)
		for i := range r.Checks {
			r.Checks[i].Key = strings.Clone(r.Checks[i].Key)
		}
	}
	var err error
	r.decisions, err = d.Take(ctx, &r.Ask, r.decisions[:0])
	if err == nil && len(r.Checks) > 0 && len(r.decisions) == 0 && r.Op != headgate.OpReset && r.Parts == nil {
		// A request without decisions would pass, and this one must not.
		err = headgate.ErrUnavailable
	}
	if err != nil {
		o.fail(ctx, err)
		return o
	}
	o.decide(r.decisions)
	o.Verdict, o.Unenforced = r.Verdict(r.decisions), r.Unenforced
	if r.Parts == nil && r.TurnedAway() {
		o.Listed = r.Denied
	}
	o.reserved(&r.Reservation)
	return o
}

// Check adds the faults that can be found without any rule, and applies the defaults. Decide calls
// it.
func (r *Request) Check() {
	f := &r.Faults
	switch r.Given & (GivenDescriptor | GivenChecks) {
	case 0:
		f.Add(OutOfRange, Place{Name: "descriptor"}, "is missing; send a descriptor or checks")
	case GivenDescriptor | GivenChecks:
		f.Add(OutOfRange, Place{Name: "checks"}, "cannot be with a descriptor; send one of them")
	case GivenDescriptor:
		r.checkEntries()
	case GivenChecks:
		r.checkNamed()
	}
	switch {
	case r.Given&GivenCost == 0:
		r.Cost = 1
	case r.Given&GivenChecks != 0:
		f.Add(OutOfRange, Place{Name: "cost"}, "goes with a descriptor; here each of the checks has its own")
	default:
		f.number(Place{Name: "cost"}, r.Cost, 1, headgate.MaxCount, "")
	}
	if r.Given&GivenUsage != 0 {
		if f.usage(r.Usage); r.Given&GivenChecks != 0 {
			f.Add(OutOfRange, Place{Name: "usage"}, "goes with a descriptor; each of the checks has a cost in what its rule counts")
		}
		if e := r.Entry("model"); r.Usage.Model == "" && e != nil {
			r.Usage.Model = e.Value
		}
	}
	if r.Given&GivenAt != 0 {
		f.number(Place{Name: "at"}, r.At, 1, maxAt, ": microseconds since 1970, as the answer to the check gave them")
	}
	if n := len(r.ID); r.Given&GivenID != 0 && (n == 0 || n > headgate.MaxID) {
		f.Add(OutOfRange, Place{Name: "id"}, "has %d bytes, must have 1 to %d", n, headgate.MaxID)
	}
	if r.Given&GivenLifetime != 0 {
		f.number(Place{Name: "lifetime_ms"}, r.LifetimeMS, 1, headgate.MaxTerm.Milliseconds(), "")
		if r.Given&GivenID == 0 && !r.Reserve {
			f.Add(OutOfRange, Place{Name: "lifetime_ms"}, "goes with an id")
		}
	}
}

// usage adds what is wrong with the usage of a model.
func (f *Faults) usage(u *models.Usage) {
	if len(u.Model) > policy.MaxValue {
		f.Add(OutOfRange, Place{List: "usage", Name: "model"}, "has %d bytes, may have %d", len(u.Model), policy.MaxValue)
	}
	for _, n := range [...]struct {
		name  string
		value int64
	}{{"input_tokens", u.Input}, {"cached_input_tokens", u.CachedInput}, {"cache_write_tokens", u.CacheWrite}, {"output_tokens", u.Output}} {
		f.number(Place{List: "usage", Name: n.name}, n.value, 0, models.MaxTokens, "")
	}
	if u.CachedInput+u.CacheWrite > u.Input {
		f.Add(OutOfRange, Place{List: "usage", Name: "input_tokens"}, "is %d, must have the %d from or for the cache among it", u.Input, u.CachedInput+u.CacheWrite)
	}
}

func (r *Request) checkEntries() {
	f, p := &r.Faults, Place{Name: "descriptor"}
	if r.Beyond > 0 {
		f.Add(OutOfRange, p, "has %d entries, may have %d", len(r.Descriptor)+r.Beyond, policy.MaxEntries)
	}
	for i := range r.Descriptor {
		e := &r.Descriptor[i]
		at := Place{List: "descriptor", Name: e.Name}
		if len(e.Name) == 0 || len(e.Name) > policy.MaxName {
			f.Add(OutOfRange, at, "the name has %d bytes, must have 1 to %d", len(e.Name), policy.MaxName)
		}
		if len(e.Value) > policy.MaxValue {
			f.Add(OutOfRange, at, "has %d bytes, may have %d", len(e.Value), policy.MaxValue)
		}
	}
	if r.Unordered && r.Policy.Nested != nil && len(r.Descriptor) > 2 {
		f.Add(OutOfRange, p, "has no order here, which the policy asks for, a configuration of envoyproxy/ratelimit; send rule and key in checks")
	}
}

func (r *Request) checkNamed() {
	f := &r.Faults
	if n := len(r.Named) + r.Beyond; n == 0 || r.Beyond > 0 {
		f.Add(OutOfRange, Place{Name: "checks"}, "has %d checks, must have 1 to %d", n, headgate.MaxChecks)
	}
	for i := range r.Named {
		n := &r.Named[i]
		if n.Given&GivenRule == 0 {
			f.Add(OutOfRange, check(i, "rule"), "is missing")
		}
		if n.Given&GivenKey == 0 {
			f.Add(OutOfRange, check(i, "key"), `is missing; a rule with one counter for all has the key ""`)
		}
		switch {
		case n.Given&GivenCost == 0:
			n.Cost = 1
		case n.Cost < 1 || n.Cost > headgate.MaxCount:
			f.number(check(i, "cost"), n.Cost, 1, headgate.MaxCount, "")
			n.Cost = 1 // so that mistakes in the key are still found
		}
	}
}

// bindNamed makes the checks that the caller has named.
func (r *Request) bindNamed() {
	for i := range r.Named {
		n := &r.Named[i]
		if n.Given&GivenRule == 0 {
			continue
		}
		checks, err := r.Policy.AppendCheck(r.Checks, n.Rule, n.Key, n.Cost)
		switch {
		case err == nil:
			r.Checks = checks
			if rule := r.Policy.Rule(n.Rule); rule.InProgress != nil && !slices.Contains(r.Unenforced, n.Rule) {
				r.Unenforced = append(r.Unenforced, rule.Name)
			}
		case n.Given&GivenKey != 0 || errors.Is(err, policy.ErrUnknownRule):
			r.Faults.AddError(check(i, ""), true, err)
		}
	}
}

// Explain says which rules bind the request and why, and charges nothing. It uses only the
// descriptor and the cost of the request. If the outcome is not Decided, there is no explanation.
func (r *Request) Explain(ctx context.Context, d Decider) (explain.Explanation, *Outcome) {
	o := &r.outcome
	r.Policy = d.Policy()
	o.begin(&r.Policy)
	malformed := len(r.Faults) > 0 && r.Faults.Kind() == Malformed
	if !malformed && r.Given&GivenChecks != 0 {
		r.Faults.Add(OutOfRange, Place{Name: "checks"}, "cannot be explained; send the descriptor of a request")
	} else if !malformed {
		r.Check()
	}
	if len(r.Faults) > 0 {
		o.Kind = Faulty
		return explain.Explanation{}, o
	}
	e := r.Policy.Explain(r.Descriptor, r.Cost, r.Usage)
	if e.Error != "" {
		return e, o
	}
	if checks := e.Checks(); len(checks) > 0 {
		var err error
		ask := Ask{Op: headgate.OpPeek, Policy: r.Policy, Checks: slices.Clip(checks)}
		if r.decisions, err = d.Take(ctx, &ask, r.decisions[:0]); err != nil {
			o.fail(ctx, err)
			return e, o
		}
	}
	e.Observe(r.Policy.Set, r.decisions)
	if r.Policy.OnError != headgate.OnErrorReturn {
		e.Lose(r.Policy.OnError)
	}
	return e, o
}

// Settlement is the final cost of a reservation.
type Settlement struct {
	// Reservation is the id of the reservation.
	Reservation string
	// Cost is the real cost, if it was given: 0 gives everything back.
	Cost int64
	// Status is the HTTP status that the work has ended with, if it was given.
	Status int64
	// Usage is what a call to a language model has used, if it was given.
	Usage models.Usage
	// Given says which of the fields the caller has sent.
	Given Given
}

// maxReservation is the maximum length of a reservation's id. Ledgers may add to the id that the
// caller gave.
const maxReservation = 2 * headgate.MaxID

// Settle settles a reservation at its real cost. The outcome's verdict has the state of each limit.
func (r *Request) Settle(ctx context.Context, d Decider, s Settlement) *Outcome {
	o := &r.outcome
	o.begin(&r.Policy)
	if len(r.Faults) == 0 || r.Faults.Kind() != Malformed {
		s.check(&r.Faults)
	}
	if len(r.Faults) > 0 {
		o.Kind = Faulty
		return o
	}
	reserved, err := d.Recall(ctx, s.Reservation)
	if err != nil {
		o.fail(ctx, err)
		return o
	}
	if s.Given&GivenCost == 0 {
		s.Cost = -1 // as estimated
	}
	r.Policy = d.Policy()
	var used *models.Usage
	if s.Given&GivenUsage != 0 {
		used = &s.Usage
	}
	units := r.Policy.Settle(&reserved, s.Cost, used, int(s.Status))
	if r.decisions, err = d.Settle(ctx, reserved, units, r.decisions[:0]); err != nil {
		o.fail(ctx, err)
		return o
	}
	if spent := r.Policy.Spending(s.Usage, used != nil, &reserved, units); spent.Known || len(spent.Charges) > 0 {
		d.Spent(ctx, spent)
	}
	o.decide(r.decisions)
	return o
}

func (s *Settlement) check(f *Faults) {
	switch n := len(s.Reservation); {
	case n == 0:
		f.Add(OutOfRange, Place{Name: "reservation"}, "is missing; send the id that the answer to the reservation gave")
	case n > maxReservation:
		f.Add(OutOfRange, Place{Name: "reservation"}, "has %d bytes, which no id of a reservation has", n)
	}
	if s.Given&GivenCost != 0 {
		f.number(Place{Name: "cost"}, s.Cost, 0, headgate.MaxCount, "")
	} else if s.Given&(GivenStatus|GivenUsage) == 0 {
		f.Add(OutOfRange, Place{Name: "cost"}, "is missing; send the real cost or usage, or the status that the request ended with")
	}
	if s.Given&GivenUsage != 0 {
		f.usage(&s.Usage)
	}
	if s.Given&GivenStatus != 0 {
		f.number(Place{Name: "status"}, s.Status, 100, 599, "")
	}
}
