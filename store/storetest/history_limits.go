package storetest

import (
	"slices"
	"time"

	"github.com/headgate/headgate"
)

// limit makes up a limit. Some have rates with long remainders, some products
// beyond 64 bits.
func (h *history) limit(known bool) headgate.Limit {
	if h.long && h.rng.IntN(4) != 0 {
		return headgate.Sliding(40+h.rng.Int64N(600), time.Duration(1+h.rng.IntN(20))*time.Second)
	}
	l := headgate.Limit{Algorithm: headgate.Algorithm(h.rng.IntN(5)), Count: 1 + h.rng.Int64N(30)}
	switch h.rng.IntN(8) {
	case 0:
		l.Period = time.Duration(1+h.rng.IntN(50)) * time.Microsecond
	case 1:
		l.Period = time.Duration(1+h.rng.IntN(30)) * 24 * time.Hour
		l.Count = 1 + h.rng.Int64N(headgate.MaxLog)
	case 2:
		l.Period = time.Duration(1+h.rng.Int64N(10_000_000)) * time.Microsecond
	default:
		l.Period = time.Duration(1+h.rng.IntN(90)) * time.Second
	}
	if h.rng.IntN(6) == 0 && l.Algorithm != headgate.SlidingWindow {
		l.Count = 1 + h.rng.Int64N(headgate.MaxCount)
	}
	switch l.Algorithm {
	case headgate.TokenBucket, headgate.LeakyBucket:
		if h.rng.IntN(2) == 0 {
			l.Burst = 1 + h.rng.Int64N(4*l.Count)
			l.Burst = min(l.Burst, headgate.MaxCount)
		}
	case headgate.FixedWindow:
		switch h.rng.IntN(3) {
		case 0:
			l.Align = headgate.AlignFirst
		case 1:
			if !known {
				l.Align, l.Period = headgate.AlignMinute+headgate.Alignment(h.rng.IntN(6)), 0
				if h.rng.IntN(2) == 0 {
					l.Location = h.zone
				}
			}
		}
	}
	return l
}

// penalty makes up a penalty.
func (h *history) penalty() headgate.Limit {
	period := time.Duration(1+h.rng.Int64N(int64(20*time.Second/time.Microsecond))) * time.Microsecond
	block := time.Duration(1+h.rng.IntN(20_000)) * time.Millisecond
	l := headgate.Blocking(1+h.rng.Int64N(4), period, block, 0)
	if h.rng.IntN(3) != 0 {
		l.MaxBlock = block * time.Duration(1+h.rng.IntN(20))
	}
	return l
}

func (h *history) rule(name string, known bool) *headgate.Rule {
	for {
		limits := make([]headgate.Limit, 1+h.rng.IntN(3))
		for i := range limits {
			limits[i] = h.limit(known)
		}
		if h.rng.IntN(4) == 0 {
			limits = slices.Insert(limits, h.rng.IntN(len(limits)+1), h.penalty())
		}
		if r, err := headgate.NewRule(name, limits...); err == nil {
			return r
		}
	}
}

// another makes up one more list of limits of a rule: one of those that there are with
// other counts, in another order, with a limit more or less, or one of its own.
func (h *history) another(lists []*headgate.Rule, known bool) *headgate.Rule {
	like := lists[h.rng.IntN(len(lists))]
	for {
		limits := slices.Clone(like.Limits())
		h.rng.Shuffle(len(limits), func(i, j int) { limits[i], limits[j] = limits[j], limits[i] })
		switch h.rng.IntN(5) {
		case 0:
			limits = limits[:1+h.rng.IntN(len(limits))]
		case 1:
			limits = append(limits, h.limit(known))
		case 2:
			limits[h.rng.IntN(len(limits))] = h.limit(known)
		case 3:
			limits = h.rule(like.Name(), known).Limits()
		}
		for i := range limits {
			h.recount(&limits[i])
		}
		if h.notes.gives {
			agree(limits, lists)
		}
		if r, err := headgate.NewRule(like.Name(), limits...); err == nil {
			return r
		}
	}
}

// recount gives a limit another count or burst.
func (h *history) recount(l *headgate.Limit) {
	if h.rng.IntN(2) == 0 {
		return
	}
	switch l.Algorithm {
	case headgate.TokenBucket, headgate.LeakyBucket:
		l.Burst = 1 + h.rng.Int64N(min(headgate.MaxCount, 4*l.Capacity()))
		if h.rng.IntN(3) != 0 && !h.notes.gives {
			l.Count = 1 + h.rng.Int64N(min(headgate.MaxCount, 4*l.Count))
		}
	case headgate.SlidingWindow:
		l.Count = 1 + h.rng.Int64N(min(headgate.MaxLog, 2*l.Count))
	case headgate.Penalty:
		period := l.Period
		*l = h.penalty()
		l.Period = period
	default:
		l.Count = 1 + h.rng.Int64N(min(headgate.MaxCount, 2*l.Count))
	}
}

// agree gives buckets that share a counter with one of another list the same rate.
func agree(limits []headgate.Limit, lists []*headgate.Rule) {
	for i := range limits {
		l := &limits[i]
		for _, r := range lists {
			for _, o := range r.Limits() {
				if o.Algorithm != l.Algorithm || o.Period != l.Period {
					continue
				}
				if l.Algorithm == headgate.TokenBucket || l.Algorithm == headgate.LeakyBucket {
					l.Burst = max(l.Burst, l.Count)
					l.Count = o.Count
				}
			}
		}
	}
}

// changed gives a rule other counts and bursts. A bucket that is full is not made
// slower: by the new rate it would not be, but the store may have forgotten it.
func (h *history) changed(r *headgate.Rule, busy []bool) *headgate.Rule {
	limits := append([]headgate.Limit(nil), r.Limits()...)
	for i := range limits {
		l := &limits[i]
		switch l.Algorithm {
		case headgate.TokenBucket, headgate.LeakyBucket:
			l.Burst = 1 + h.rng.Int64N(min(headgate.MaxCount, 4*l.Capacity()))
			if count := 1 + h.rng.Int64N(min(headgate.MaxCount, 2*l.Count)); !h.notes.gives {
				l.Count = count
			}
		case headgate.SlidingWindow:
			l.Count = 1 + h.rng.Int64N(min(headgate.MaxLog, 2*l.Count))
		case headgate.Penalty:
			// Not the longest block: a store may have forgotten what it would keep.
			l.Count = 1 + h.rng.Int64N(4)
		default:
			l.Count = 1 + h.rng.Int64N(min(headgate.MaxCount, 2*l.Count))
		}
	}
	if next, err := headgate.NewRule(r.Name(), limits...); err == nil {
		return next
	}
	return r
}
