package fallback

import (
	"context"
	"errors"
	"sync"
	"sync/atomic"
	"time"

	"github.com/headgate/headgate"
	"github.com/headgate/headgate/store/layered/internal/layer"
)

// debts are units that were admitted locally and that the primary does not know of.
type debts struct {
	most    int
	size    atomic.Int64 // of keys, to be read without mu
	dropped atomic.Int64

	mu   sync.Mutex // guards all that follows
	keys map[layer.Counter]*debt
}

// debt is how many units one key owes for one rule.
type debt struct {
	rule   *headgate.Rule
	units  int64
	due    time.Time // when to charge a part of it
	misses int       // how often in a row the primary had no room
}

func (d *debts) init(most int) {
	d.most, d.keys = most, make(map[layer.Counter]*debt)
}

// add adds units to the debt of a check, or takes them off. If there is no room for another
// debt, the units are dropped.
func (d *debts) add(c *headgate.Check, units int64) {
	d.mu.Lock()
	defer d.mu.Unlock()
	at := layer.CounterOf(c)
	one := d.keys[at]
	switch {
	case one != nil:
		one.rule, one.units = c.Rule, min(one.units+units, headgate.MaxCount)
		if one.units <= 0 {
			d.remove(at)
		}
	case units <= 0:
	case len(d.keys) >= d.most:
		d.dropped.Add(1)
	default:
		d.keys[at.Own()] = &debt{rule: c.Rule, units: units}
		d.size.Store(int64(len(d.keys)))
	}
}

// change changes a debt, if there is one. It is dropped if nothing is owed any more, or if no unit
// could be charged for the last few times.
func (d *debts) change(at layer.Counter, do func(*debt)) {
	d.mu.Lock()
	defer d.mu.Unlock()
	one := d.keys[at]
	if one == nil {
		return
	}
	if do(one); one.units <= 0 || one.misses >= misses {
		d.remove(at)
	}
}

func (d *debts) remove(at layer.Counter) {
	delete(d.keys, at)
	d.size.Store(int64(len(d.keys)))
}

// look returns what a key owes, or nil and zero if it owes nothing.
func (d *debts) look(at layer.Counter) (*headgate.Rule, int64) {
	d.mu.Lock()
	defer d.mu.Unlock()
	if one := d.keys[at]; one != nil {
		return one.rule, one.units
	}
	return nil, 0
}

// misses is how many times in a row a rule's tight limits may have no room for a debt that only
// its widest limit still knows of. Then the debt is dropped, because the client itself uses all
// that the tight limits admit.
const misses = 3

// paid takes units off a debt. The rest is due after the pause.
func (d *debts) paid(at layer.Counter, units int64, pause time.Duration) {
	d.change(at, func(one *debt) {
		one.units -= units
		one.due = time.Now().Add(pause)
		if one.misses++; units > 0 {
			one.misses = 0
		}
	})
}

// payAtOnce is how many debts are looked at in one round.
const payAtOnce = 64

// due returns debts that are due, at most payAtOnce, and the time until the next round.
func (d *debts) due() (keys []layer.Counter, next time.Duration) {
	d.mu.Lock()
	defer d.mu.Unlock()
	now := time.Now()
	next = time.Minute
	for at, one := range d.keys {
		if next = min(next, max(one.due.Sub(now), payEvery)); one.due.After(now) {
			continue
		}
		if keys = append(keys, at); len(keys) == payAtOnce {
			break
		}
	}
	return keys, next
}

// pay charges some of the debts to the primary, and stops at an error. It returns after which
// time more debts are due, or false if there are none.
func (k *keeper) pay(ctx context.Context) (next time.Duration, more bool) {
	f := k.fallback
	if f.debts.size.Load() == 0 {
		return 0, false
	}
	keys, next := f.debts.due()
	for _, at := range keys {
		if ctx.Err() != nil {
			break
		}
		if f.payOne(ctx, at) != nil {
			return f.options.MaxRetry, true
		}
	}
	return next, f.debts.size.Load() > 0
}

// payOne charges a part of what a key owes. Its error is the primary's.
func (f *Layer) payOne(ctx context.Context, at layer.Counter) error {
	rule, units := f.debts.look(at)
	if rule == nil {
		return nil
	}
	ctx, cancel := context.WithTimeout(ctx, layer.CallWithin)
	defer cancel()
	part, widest := f.part(ctx, rule, at.Key, units)
	if part == 0 {
		f.debts.paid(at, units, 0) // No window holds any of it any more.
		return nil
	}
	check := []headgate.Check{{Rule: rule, Key: at.Key}}
	// A denied take would count as the client's denial if the rule has a penalty.
	room, err := f.inner.Take(ctx, headgate.OpPeek, check, nil)
	if err != nil {
		return err
	}
	if room[widest].Remaining == 0 {
		f.debts.paid(at, units, 0) // It is full, which is all that a debt can make it.
		return nil
	}
	if part = min(part, left(room)); part == 0 {
		f.debts.paid(at, 0, pause(rule))
		return nil
	}
	wait := payEvery // for what may be owed by then in addition
	if part < units {
		wait = pause(rule)
	}
	check[0].Cost = part
	taken, err := f.inner.Take(ctx, headgate.OpTake, check, nil)
	switch {
	case errors.Is(err, context.DeadlineExceeded):
		f.debts.paid(at, part, wait) // It may have counted, and is not repeated.
	case err == nil && headgate.NewVerdict(taken).Allowed:
		f.counts.handed.Add(part)
		if taken[widest].Remaining == 0 {
			part = units // The limit is full now, and has no room for the rest.
		}
		f.debts.paid(at, part, wait)
	case err == nil:
		// A client has taken the room since the peek. The next attempt sees how much is left.
		f.debts.change(at, func(d *debt) { d.due = time.Now().Add(payEvery) })
	}
	return err
}

// part returns how much of a debt to charge at once, and the place of the widest limit: the one
// whose local counter still holds most of the debt. For a rule with one limit the part is what
// the local counter still holds. For a rule with several it is what all of their counters hold,
// or a quarter of what the tightest limit admits if that is more: a debt to a long window must
// leave some room in the short ones.
func (f *Layer) part(ctx context.Context, rule *headgate.Rule, key string, units int64) (part int64, widest int) {
	share := f.shares.Load().Of(rule)
	decisions, err := f.options.Local.Take(ctx, headgate.OpPeek, []headgate.Check{{Rule: share, Key: key}}, nil)
	if err != nil {
		return 0, 0
	}
	const none = headgate.MaxCount + 1
	most, least, quarter := int64(0), int64(none), int64(none)
	limits := rule.Limits()
	for i := range decisions {
		if d := &decisions[i]; d.Limit.Algorithm != headgate.Penalty {
			used := d.Limit.Capacity() - d.Remaining
			if used > most {
				most, widest = used, i
			}
			least = min(least, used)
			quarter = min(quarter, max(1, limits[i].Capacity()/4))
		}
	}
	if most == least {
		return min(units, most), widest
	}
	return min(units, most, max(least, quarter)), widest
}

// left returns how many units all of the limits have left.
func left(decisions []headgate.Decision) int64 {
	least := int64(headgate.MaxCount)
	for i := range decisions {
		if d := &decisions[i]; d.Limit.Algorithm != headgate.Penalty {
			least = min(least, d.Remaining)
		}
	}
	return least
}

// pause returns the time until the next part of a debt is charged: the shortest of the rule's
// periods, within bounds.
func pause(rule *headgate.Rule) time.Duration {
	shortest := time.Minute
	limits := rule.Limits()
	for i := range limits {
		if l := &limits[i]; l.Algorithm != headgate.Penalty {
			shortest = min(shortest, time.Duration(l.Micros())*time.Microsecond)
		}
	}
	return max(shortest, 100*time.Millisecond)
}
