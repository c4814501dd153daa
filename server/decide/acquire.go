package decide

import (
	"context"
	"errors"
	"math/rand/v2"
	"strings"
	"time"

	"github.com/headgate/headgate"
	"github.com/headgate/headgate/flow"
	"github.com/headgate/headgate/policy"
	"github.com/headgate/headgate/policy/inprogress"
	"github.com/headgate/headgate/store"
)

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
		c.Faults.number(Place{Name: "cost"}, c.Cost, 1, headgate.MaxCount, "")
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

// word returns the outcome as [Permits.Told] gets it.
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
		if until = c.until(ctx, rule); !until.IsZero() {
			if p.waiting.Add(1) > maxPermitWaits {
				until = time.Time{}
			}
			defer p.waiting.Add(-1)
		}
	}
	for pause := askLast; ; {
		last := !time.Now().Before(until)
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

// until returns when a call stops waiting. That is limited by the call, by the rule, and by the
// deadline of ctx, before which the answer must reach the caller. It is zero if the call does not
// wait.
func (c *PermitCall) until(ctx context.Context, rule *policy.InProgress) time.Time {
	now := time.Now()
	wait := min(time.Duration(c.WaitMS)*time.Millisecond, rule.Wait, MaxPermitWait)
	if end, ok := ctx.Deadline(); ok {
		left := end.Sub(now)
		wait = min(wait, left-min(left/toAnswer, mostToAnswer))
	}
	if wait <= 0 {
		return time.Time{}
	}
	return now.Add(wait)
}

// pause waits for a random time from d/2 to 3d/2, but not beyond until or the end of ctx. It
// reports false if the server is being shut down.
func (p *Permits) pause(ctx context.Context, d time.Duration, until time.Time) bool {
	timer := time.NewTimer(min(d/2+rand.N(d), max(time.Until(until), 0)))
	defer timer.Stop()
	select {
	case <-timer.C:
	case <-ctx.Done():
	case <-p.Ending:
		return false
	}
	return true
}
