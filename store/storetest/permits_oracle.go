package storetest

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"reflect"
	"slices"
	"time"

	"github.com/headgate/headgate/store"
)

// permitOracle says what a store of permits must answer, in the most obvious way: it has
// a cell for each unit, and looks at all of them each time. It shares nothing with
// store.Book but the types of the answers.
type permitOracle struct {
	keys map[string]*permitKey
}

type permitKey struct {
	cells [store.MaxPermits]*permitCell
	line  []*permitCell
}

// permitCell is a lease, which stands in a cell for each of its units, or a place in
// line.
type permitCell struct {
	holder    string
	ends, ttl int64
	cost      int64
	epoch     int64
	revoked   bool
	overtaken int64
}

// at returns a key at a time: what has ended is gone, and what would last longer than it
// was to does not.
func (o *permitOracle) at(name string, now int64) *permitKey {
	k := o.keys[name]
	if k == nil {
		k = new(permitKey)
		o.keys[name] = k
	}
	stays := func(c *permitCell) bool {
		c.ends = min(c.ends, now+c.ttl)
		return now < c.ends
	}
	for i, c := range k.cells {
		if c != nil && !stays(c) {
			k.cells[i] = nil
		}
	}
	var line []*permitCell
	for _, c := range k.line {
		if stays(c) {
			line = append(line, c)
		}
	}
	k.line = line
	return k
}

func (k *permitKey) leaseOf(holder string) *permitCell {
	for _, c := range k.cells {
		if c != nil && c.holder == holder {
			return c
		}
	}
	return nil
}

func (k *permitKey) inUse() (n int64) {
	for _, c := range k.cells {
		if c != nil {
			n++
		}
	}
	return n
}

func (k *permitKey) lease(name string, c *permitCell, now int64) store.Lease {
	l := store.Lease{
		Key: name, Holder: c.holder, Revoked: c.revoked,
		Remaining: time.Duration(c.ends-now) * time.Microsecond, TTL: time.Duration(c.ttl) * time.Microsecond,
	}
	l.Epoch = c.epoch
	for i, other := range k.cells {
		if other == c {
			l.Slots = append(l.Slots, i)
		}
	}
	return l
}

// acquire answers; epoch is what the store says that the epoch of a new lease is, of
// which the oracle only says that it is higher than all that can be compared with it.
func (o *permitOracle) acquire(r store.PermitRequest, now, epoch int64) (a store.PermitAnswer, err error) {
	k := o.at(r.Key, now)
	defer func() {
		if err != nil {
			a = store.PermitAnswer{}
			return
		}
		a.InUse, a.Line = k.inUse(), len(k.line)
	}()
	if c := k.leaseOf(r.Holder); c != nil {
		a.Lease = k.lease(r.Key, c, now)
		switch {
		case c.revoked:
			return a, store.ErrRevoked
		case a.Lease.Cost() != r.Cost:
			return a, store.ErrOtherCost
		}
		return a, nil
	}
	place := len(k.line)
	for i, c := range k.line {
		if c.holder == r.Holder {
			if c.cost != r.Cost {
				return a, store.ErrOtherCost
			}
			place = i
		}
	}
	// Units go to those ahead first. Who does not fit is overtaken, or holds up the rest.
	free, held := r.Limit-k.inUse(), false
	var overtaken []*permitCell
	for _, c := range k.line[:place] {
		if c.cost > r.Limit {
			continue
		}
		if c.cost <= free {
			free -= c.cost
			continue
		}
		overtaken = append(overtaken, c)
		held = held || c.overtaken+r.Cost > r.Limit
	}
	waits := place < len(k.line)
	if !held && r.Cost <= free {
		for _, c := range overtaken {
			c.overtaken += r.Cost
		}
		if waits {
			k.line = append(k.line[:place], k.line[place+1:]...)
		}
		c := &permitCell{holder: r.Holder, ends: now + r.TTL.Microseconds(), ttl: r.TTL.Microseconds(), epoch: epoch}
		left := r.Cost
		for i := range k.cells {
			if left > 0 && k.cells[i] == nil {
				if epoch < now {
					return a, fmt.Errorf("the epoch is %d at %d", epoch, now)
				}
				k.cells[i] = c
				left--
			}
		}
		for _, other := range k.cells {
			if other != nil && other != c && other.epoch >= epoch {
				return a, fmt.Errorf("the epoch is %d behind %d", epoch, other.epoch)
			}
		}
		a.Lease = k.lease(r.Key, c, now)
		return a, nil
	}
	wait := r.Wait.Microseconds()
	switch {
	case wait == 0 && waits:
		k.line = append(k.line[:place], k.line[place+1:]...)
	case wait == 0:
	case waits:
		k.line[place].ends, k.line[place].ttl = now+wait, wait
		a.Waiting, a.Ahead = true, place
	case place < r.Queue:
		k.line = append(k.line, &permitCell{holder: r.Holder, ends: now + wait, ttl: wait, cost: r.Cost})
		a.Waiting, a.Ahead = true, place
	}
	return a, nil
}

func (o *permitOracle) renew(key, holder string, epoch int64, ttl time.Duration, now int64) (store.Lease, error) {
	k := o.at(key, now)
	c := k.leaseOf(holder)
	switch {
	case c == nil || c.epoch != epoch:
		return store.Lease{}, store.ErrNotHeld
	case c.revoked:
		return store.Lease{}, store.ErrRevoked
	}
	c.ttl = ttl.Microseconds()
	c.ends = now + c.ttl
	return k.lease(key, c, now), nil
}

func (o *permitOracle) release(key, holder string, epoch, now int64) (found bool) {
	k := o.at(key, now)
	for i, c := range k.cells {
		if c != nil && c.holder == holder && (epoch == 0 || c.epoch == epoch) {
			k.cells[i], found = nil, true
		}
	}
	return epoch == 0 && k.leave(holder) || found
}

func (k *permitKey) leave(holder string) bool {
	n := len(k.line)
	k.line = slices.DeleteFunc(k.line, func(c *permitCell) bool { return c.holder == holder })
	return len(k.line) < n
}

func (o *permitOracle) revoke(key, holder string, now int64) bool {
	k := o.at(key, now)
	left := k.leave(holder)
	c := k.leaseOf(holder)
	if c != nil {
		c.revoked = true
	}
	return c != nil || left
}

// holders lists the leases in the order of their epochs.
func (o *permitOracle) holders(key string, now int64) (all store.PermitHolders) {
	k := o.at(key, now)
	seen := map[*permitCell]bool{}
	for _, c := range k.cells {
		if c != nil && !seen[c] {
			seen[c] = true
			all.Leases = append(all.Leases, k.lease(key, c, now))
		}
	}
	slices.SortFunc(all.Leases, func(a, b store.Lease) int { return int(a.Epoch - b.Epoch) })
	for _, c := range k.line {
		all.Waiting = append(all.Waiting, store.Ticket{Holder: c.holder, Cost: c.cost, Remaining: time.Duration(c.ends-now) * time.Microsecond})
	}
	return all
}

// permitHistory compares a store with the oracle on random calls, under a clock that
// stands, goes on, and steps ahead and back.
func permitHistory(seed uint64, permits store.Permits, clock *Clock) error {
	rng := rand.New(rand.NewPCG(seed, 13))
	o := &permitOracle{keys: map[string]*permitKey{}}
	ctx := context.Background()
	held := map[[2]string]int64{} // the last epoch of each key and holder
	limits := []int64{1 + rng.Int64N(6), 1 + rng.Int64N(6)}
	changes := rng.IntN(3) == 0
	queue := rng.IntN(5)
	for step := range 150 {
		switch rng.IntN(40) {
		case 0:
			clock.Set(clock.Now() + int64(rng.IntN(10_000_000)))
		case 1:
			clock.Set(clock.Now() - int64(rng.IntN(3_000_000)))
		default:
			clock.Set(clock.Now() + int64(rng.IntN(3))*int64(rng.IntN(60_000)))
		}
		now := clock.Now()
		i := rng.IntN(len(keys))
		key, holder := keys[i], string(rune('a'+rng.IntN(8)))
		epoch := held[[2]string{key, holder}]
		ttl := time.Duration(100+rng.IntN(5)*100) * time.Millisecond
		var got, want any
		var err, wanted error
		var what string
		switch op := rng.IntN(20); {
		case op < 11:
			if changes && rng.IntN(20) == 0 {
				limits[i] = 1 + rng.Int64N(6)
			}
			r := store.PermitRequest{Key: key, Holder: holder, Cost: 1 + int64(holder[0])%3, Limit: limits[i], TTL: ttl, Queue: queue}
			if rng.IntN(30) == 0 {
				r.Cost = 1 + rng.Int64N(3)
			}
			r.Cost = min(r.Cost, r.Limit)
			if rng.IntN(3) != 0 {
				r.Wait = time.Duration(100+rng.IntN(300)) * time.Millisecond
			}
			what = fmt.Sprintf("acquire %+v", r)
			a, e := permits.Acquire(ctx, r)
			if e == nil && a.Granted() {
				held[[2]string{key, holder}] = a.Lease.Epoch
			}
			got, err = a, e
			want, wanted = o.acquire(r, now, a.Lease.Epoch)
		case op < 14 && epoch != 0:
			what = fmt.Sprintf("renew %s %s %d", key, holder, epoch)
			got, err = permits.Renew(ctx, key, holder, epoch, ttl)
			want, wanted = o.renew(key, holder, epoch, ttl, now)
		case op < 17:
			if rng.IntN(4) == 0 {
				epoch = 0
			}
			what = fmt.Sprintf("release %s %s %d", key, holder, epoch)
			got, err = permits.Release(ctx, key, holder, epoch)
			want = o.release(key, holder, epoch, now)
		case op < 18:
			what = fmt.Sprintf("revoke %s %s", key, holder)
			got, err = permits.Revoke(ctx, key, holder)
			want = o.revoke(key, holder, now)
		default:
			what = "holders " + key
			h, e := permits.Holders(ctx, key)
			slices.SortFunc(h.Leases, func(a, b store.Lease) int { return int(a.Epoch - b.Epoch) })
			got, err = h, e
			want = o.holders(key, now)
		}
		if !reflect.DeepEqual(got, want) || !errors.Is(err, wanted) || (err == nil) != (wanted == nil) {
			return fmt.Errorf("step %d at %d: %s:\n got %+v, %w\nwant %+v, %w", step, now, what, got, err, want, wanted)
		}
	}
	return nil
}
