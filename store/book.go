package store

import (
	"slices"
	"time"
)

// Book is the leases and the line of one key. The zero Book is empty. It is not safe for
// concurrent use. Times are microseconds since the Unix epoch on the store's clock, which
// may step back: nothing lasts longer from then on than its TTL.
type Book struct {
	// Epoch is that of the last lease.
	Epoch int64
	// Leases are in the order in which they were granted, Line in that of its places.
	Leases []Held
	Line   []Place
}

// Held is a lease in a book.
type Held struct {
	Holder  string
	Until   int64
	TTL     int64
	Epoch   int64
	Revoked bool
	Slots   []int
}

// Place is a place in line.
type Place struct {
	Holder string
	Until  int64
	TTL    int64
	Cost   int64
	// Passed is how many units overtook it because they fitted and it did not.
	Passed int64
}

// Look drops what has ended by now, and reports whether the book has changed. The other
// methods call it themselves.
func (b *Book) Look(now int64) bool {
	n, m, changed := len(b.Leases), len(b.Line), false
	b.Leases = slices.DeleteFunc(b.Leases, func(h Held) bool { return h.Until <= now })
	b.Line = slices.DeleteFunc(b.Line, func(p Place) bool { return p.Until <= now })
	for i := range b.Leases {
		changed = clamp(&b.Leases[i].Until, now+b.Leases[i].TTL) || changed
	}
	for i := range b.Line {
		changed = clamp(&b.Line[i].Until, now+b.Line[i].TTL) || changed
	}
	return changed || len(b.Leases) != n || len(b.Line) != m
}

// clamp lowers a time that lies too far ahead because the clock was set back.
func clamp(until *int64, most int64) bool {
	if *until <= most {
		return false
	}
	*until = most
	return true
}

// Empty reports whether nothing is held and nobody waits.
func (b *Book) Empty() bool { return len(b.Leases) == 0 && len(b.Line) == 0 }

// keepEpoch is how long a book is kept after its last lease was granted, in µs, so that
// epochs grow even if two leases are granted in the same microsecond, or the clock steps
// back a little.
const keepEpoch = 10_000_000

// Keep is until when the book has to be kept if nobody calls it any more. It may be
// forgotten if that is now or earlier.
func (b *Book) Keep(now int64) int64 {
	until := int64(0)
	if b.Epoch > 0 {
		until = min(b.Epoch+keepEpoch, now+MaxTTL.Microseconds())
	}
	for i := range b.Leases {
		until = max(until, b.Leases[i].Until)
	}
	for i := range b.Line {
		until = max(until, b.Line[i].Until)
	}
	return until
}

// Acquire is [Permits.Acquire] for a valid request.
func (b *Book) Acquire(r *PermitRequest, now int64) (PermitAnswer, error) {
	b.Look(now)
	cost := r.Units()
	if i := b.held(r.Holder); i >= 0 {
		switch h := &b.Leases[i]; {
		case h.Revoked:
			return PermitAnswer{}, ErrRevoked
		case int64(len(h.Slots)) != cost:
			return PermitAnswer{}, ErrOtherCost
		default:
			return b.answer(PermitAnswer{Lease: h.lease(r.Key, now)}), nil
		}
	}
	place := slices.IndexFunc(b.Line, func(p Place) bool { return p.Holder == r.Holder })
	if place >= 0 && b.Line[place].Cost != cost {
		return PermitAnswer{}, ErrOtherCost
	}
	ahead := place
	if ahead < 0 {
		ahead = len(b.Line)
	}
	if b.turn(b.Line[:ahead], cost, r.Limit) {
		if place >= 0 {
			b.Line = slices.Delete(b.Line, place, place+1)
		}
		return b.answer(PermitAnswer{Lease: b.grant(r, now).lease(r.Key, now)}), nil
	}
	ttl := r.Wait.Microseconds()
	switch {
	case ttl == 0 && place >= 0:
		b.Line = slices.Delete(b.Line, place, place+1)
	case ttl == 0:
	case place >= 0:
		b.Line[place].Until, b.Line[place].TTL = now+ttl, ttl
		return b.answer(PermitAnswer{Waiting: true, Ahead: ahead}), nil
	case len(b.Line) < r.Queue:
		b.Line = append(b.Line, Place{Holder: r.Holder, Until: now + ttl, TTL: ttl, Cost: cost})
		return b.answer(PermitAnswer{Waiting: true, Ahead: ahead}), nil
	}
	return b.answer(PermitAnswer{}), nil
}

// turn reports whether the cost may be granted to somebody who has these places ahead,
// and notes with them that they were overtaken. What is free belongs first to those ahead
// whom it suffices. One whom it does not suffice may be overtaken, until units of the
// whole limit have done so; from then on what becomes free is kept for it.
func (b *Book) turn(ahead []Place, cost, limit int64) bool {
	room := limit - b.inUse()
	for i := range ahead {
		switch p := &ahead[i]; {
		case p.Cost > limit: // it waits under another limit
		case p.Cost <= room:
			room -= p.Cost
		case p.Passed+cost > limit:
			return false
		}
	}
	if cost > room {
		return false
	}
	room = limit - b.inUse()
	for i := range ahead {
		switch p := &ahead[i]; {
		case p.Cost > limit:
		case p.Cost <= room:
			room -= p.Cost
		default:
			p.Passed += cost
		}
	}
	return true
}

// grant makes a lease of the lowest slots that are free.
func (b *Book) grant(r *PermitRequest, now int64) *Held {
	taken := make([]bool, r.Limit)
	for i := range b.Leases {
		for _, slot := range b.Leases[i].Slots {
			if int64(slot) < r.Limit {
				taken[slot] = true
			}
		}
	}
	slots := make([]int, 0, r.Units())
	for slot := 0; int64(len(slots)) < r.Units(); slot++ {
		if !taken[slot] {
			slots = append(slots, slot)
		}
	}
	b.Epoch = max(b.Epoch+1, now)
	ttl := r.TTL.Microseconds()
	b.Leases = append(b.Leases, Held{Holder: r.Holder, Until: now + ttl, TTL: ttl, Epoch: b.Epoch, Slots: slots})
	return &b.Leases[len(b.Leases)-1]
}

// answer adds to an answer how the key stands.
func (b *Book) answer(a PermitAnswer) PermitAnswer {
	a.InUse, a.Line = b.inUse(), len(b.Line)
	return a
}

func (b *Book) inUse() int64 {
	n := int64(0)
	for i := range b.Leases {
		n += int64(len(b.Leases[i].Slots))
	}
	return n
}

func (b *Book) held(holder string) int {
	return slices.IndexFunc(b.Leases, func(h Held) bool { return h.Holder == holder })
}

// Renew is [Permits.Renew] for valid arguments.
func (b *Book) Renew(key, holder string, epoch int64, ttl time.Duration, now int64) (Lease, error) {
	b.Look(now)
	i := b.held(holder)
	if i < 0 || b.Leases[i].Epoch != epoch {
		return Lease{}, ErrNotHeld
	}
	h := &b.Leases[i]
	if h.Revoked {
		return Lease{}, ErrRevoked
	}
	h.TTL = ttl.Microseconds()
	h.Until = now + h.TTL
	return h.lease(key, now), nil
}

// Release is [Permits.Release] for valid arguments.
func (b *Book) Release(holder string, epoch, now int64) bool {
	b.Look(now)
	n := len(b.Leases) + len(b.Line)
	b.Leases = slices.DeleteFunc(b.Leases, func(h Held) bool {
		return h.Holder == holder && (epoch == 0 || h.Epoch == epoch)
	})
	if epoch == 0 {
		b.leave(holder)
	}
	return len(b.Leases)+len(b.Line) < n
}

func (b *Book) leave(holder string) {
	b.Line = slices.DeleteFunc(b.Line, func(p Place) bool { return p.Holder == holder })
}

// Revoke is [Permits.Revoke] for valid arguments.
func (b *Book) Revoke(holder string, now int64) bool {
	b.Look(now)
	n := len(b.Line)
	b.leave(holder)
	i := b.held(holder)
	if i >= 0 {
		b.Leases[i].Revoked = true
	}
	return i >= 0 || len(b.Line) < n
}

// Holders is [Permits.Holders].
func (b *Book) Holders(key string, now int64) PermitHolders {
	b.Look(now)
	var all PermitHolders
	for i := range b.Leases {
		all.Leases = append(all.Leases, b.Leases[i].lease(key, now))
	}
	for _, p := range b.Line {
		all.Waiting = append(all.Waiting, Ticket{p.Holder, p.Cost, micros(p.Until - now)})
	}
	return all
}

// lease is what callers are told of a lease.
func (h *Held) lease(key string, now int64) Lease {
	return Lease{
		Key: key, Holder: h.Holder, Fence: Fence{slices.Clone(h.Slots), h.Epoch},
		Remaining: micros(h.Until - now), TTL: micros(h.TTL), Revoked: h.Revoked,
	}
}

func micros(n int64) time.Duration { return time.Duration(n) * time.Microsecond }
