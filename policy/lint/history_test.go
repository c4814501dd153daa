package lint

import (
	"math/rand/v2"
	"testing"
	"time"

	"github.com/headgate/headgate"
)

// charge is one admitted request, at a time in microseconds.
type charge struct{ at, cost int64 }

// admits decides by the definition of each algorithm, from the whole history.
func admits(l *headgate.Limit, history []charge, now, cost int64) bool {
	period := l.Micros()
	within := func(from, to int64) (sum int64) {
		for _, c := range history {
			if c.at >= from && c.at < to {
				sum += c.cost
			}
		}
		return sum
	}
	switch l.Algorithm {
	case headgate.SlidingWindow:
		return within(now-period+1, now+1)+cost <= l.Count
	case headgate.FixedWindow:
		start := now - now%period
		if l.Align == headgate.AlignFirst {
			start = -period
			for _, c := range history {
				if c.at >= start+period {
					start = c.at
				}
			}
			if now >= start+period {
				start = now
			}
		}
		return within(start, start+period)+cost <= l.Count
	case headgate.SlidingCounter:
		start := now - now%period
		before := within(start-period, start) * (period - (now - start))
		return within(start, start+period)+(before+period-1)/period+cost <= l.Count
	}
	// A bucket, in units of 1/period.
	var level, last int64
	for _, c := range append(history, charge{now, cost}) {
		level = max(0, level-(c.at-last)*l.Count) + c.cost*period
		last = c.at
	}
	return level <= l.Capacity()*period
}

// TestUselessLimitsNeverDeny draws pairs of limits and, where Lint calls one of
// them useless, drives requests at random: it must never be the one that denies.
func TestUselessLimitsNeverDeny(t *testing.T) {
	random := rand.New(rand.NewPCG(3, 4))
	draw := func() headgate.Limit {
		l := headgate.Limit{
			Algorithm: headgate.Algorithm(random.IntN(5)),
			Count:     1 + random.Int64N(12),
			Period:    time.Duration(1+random.IntN(12)) * time.Microsecond,
		}
		switch l.Algorithm {
		case headgate.TokenBucket, headgate.LeakyBucket:
			l.Burst = random.Int64N(12)
		case headgate.FixedWindow:
			l.Align = headgate.Alignment(random.IntN(2))
		}
		return l
	}
	found := make(map[[2]headgate.Algorithm]int)
	for range 20_000 {
		r, err := headgate.NewRule("r", draw(), draw())
		if err != nil {
			t.Fatal(err)
		}
		a, b := &r.Limits()[0], &r.Limits()[1]
		if useless(a, b) == "" {
			continue
		}
		found[[2]headgate.Algorithm{a.Algorithm, b.Algorithm}]++
		var history []charge
		for now := int64(1000); len(history) < 40 && now < 1300; now += random.Int64N(4) {
			cost := 1 + random.Int64N(3)
			if !admits(a, history, now, cost) {
				continue
			}
			if !admits(b, history, now, cost) {
				t.Fatalf("%v %q admits %d at %d and %v %q, called useless, does not; before: %v",
					a.Algorithm, a, cost, now, b.Algorithm, b, history)
			}
			history = append(history, charge{now, cost})
		}
	}
	if len(found) != 14 {
		t.Errorf("%d pairs of algorithms were found, want 14: %v", len(found), found)
	}
}
