package cas_test

import (
	"fmt"
	"testing"
	"time"

	"github.com/headgate/headgate"
	"github.com/headgate/headgate/internal/race"
	"github.com/headgate/headgate/store/cas"
)

// TestSkew: nodes whose clocks differ by no more than they are told admit together, in
// a time T, what the limit admits in T and the difference, however often they take
// turns at a counter.
func TestSkew(t *testing.T) {
	const (
		second = int64(time.Second / time.Microsecond)
		start  = 1_800_000_000 * second
		step   = second / 1000
		length = 5 * second
	)
	for _, limit := range []headgate.Limit{
		headgate.Per(10, 10*time.Second),
		headgate.PerSecond(50),
		headgate.Per(10, 100*time.Millisecond).WithBurst(5),
		{Algorithm: headgate.FixedWindow, Count: 10, Period: 5 * time.Second},
		{Algorithm: headgate.FixedWindow, Count: 10, Period: 200 * time.Millisecond},
		{Algorithm: headgate.FixedWindow, Count: 10, Period: 200 * time.Millisecond, Align: headgate.AlignFirst},
		headgate.Sliding(10, 5*time.Second),
		headgate.Sliding(10, 200*time.Millisecond),
		{Algorithm: headgate.SlidingCounter, Count: 10, Period: 5 * time.Second},
		{Algorithm: headgate.SlidingCounter, Count: 10, Period: 200 * time.Millisecond},
	} {
		for _, apart := range []time.Duration{300 * time.Millisecond, 5 * time.Millisecond, time.Second}[:race.Fewer(3)] {
			t.Run(fmt.Sprintf("%v, %v apart", limit, apart), func(t *testing.T) {
				now := start
				f := newFake(1)
				var nodes []*cas.Store
				for _, ahead := range []int64{0, apart.Microseconds()} {
					nodes = append(nodes, newStore(t, f, cas.Skew(time.Second), cas.Clock(func() int64 { return now + ahead })))
				}
				checks := []headgate.Check{{Rule: headgate.MustRule("r", limit), Key: "k"}}
				admitted := int64(0)
				for turn := 0; now < start+length; turn++ {
					got, err := nodes[turn%len(nodes)].Take(t.Context(), headgate.OpTake, checks, nil)
					if err != nil {
						t.Fatal(err)
					}
					if got[0].Allowed {
						admitted++
					}
					now += step
				}
				// By the clock that is ahead, which goes on for so long.
				elapsed := length + apart.Microseconds()
				period := limit.Period.Microseconds()
				most := limit.Capacity() + limit.Count*elapsed/period
				if limit.Algorithm != headgate.TokenBucket {
					most = limit.Count * (elapsed/period + 2)
				}
				least := limit.Count * (length - apart.Microseconds()) / period * 9 / 10
				if admitted > most || admitted < least {
					t.Errorf("%d units were admitted, at most %d may be, and at least %d", admitted, most, least)
				}
			})
		}
	}
}

// TestSkewBound: a counter that lies farther in the future than clocks may differ has
// been left by a clock that was wrong and has been set back: it goes on from now.
func TestSkewBound(t *testing.T) {
	now := int64(1_800_000_000_000_000)
	f := newFake(1)
	s := newStore(t, f, cas.Skew(time.Second), cas.Clock(func() int64 { return now }))
	limiter := headgate.New(s, headgate.MustRule("r", headgate.PerSecond(10)))
	for _, back := range []time.Duration{time.Second, time.Second + time.Microsecond, time.Hour} {
		if err := limiter.Reset(t.Context(), "k"); err != nil {
			t.Fatal(err)
		}
		if d, err := limiter.AllowN(t.Context(), "k", 10); err != nil || !d.Allowed {
			t.Fatalf("%+v, %v", d, err)
		}
		before := now
		now -= back.Microseconds()
		d, err := limiter.Allow(t.Context(), "k")
		at, retry := now, 100*time.Millisecond
		if back <= time.Second {
			at, retry = before, retry+back // until this node's clock is there
		}
		if err != nil || d.Allowed || int64(d.At) != at || d.RetryAfter != retry {
			t.Errorf("set back by %v: %+v, %v; want a denial at %d for %v", back, d, err, at, retry)
		}
		now += retry.Microseconds() - 1
		if d, err := limiter.Allow(t.Context(), "k"); err != nil || d.Allowed {
			t.Errorf("set back by %v: a microsecond early: %+v, %v; want a denial", back, d, err)
		}
		now++
		if d, err := limiter.Allow(t.Context(), "k"); err != nil || !d.Allowed {
			t.Errorf("set back by %v: in time: %+v, %v; want an admission", back, d, err)
		}
		now += 2 * time.Hour.Microseconds()
	}
}

// TestSkewOfRemembered: requests that are remembered, and their settlements, tell the same
// times as those that are not.
func TestSkewOfRemembered(t *testing.T) {
	const behind = 400 * time.Millisecond
	now := int64(1_800_000_000_000_000)
	l := newLedger(t, newFake(manyKeys), cas.Skew(time.Second), cas.Clock(func() int64 { return now }))
	c := headgate.Check{Rule: headgate.MustRule("r", headgate.PerSecond(10)), Key: "k", Cost: 10}
	terms := func(id string) headgate.Terms { return headgate.Terms{ID: id, For: time.Minute} }
	made, _, err := l.Reserve(t.Context(), terms("first"), []headgate.Check{c}, nil)
	if err != nil || made.ID == "" {
		t.Fatalf("%+v, %v", made, err)
	}
	now -= behind.Microseconds()
	for _, one := range []struct {
		name string
		ask  func(headgate.Check) ([]headgate.Decision, error)
	}{
		{"Take", func(c headgate.Check) ([]headgate.Decision, error) {
			return l.Take(t.Context(), headgate.OpTake, []headgate.Check{c}, nil)
		}},
		{"TakeOnce", func(c headgate.Check) ([]headgate.Decision, error) {
			return l.TakeOnce(t.Context(), terms("second"), []headgate.Check{c}, nil)
		}},
		{"TakeOnce repeated", func(c headgate.Check) ([]headgate.Decision, error) {
			return l.TakeOnce(t.Context(), terms("second"), []headgate.Check{c}, nil)
		}},
		{"Reserve", func(c headgate.Check) ([]headgate.Decision, error) {
			_, d, err := l.Reserve(t.Context(), terms("third"), []headgate.Check{c}, nil)
			return d, err
		}},
	} {
		d, err := one.ask(c)
		if err != nil || len(d) != 1 || d[0].Allowed || d[0].RetryAfter != time.Second+behind || d[0].ResetAfter != time.Second+behind {
			t.Errorf("%s: %+v, %v; want a denial for %v", one.name, d, err, time.Second+behind)
		}
	}
	d, err := l.Settle(t.Context(), made, []int64{5}, nil)
	if want := time.Second/2 + behind; err != nil || len(d) != 1 || d[0].ResetAfter != want {
		t.Errorf("Settle: %+v, %v; want a reset after %v", d, err, want)
	}
}

// TestSkewOfOwnRates: nodes whose clocks differ take turns at a list that is slower than another
// one was. What it has in use of its own drains at its own rate, also while nothing is in use any
// more of what the lists share.
func TestSkewOfOwnRates(t *testing.T) {
	const second = int64(time.Second / time.Microsecond)
	now := 1_800_000_000 * second
	f := newFake(1)
	var nodes []*cas.Store
	for _, ahead := range []int64{0, second} {
		nodes = append(nodes, newStore(t, f, cas.Skew(time.Second), cas.Clock(func() int64 { return now + ahead })))
	}
	fast := headgate.MustRule("r", headgate.PerSecond(1000))
	slow := headgate.MustRule("r", headgate.PerSecond(5).WithBurst(1000))
	ask := func(node int, op headgate.Op, c headgate.Check) headgate.Decision {
		t.Helper()
		c.Key = "k"
		got, err := nodes[node].Take(t.Context(), op, []headgate.Check{c}, nil)
		if err != nil {
			t.Fatal(err)
		}
		return got[0]
	}
	ask(1, headgate.OpTake, headgate.Check{Rule: slow, Cost: 1000})
	ask(1, headgate.OpPeek, headgate.Check{Rule: fast})
	now += 2 * second // the fast list has everything back, the slow one ten units
	for range 60 {
		took := ask(1, headgate.OpTake, headgate.Check{Rule: slow})
		ask(1, headgate.OpRefund, headgate.Check{Rule: slow, At: took.At})
		ask(0, headgate.OpPeek, headgate.Check{Rule: slow})
	}
	// Ten units, and those of the second by which the clocks differ.
	if d := ask(1, headgate.OpPeek, headgate.Check{Rule: slow}); d.Remaining > 15 {
		t.Errorf("%d units remain of the slow list, want at most 15", d.Remaining)
	}
}
