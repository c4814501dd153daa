package outbound

import (
	"context"
	"time"

	"github.com/headgate/headgate"
)

// pauseName is the name of the rule by which processes tell each other of pauses.
const pauseName = "headgate.outbound.pause"

// pauseBurst is the burst of that rule for calls. A unit is a microsecond: so many calls may be
// made at once, and as many as 1,000,000 in a second, so that it binds nobody by itself.
const pauseBurst = 1000

// pauseRule is the rule for a burst. All of them have one counter, because their limits differ
// in nothing else. What is used of it drains by a unit each microsecond, so it stands for a point
// in time. A pause uses up what a burst as long as the pause leaves: so what is used is never
// more than the longest pause, whoever is told of one at the same time, and no call fits until
// it has drained.
func pauseRule(burst int64) *headgate.Rule {
	return headgate.MustRule(pauseName, headgate.Limit{Count: 1_000_000, Period: time.Second, Burst: burst})
}

var callRule = pauseRule(pauseBurst)

// tellWithin bounds a call to the store that tells others.
const tellWithin = time.Second

// ask asks the store whether the call fits the limits, and whether another process was asked to pause.
// If neither, it is to wait in line again.
func (c *call) ask() (ok bool, err error) {
	c.charged = nil
	if c.t.store == nil {
		return true, nil
	}
	asked := time.Now()
	checks := append(c.own[:len(c.own):len(c.own)], c.common(asked)...)
	if len(checks) == 0 {
		return true, nil
	}
	decisions, err := c.t.store.Take(c.ctx, headgate.OpTake, checks, nil)
	c.undecided = err != nil && c.ctx.Err() == nil
	switch {
	case err != nil && c.ctx.Err() != nil:
		return false, c.ctx.Err()
	case err != nil && !c.t.config.FailClosed && c.alone():
		return false, nil
	case err != nil:
		c.failed(err)
		if c.t.config.FailClosed {
			return false, err
		}
		return !c.held(time.Now()), nil
	}
	v := headgate.NewVerdict(decisions)
	wait := v.Delay
	if !v.Allowed {
		wait = c.deny(decisions, asked)
	}
	if v.Allowed {
		for i := range decisions {
			checks[decisions[i].Check].At = decisions[i].At
		}
		c.charged = checks
	}
	if wait < 0 || wait > c.patience(time.Now()) {
		c.refund(c.charged)
		d := headgate.Decision{RetryAfter: wait}
		if deciding := v.Deciding(); deciding != nil && deciding.Rule.Name() != pauseName && deciding.Rule.Name() != paceName {
			d = *deciding
		}
		return false, c.denied(d)
	}
	if !v.Allowed {
		return false, nil
	}
	c.leave(true)
	if err := c.sleep(wait); err != nil {
		c.refund(c.charged)
		return false, err
	}
	return true, nil
}

// held reports whether a pause has begun while the store was asked in vain. The call waits in line for its end.
func (c *call) held(now time.Time) bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	if !now.Before(c.until) {
		return false
	}
	c.asked(now, false)
	return true
}

// deny takes in why the store has denied a call that has asked it then, and returns for how long the call is
// to wait. The next one that asks takes as long to the store: what counts is when this one has asked.
func (c *call) deny(decisions []headgate.Decision, asked time.Time) time.Duration {
	var own time.Duration // what limits of our own ask for
	wait, news := time.Duration(0), false
	now := time.Now()
	c.left -= now.Sub(asked)
	c.giveBack()
	for i := range decisions {
		d := &decisions[i]
		switch {
		case d.Allowed || d.Shadow:
			continue
		case d.Rule == callRule:
			d.RetryAfter, news = c.told(now, d.RetryAfter, c.t.config.MaxPause)
		case d.Rule.Name() == paceName:
			c.behind(asked.Add(d.RetryAfter))
		case d.RetryAfter == headgate.Never:
			return headgate.Never
		default:
			own = max(own, d.RetryAfter, time.Microsecond)
		}
		wait = max(wait, own, d.RetryAfter)
	}
	if news {
		c.readPace(c.ctx, now, 0)
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	if own > 0 {
		c.denies(asked.Add(own))
	}
	c.asked(now, false)
	return wait
}

// refund gives back what an attempt was charged that is not made.
func (c *call) refund(charged []headgate.Check) {
	if len(charged) == 0 {
		return
	}
	c.tell(func(ctx context.Context) {
		if _, err := c.t.store.Take(ctx, headgate.OpRefund, charged, nil); err != nil {
			c.failed(err)
		}
	})
}

// tell has f tell the store something, within tellWithin. It does so even if the call's context ends, but the
// call does not wait for it then.
func (c *call) tell(f func(ctx context.Context)) {
	done := make(chan struct{})
	go func() {
		defer close(done)
		c.telling(f)
	}()
	select {
	case <-done:
	case <-c.ctx.Done():
	}
}

// telling has f tell the store something, within tellWithin and whatever ends the call.
func (c *call) telling(f func(ctx context.Context)) {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(c.ctx), tellWithin)
	defer cancel()
	f(ctx)
}

// learn takes in what the answer to a call says, and tells the other processes.
func (c *call) learn(hint *Hint, sent sending, now time.Time) {
	pause, begins := c.heed(hint, now, c.t.config.MaxPause)
	if pause <= 0 {
		return
	}
	if c.t.config.Hooks.Paused != nil {
		c.t.config.Hooks.Paused(c.name, pause)
	}
	paced := begins && hint.Limited && pause <= shortPause
	if c.t.documents == nil && paced {
		c.refused(sent, now, pause, "")
	}
	if c.t.store == nil {
		return
	}
	c.tell(func(ctx context.Context) {
		if c.t.documents != nil && paced {
			// Who is told of the pause reads the pace. If that takes long, the pause is told all the same.
			soon, cancel := context.WithTimeout(ctx, tellWithin/2)
			c.learnPace(soon, sent, now, pause)
			cancel()
		}
		c.tellPause(ctx, pause)
	})
}

// tellPause tells the other processes of a pause.
func (c *call) tellPause(ctx context.Context, pause time.Duration) {
	most := pauseBurst + pause.Microseconds()
	check := []headgate.Check{{Rule: pauseRule(most), Key: c.name, Cost: most}}
	for {
		decisions, err := c.t.store.Take(ctx, headgate.OpTake, check, nil)
		if err != nil {
			c.failed(err)
			return
		}
		if decisions[0].Allowed || decisions[0].Remaining == 0 {
			return
		}
		check[0].Cost = decisions[0].Remaining // Others were told of a shorter pause, or came first.
	}
}

func (c *call) failed(err error) {
	if c.t.config.Hooks.Failed != nil {
		c.t.config.Hooks.Failed(c.r, err)
	}
}
