package lease_test

import (
	"fmt"
	"slices"

	"github.com/headgate/headgate"
)

// passage is units that a caller was told to go ahead with, on the store's clock.
type passage struct{ at, units int64 }

// ledgerOf is all that became of one key under one rule. It shares nothing with what
// it judges: only the times of admissions, and the limits as their texts say.
type ledgerOf struct {
	admitted []passage
	resets   []int64
	// loose is units that others held when the key was reset, of which the store
	// forgot; gifts is what refunds may have given back to buckets twice.
	loose, gifts int64
	// late is what of a limit may be admitted later than it is counted, if that is not
	// provided for; nil if it is.
	late func(*headgate.Limit) int64
}

func (g *ledgerOf) admit(at, units int64) {
	g.admitted = append(g.admitted, passage{at, units})
}

// over returns how a limit was exceeded, or "".
func (g *ledgerOf) over(l *headgate.Limit) string {
	slices.SortFunc(g.admitted, func(a, b passage) int { return int(a.at - b.at) })
	from := int64(0)
	for _, until := range append(slices.Clone(g.resets), 1<<62) {
		var some []passage
		for _, a := range g.admitted {
			// What came in the microsecond of a reset may be on either side of it.
			if a.at > from && a.at < until {
				some = append(some, a)
			}
		}
		extra := int64(0)
		if from != 0 {
			extra = g.loose
		}
		if g.late != nil {
			extra += g.late(l)
		}
		if at, used, most := exceeds(l, some, extra, g.gifts); at != 0 {
			return fmt.Sprintf("%v: %d units in use at %d, of at most %d", l, used, at, most)
		}
		from = until
	}
	return ""
}

// exceeds returns when more than a limit's own rule allows were in use; zero if
// never. The admissions are in order.
func exceeds(l *headgate.Limit, some []passage, extra, gifts int64) (at, used, most int64) {
	period := l.Period.Microseconds()
	switch l.Algorithm {
	case headgate.TokenBucket:
		// In use are units × period; count of them drain in a microsecond.
		level, last := int64(0), int64(0)
		most = l.Capacity() + extra + gifts
		for _, a := range some {
			level = max(0, level-(a.at-last)*l.Count) + a.units*period
			last = a.at
			if level > most*period {
				return a.at, (level + period - 1) / period, most
			}
		}
	case headgate.SlidingWindow:
		first, sum := 0, int64(0)
		most = l.Count + extra
		for _, a := range some {
			sum += a.units
			for some[first].at <= a.at-period {
				sum -= some[first].units
				first++
			}
			if sum > most {
				return a.at, sum, most
			}
		}
	case headgate.FixedWindow, headgate.SlidingCounter:
		windows := map[int64]int64{}
		for _, a := range some {
			windows[a.at/period] += a.units
		}
		so := map[int64]int64{}
		most = l.Count + extra
		for _, a := range some {
			w := a.at / period
			so[w] += a.units
			sum := so[w]
			if l.Algorithm == headgate.SlidingCounter {
				sum += (windows[w-1]*(period-a.at%period) + period - 1) / period
			}
			if sum > most {
				return a.at, sum, most
			}
		}
	}
	return 0, 0, most
}

// inUse is how many of the units admitted until now, in order, a limit counts.
func inUse(l *headgate.Limit, some []passage, now int64) int64 {
	period := l.Period.Microseconds()
	used := int64(0)
	switch l.Algorithm {
	case headgate.TokenBucket:
		level, last := int64(0), int64(0)
		for _, a := range some {
			if a.at > now {
				break
			}
			level = max(0, level-(a.at-last)*l.Count) + a.units*period
			last = a.at
		}
		return (max(0, level-(now-last)*l.Count) + period - 1) / period
	case headgate.SlidingWindow:
		for _, a := range some {
			if a.at > now-period && a.at <= now {
				used += a.units
			}
		}
	default:
		before := int64(0)
		for _, a := range some {
			switch {
			case a.at > now:
			case a.at/period == now/period:
				used += a.units
			case a.at/period == now/period-1:
				before += a.units
			}
		}
		if l.Algorithm == headgate.SlidingCounter {
			used += (before*(period-now%period) + period - 1) / period
		}
	}
	return used
}

// judgeDenial holds a denial, in a history where nothing fails, against the bound on
// early ones: all nodes together hold half of what the limit admits at most.
func (w *crowd) judgeDenial(c *headgate.Check, d *headgate.Decision) {
	g := w.ledger(c)
	if !w.calm || c.Consistency != headgate.Leased || len(g.resets) > 0 || d.Source != headgate.SourceStore {
		return
	}
	if hasBucket(c.Rule) && !w.plain {
		return // A refund need not give all back to a bucket.
	}
	strict := w.nodes[0].lease.Enforced(c.Rule)
	for i := range strict.Limits() {
		if &c.Rule.Limits()[i] != d.Limit {
			continue
		}
		l := &strict.Limits()[i]
		slack := w.count*(l.Capacity()/(2*w.count)) + w.asking[counted{c.Rule.Name(), c.Key}]
		if hasBucket(c.Rule) {
			// What a bucket had refilled when it came back does not come back.
			for _, n := range w.nodes {
				slack += n.lease.Stats().Lost
			}
		}
		// A unit was charged before it was admitted, and is counted for longer here.
		if used := inUse(l, g.admitted, int64(d.At)); used+c.Units() <= l.Capacity()-slack {
			w.wrong = append(w.wrong, fmt.Sprintf("%v of %v: a cost of %d denied at %d with %d in use of %d, and at most %d held", l, c.Rule, c.Units(), d.At, used, l.Capacity(), slack))
		}
	}
}

func hasBucket(r *headgate.Rule) bool {
	return slices.ContainsFunc(r.Limits(), func(l headgate.Limit) bool { return l.Algorithm == headgate.TokenBucket })
}
