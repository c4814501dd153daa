package decide

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/headgate/headgate"
	"github.com/headgate/headgate/flow"
	"github.com/headgate/headgate/policy"
	"github.com/headgate/headgate/policy/inprogress"
	"github.com/headgate/headgate/store"
)

// Permits gives permits to callers in other processes, by the rules that bound what is in progress
// over all processes. It is safe for concurrent use. A nil Permits refuses every call.
type Permits struct {
	// Rules returns the rules in force.
	Rules func() Policy
	// Store keeps the permits. Nil means that the server's store keeps none.
	Store store.Permits
	// OnError is what Acquire does while the store does not answer, for rules that do not say it
	// themselves. With OnErrorAllow the work may begin without a permit. With any other value the
	// outcome is Unavailable.
	OnError headgate.OnError
	// Now is the clock by which calls wait. It should be that of the Store if that is turned by hand.
	// Nil means time.Now.
	Now func() time.Time
	// Ending is closed when the server begins to shut down. Calls then stop waiting. Nil means never.
	Ending <-chan struct{}
	// OnCall, if it is set, is called for each call that had no mistakes: with the name of the rule, the
	// call (such as "acquire") and the outcome (such as "allowed"). It must be quick.
	OnCall func(rule, call, outcome string)
	// Audit, if it is set, is called for each revocation that was sent to the store: with the permit's
	// key and holder, the address of the caller, and whether the store has answered. Secrets in the
	// key are hashed.
	Audit func(of PermitKey, holder, from string, answered bool)

	waiting atomic.Int64 // calls that wait for a permit now
	recent  recentKeys
}

// PermitCall is one call about permits. The door fills in the fields that its caller has sent. Each
// kind of call uses some of them.
type PermitCall struct {
	// Rule and Key name the permits, as in a check by name.
	Rule, Key string
	// Holder names whose permit it is.
	Holder string
	// Cost is the number of units to acquire. Without GivenCost it is 1.
	Cost int64
	// Epoch is the epoch of the permit to renew or release.
	Epoch int64
	// TTLMS is how long a permit lasts, in milliseconds. Zero means the rule's ttl, which is also the
	// maximum.
	TTLMS int64
	// WaitMS is how long Acquire may wait. KeepMS is how long it keeps a place in line for a holder
	// that it refuses. Both are in milliseconds.
	WaitMS, KeepMS int64
	// Given says which fields the caller has sent. Only GivenRule, GivenKey and GivenCost matter.
	Given Given

	// From is the caller's address, for Audit.
	From string
	// Faults are the mistakes in the call. The door adds what it could not read.
	Faults Faults
}

// The bounds on what a caller may ask for.
const (
	// MaxPermitWait is the longest wait of one call.
	MaxPermitWait = 30 * time.Second
	// MaxPermitKeep is the longest time that a place in line is kept for a holder that was refused.
	MaxPermitKeep = 10 * time.Second
	// maxPermitWaits is the maximum number of calls that wait at a time. Further calls are answered at
	// once.
	maxPermitWaits = 4096
)

const (
	// While a call waits, it asks the store again after pauses of askFirst × (number of places ahead +
	// 1), at most askLast, on average.
	askFirst, askLast = 20 * time.Millisecond, 500 * time.Millisecond
	// While a call waits, its place in line is kept for keepAsks pauses, at least keepFirst and at
	// most keepLast. If this process dies, those behind that place wait for so long.
	keepAsks            = 8
	keepFirst, keepLast = 500 * time.Millisecond, 2 * time.Second
	// To let the answer arrive, a call stops waiting before its caller's deadline: by 1/toAnswer of
	// the remaining time, at most mostToAnswer.
	toAnswer     = 8
	mostToAnswer = 200 * time.Millisecond
	// tries is how often the store is asked before a call fails, about tryAfter apart.
	tries    = 3
	tryAfter = 5 * time.Millisecond
)

// errNoPermits is the error if the store keeps no permits.
var errNoPermits = fmt.Errorf("%w: the store keeps no permits", errors.ErrUnsupported)

// Renew makes a permit last for its full time from now. It never acquires one: the outcome is
// NotHeld if the permit has ended, and Revoked if it was revoked.
func (p *Permits) Renew(ctx context.Context, c *PermitCall) (store.Lease, *Outcome) {
	c.checkHolder()
	c.checkTTL()
	c.Faults.number(Place{Name: "epoch"}, c.Epoch, 1, store.MaxEpoch, ", that of the permit")
	b, o := p.bound(c)
	if o.Kind != Decided {
		return store.Lease{}, o
	}
	key := inprogress.StoreKey(b.Rule.Name, b.Key)
	p.recent.note(b.Rule.Name, b.Key, b.Rule.InProgress.Term())
	lease, err := asked(ctx, func() (store.Lease, error) {
		return p.Store.Renew(ctx, key, c.Holder, c.Epoch, c.ttl(b.Rule.InProgress))
	})
	return lease, p.end(ctx, &b, "renew", "renewed", err)
}

// Release gives a permit back, and reports whether the holder had one. With epoch 0 it releases
// whatever permit or place in line the holder has. Releasing again does nothing.
func (p *Permits) Release(ctx context.Context, c *PermitCall) (bool, *Outcome) {
	c.checkHolder()
	c.Faults.number(Place{Name: "epoch"}, c.Epoch, 0, store.MaxEpoch, ", that of the permit, or 0 for any")
	b, o := p.bound(c)
	if o.Kind != Decided {
		return false, o
	}
	key := inprogress.StoreKey(b.Rule.Name, b.Key)
	released, err := asked(ctx, func() (bool, error) { return p.Store.Release(ctx, key, c.Holder, c.Epoch) })
	return released, p.end(ctx, &b, "release", "released", err)
}

// Holders lists who has permits and who waits, and returns the limit in units.
func (p *Permits) Holders(ctx context.Context, c *PermitCall) (store.PermitHolders, int64, *Outcome) {
	b, o := p.bound(c)
	if o.Kind != Decided {
		return store.PermitHolders{}, 0, o
	}
	held, err := p.HoldersOf(ctx, PermitKey{b.Rule.Name, b.Key})
	return held, b.Limit, p.end(ctx, &b, "holders", "listed", err)
}

// HoldersOf is Holders for a key in the form in which the store has it.
func (p *Permits) HoldersOf(ctx context.Context, of PermitKey) (store.PermitHolders, error) {
	if p == nil || p.Store == nil {
		return store.PermitHolders{}, errNoPermits
	}
	return asked(ctx, func() (store.PermitHolders, error) {
		return p.Store.Holders(ctx, inprogress.StoreKey(of.Rule, of.Key))
	})
}

// Revoke forbids the renewal of a permit, and takes its holder out of the line. It reports whether
// the holder had either.
func (p *Permits) Revoke(ctx context.Context, c *PermitCall) (bool, *Outcome) {
	c.checkHolder()
	b, o := p.bound(c)
	if o.Kind != Decided {
		return false, o
	}
	revoked, err := p.RevokeOf(ctx, PermitKey{b.Rule.Name, b.Key}, c.Holder, c.From)
	return revoked, p.end(ctx, &b, "revoke", "revoked", err)
}

// RevokeOf is Revoke for a key in the form in which the store has it. from is the address of the
// caller, for Audit.
func (p *Permits) RevokeOf(ctx context.Context, of PermitKey, holder, from string) (bool, error) {
	if p == nil || p.Store == nil {
		return false, errNoPermits
	}
	revoked, err := asked(ctx, func() (bool, error) {
		return p.Store.Revoke(ctx, inprogress.StoreKey(of.Rule, of.Key), holder)
	})
	if p.Audit != nil {
		p.Audit(of, holder, from, err == nil)
	}
	return revoked, err
}

// asked calls the store, and repeats the call if the store does not answer. All calls about permits
// can be repeated safely.
func asked[T any](ctx context.Context, call func() (T, error)) (answer T, err error) {
	for try := 1; ; try++ {
		answer, err = call()
		if try == tries || !errors.Is(err, headgate.ErrUnavailable) || ctx.Err() != nil {
			return answer, err
		}
		time.Sleep(tryAfter/2 + rand.N(tryAfter))
	}
}

func (c *PermitCall) checkHolder() {
	if n := len(c.Holder); n < 1 || n > store.MaxHolder {
		c.Faults.Add(OutOfRange, Place{Name: "holder"}, "has %d bytes, must have 1 to %d", n, store.MaxHolder)
	}
}

func (c *PermitCall) checkTTL() {
	if c.TTLMS != 0 {
		c.Faults.number(Place{Name: "ttl_ms"}, c.TTLMS, store.MinTTL.Milliseconds(), store.MaxTTL.Milliseconds(), ", or 0 for the rule's ttl")
	}
}

// ttl returns how long a permit lasts.
func (c *PermitCall) ttl(rule *policy.InProgress) time.Duration {
	if c.TTLMS == 0 {
		return rule.Term()
	}
	return min(time.Duration(c.TTLMS)*time.Millisecond, rule.Term())
}

// bound finds the bound that the call is about. If it finds none, the outcome is not Decided.
func (p *Permits) bound(c *PermitCall) (b policy.Bound, o *Outcome) {
	o = &Outcome{permits: true}
	if p == nil || p.Store == nil {
		o.Kind, o.Err = NoPermits, errNoPermits
		return b, o
	}
	if c.Given&GivenRule == 0 {
		c.Faults.Add(OutOfRange, Place{Name: "rule"}, "is missing")
	}
	if c.Given&GivenKey == 0 {
		c.Faults.Add(OutOfRange, Place{Name: "key"}, `is missing; a rule that counts all together has the key ""`)
	}
	if len(c.Faults) == 0 {
		var err error
		b, err = p.Rules().Bound(c.Rule, c.Key, max(c.Cost, 1))
		switch {
		case err != nil:
			n := len(c.Faults)
			c.Faults.AddError(Place{}, true, err)
			for i := range c.Faults[n:] {
				if at := &c.Faults[n+i].Place; at.Name == "" {
					at.Name = "rule"
				}
			}
		case !b.Rule.InProgress.Shared:
			c.Faults.Add(OutOfRange, Place{Name: "rule"}, "counts what is in progress in each process by itself; give its in_progress shared: true")
		}
	}
	if len(c.Faults) > 0 {
		o.Kind = Faulty
		if c.Faults.Kind() == Malformed {
			// Many of the others would only follow from what could not be read.
			c.Faults = slices.DeleteFunc(c.Faults, func(f Fault) bool { return f.Kind != Malformed })
		}
	}
	return b, o
}

// end reports the outcome of a call to OnCall, and returns it. If err is nil, OnCall gets word.
func (p *Permits) end(ctx context.Context, b *policy.Bound, call, word string, err error) *Outcome {
	o := &Outcome{permits: true}
	if err != nil {
		o.fail(ctx, err)
		word = permitWords[o.Kind]
	}
	if p.OnCall != nil {
		p.OnCall(b.Rule.Name, call, word)
	}
	return o
}

// permitWords are the outcomes that OnCall gets for calls that failed.
var permitWords = [...]string{
	Faulty: "refused", Refused: "refused", Conflict: "refused", NoReservation: "refused", Unsupported: "refused",
	Unavailable: "unavailable", Gone: "gone", NotHeld: "not_held", Revoked: "revoked", OtherCost: "refused", NoPermits: "refused",
}

// Acquired is the answer to [Permits.Acquire].
type Acquired struct {
	// Allowed says that the work may begin. It then has a permit if Granted reports true. Otherwise
	// the rule only measures (Shadow), or the store does not answer and the rule fails open (Open).
	Allowed, Shadow, Open bool
	store.PermitAnswer
	// RetryAfter is how long to wait before asking again. It is zero if Allowed.
	RetryAfter time.Duration

	bound policy.Bound
}

// Refusal describes an answer that is not Allowed, for doors that send denials as middleware does.
func (a *Acquired) Refusal() *inprogress.Refusal {
	return &inprogress.Refusal{Bound: a.bound, Rejection: &flow.Rejection{
		Gate: a.bound.Rule.Name, Reason: flow.ReasonBusy, Retry: true, RetryAfter: a.RetryAfter,
		Limit: a.Limit, InUse: a.InUse, Waiting: int64(a.Line),
	}}
}

// Acquire takes a permit if one is free and nobody who comes first waits for it. Otherwise it waits
// as long as the call, the rule and the context allow. If the context ends, the holder's place in
// line is kept for two seconds at most, and a permit that was granted at that moment ends by
// itself.
func (p *Permits) Acquire(ctx context.Context, c *PermitCall) (Acquired, *Outcome) {
	c.checkHolder()
	if c.Given&GivenCost == 0 {
		c.Cost = 1
	} else {
		c.Faults.number(Place{Name: "cost"}, c.Cost, 1, headgate.MaxPermits, "")
	}
	c.checkTTL()
	c.Faults.number(Place{Name: "wait_ms"}, c.WaitMS, 0, policy.MaxWait.Milliseconds(), "")
	if c.KeepMS != 0 {
		c.Faults.number(Place{Name: "keep_ms"}, c.KeepMS, store.MinTTL.Milliseconds(), MaxPermitKeep.Milliseconds(), ", or 0 for no place")
	}
	b, o := p.bound(c)
	if o.Kind != Decided {
		return Acquired{}, o
	}
	p.recent.note(b.Rule.Name, b.Key, b.Rule.InProgress.Term())
	a, err := p.acquire(ctx, c, &b)
	a.bound = b
	if large, ok := errors.AsType[*store.TooLargeError](err); ok {
		c.Faults.Add(OutOfRange, Place{Name: "cost"}, "takes %d of what may be in progress, which is %d", large.Cost, large.Limit)
		o.Kind, o.TooLarge = Faulty, large
		return a, o
	}
	return a, p.end(ctx, &b, "acquire", a.word(), err)
}

// word returns the outcome as [Permits.OnCall] gets it.
func (a *Acquired) word() string {
	switch {
	case a.Shadow:
		return "shadow"
	case a.Open:
		return "open"
	case a.Allowed:
		return "allowed"
	case a.Waiting:
		return "waiting"
	}
	return "denied"
}

// acquire asks the store again and again until it grants a permit or the wait is over.
func (p *Permits) acquire(ctx context.Context, c *PermitCall, b *policy.Bound) (Acquired, error) {
	rule := b.Rule.InProgress
	r := store.PermitRequest{
		Key: inprogress.StoreKey(b.Rule.Name, b.Key), Holder: strings.Clone(c.Holder), Cost: b.Units, Limit: b.Limit,
		TTL: c.ttl(rule), Queue: rule.Waiting(),
	}
	until := time.Time{}
	if !b.Shadow {
		if until = p.until(ctx, c, rule); !until.IsZero() {
			if p.waiting.Add(1) > maxPermitWaits {
				until = time.Time{}
			}
			defer p.waiting.Add(-1)
		}
	}
	for pause := askLast; ; {
		last := !p.now().Before(until)
		r.Wait = min(max(keepAsks*pause, keepFirst), keepLast)
		if last {
			r.Wait = time.Duration(c.KeepMS) * time.Millisecond
		}
		answer, err := asked(ctx, func() (store.PermitAnswer, error) { return p.Store.Acquire(ctx, r) })
		switch {
		case b.Shadow && ctx.Err() == nil && (err != nil || !answer.Granted()):
			answer.Limit = b.Limit
			return Acquired{Allowed: true, Shadow: true, PermitAnswer: answer}, nil
		case errors.Is(err, headgate.ErrUnavailable) && ctx.Err() == nil && p.open(b.Rule):
			return Acquired{Allowed: true, Open: true, PermitAnswer: store.PermitAnswer{Limit: b.Limit}}, nil
		case err != nil:
			return Acquired{}, err
		}
		answer.Limit = b.Limit
		pause = min(askFirst*time.Duration(answer.Ahead+1), askLast)
		switch {
		case answer.Granted():
			return Acquired{Allowed: true, PermitAnswer: answer}, nil
		case last && answer.Waiting:
			return Acquired{PermitAnswer: answer, RetryAfter: min(pause, r.Wait/2)}, nil
		case last || !answer.Waiting:
			return Acquired{PermitAnswer: answer, RetryAfter: ComeBack}, nil
		}
		if !p.pause(ctx, pause, until) {
			until = time.Time{}
		}
		if err := ctx.Err(); err != nil {
			return Acquired{}, err
		}
	}
}

// open reports whether the rule fails open, so that work may begin while the store does not answer.
func (p *Permits) open(r *policy.Rule) bool {
	if r.OnError == headgate.OnErrorReturn {
		return p.OnError == headgate.OnErrorAllow
	}
	return r.OnError == headgate.OnErrorAllow
}

// now returns the time by which calls wait.
func (p *Permits) now() time.Time {
	if p.Now != nil {
		return p.Now()
	}
	return time.Now()
}

// until returns when a call stops waiting. That is limited by the call, by the rule, and by the
// deadline of ctx, before which the answer must reach the caller. It is zero if the call does not
// wait.
func (p *Permits) until(ctx context.Context, c *PermitCall, rule *policy.InProgress) time.Time {
	wait := min(time.Duration(c.WaitMS)*time.Millisecond, rule.Wait, MaxPermitWait)
	if end, ok := ctx.Deadline(); ok {
		left := time.Until(end)
		wait = min(wait, left-min(left/toAnswer, mostToAnswer))
	}
	if wait <= 0 {
		return time.Time{}
	}
	return p.now().Add(wait)
}

// pause waits for a random time from d/2 to 3d/2, but not beyond until or the end of ctx. It
// reports false if the server is being shut down.
func (p *Permits) pause(ctx context.Context, d time.Duration, until time.Time) bool {
	timer := time.NewTimer(min(d/2+rand.N(d), max(until.Sub(p.now()), 0)))
	defer timer.Stop()
	select {
	case <-timer.C:
	case <-ctx.Done():
	case <-p.Ending:
		return false
	}
	return true
}

// PermitKey names the permits of one key under one rule.
type PermitKey struct{ Rule, Key string }

// maxRecentKeys is the maximum number of remembered keys.
const maxRecentKeys = 1024

// recentKeys remembers the keys whose permits callers have acquired or renewed lately, because a
// store cannot list such keys without reading everything that it has. A key is remembered for as
// long as a permit of its rule lasts without a renewal. After that time nobody holds the permit, or
// another process has renewed it.
type recentKeys struct {
	mu    sync.Mutex // guards what follows
	until map[PermitKey]time.Time
	swept time.Time
	// missed is the time until which a key that was not remembered may have permits.
	missed time.Time
}

// sweepEvery is the minimum time between searches of a full table for expired keys.
const sweepEvery = time.Second

// note remembers a key for the duration term, unless there are too many keys.
func (r *recentKeys) note(rule, key string, term time.Duration) {
	now := time.Now()
	r.mu.Lock()
	defer r.mu.Unlock()
	name := PermitKey{rule, key}
	if _, known := r.until[name]; !known {
		if len(r.until) >= maxRecentKeys && now.Sub(r.swept) >= sweepEvery {
			r.sweep(now)
		}
		if len(r.until) >= maxRecentKeys {
			if until := now.Add(term); until.After(r.missed) {
				r.missed = until
			}
			return
		}
		if r.until == nil {
			r.until = make(map[PermitKey]time.Time)
		}
		name.Key = strings.Clone(key) // It may share memory with a larger buffer.
	}
	r.until[name] = now.Add(term)
}

func (r *recentKeys) sweep(now time.Time) {
	r.swept = now
	for name, until := range r.until {
		if now.After(until) {
			delete(r.until, name)
		}
	}
}

// Recent returns the keys whose permits callers of this process have acquired or renewed, for as
// long as such permits may last. They are ordered by rule and key. There are at most 1024, and all
// says whether none is missing. A nil Permits has none.
func (p *Permits) Recent() (list []PermitKey, all bool) {
	if p == nil {
		return nil, true
	}
	r, now := &p.recent, time.Now()
	r.mu.Lock()
	r.sweep(now)
	for name := range r.until {
		list = append(list, name)
	}
	all = now.After(r.missed)
	r.mu.Unlock()
	slices.SortFunc(list, func(a, b PermitKey) int {
		return cmp.Or(strings.Compare(a.Rule, b.Rule), strings.Compare(a.Key, b.Key))
	})
	return list, all
}
