package storetest

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/headgate/headgate"
	"github.com/headgate/headgate/store"
)

// Cases about what goes in and comes out.

func invalidRequests(t *testing.T, mk Maker) {
	r, other := headgate.MustRule("r", headgate.PerHour(9)), headgate.MustRule("other", headgate.PerHour(9))
	ok := headgate.Check{Rule: r, Key: "k"}
	many := make([]headgate.Check, headgate.MaxChecks+1)
	for i := range many {
		many[i] = headgate.Check{Rule: r, Key: fmt.Sprint(i)}
	}
	for name, c := range map[string]struct {
		op     headgate.Op
		checks []headgate.Check
	}{
		"an unknown operation":       {headgate.OpCharge + 1, []headgate.Check{ok}},
		"no checks":                  {headgate.OpTake, nil},
		"too many checks":            {headgate.OpTake, many},
		"no rule":                    {headgate.OpTake, []headgate.Check{{Key: "k"}}},
		"a rule of no limits":        {headgate.OpTake, []headgate.Check{{Rule: new(headgate.Rule), Key: "k"}}},
		"a negative cost":            {headgate.OpTake, []headgate.Check{{Rule: r, Key: "k", Cost: -1}}},
		"a cost too large":           {headgate.OpPeek, []headgate.Check{{Rule: r, Key: "k", Cost: headgate.MaxCount + 1}}},
		"a key too long":             {headgate.OpReset, []headgate.Check{{Rule: r, Key: strings.Repeat("k", headgate.MaxKey+1)}}},
		"a rule and key twice":       {headgate.OpTake, []headgate.Check{ok, {Rule: other, Key: "k"}, ok}},
		"a refund of the same twice": {headgate.OpRefund, []headgate.Check{ok, ok}},
		"two rules of one name":      {headgate.OpTake, []headgate.Check{ok, {Rule: headgate.MustRule("r", headgate.PerSecond(1)), Key: "k"}}},
		"several mistakes":           {headgate.OpTake, []headgate.Check{ok, {Rule: r, Key: "l", Cost: -3}, {}, {Rule: other, Key: strings.Repeat("k", 2000)}}},
	} {
		t.Run(name, func(t *testing.T) {
			s := newSubject(t, mk)
			got, err := s.store.Take(context.Background(), c.op, c.checks, nil)
			var invalid *headgate.InvalidError
			if !errors.As(err, &invalid) || !errors.Is(err, headgate.ErrInvalid) || len(got) != 0 {
				t.Fatalf("got %d decisions and error %v, want an *InvalidError", len(got), err)
			}
			if want := store.Validate(c.op, c.checks).Error(); err.Error() != want {
				t.Errorf("error %q\nwant  %q", err, want)
			}
			s.want(headgate.OpPeek, r, "k", 1, true, 9)
			s.want(headgate.OpPeek, other, "k", 1, true, 9)
		})
	}
}

func keysOfAnyKind(t *testing.T, mk Maker) {
	s := newSubject(t, mk)
	keys := []string{
		"", " ", "  ", "\x00", "\x00\x00", "\n", "\r\n", "a", "A", "a ", " a", "a\x00", "a b", "a\tb", "a/b", "a:b", "{a}", "{a}b", "}{", "{}", "*", "?", "[a]", "\\", "\"", "'",
		"é", "e\u0301", "日本", "\xff\xfe", "\xc3\x28", "a r", "r a", "other k", "192.0.2.1", "2001:db8::/64",
		strings.Repeat("k", headgate.MaxKey), strings.Repeat("k", headgate.MaxKey-1) + "l", strings.Repeat("\x00", headgate.MaxKey), strings.Repeat("{", headgate.MaxKey),
	}
	rules := []*headgate.Rule{
		headgate.MustRule("r", headgate.PerHour(100)),
		headgate.MustRule("r:a", headgate.Sliding(100, time.Hour)),
		headgate.MustRule("other/k%s*?[x]\\", headgate.PerHour(100), headgate.Sliding(100, time.Hour)),
		headgate.MustRule("ré", headgate.PerHour(100)),
	}
	cost := func(i, j int) int64 { return int64(1 + (i*len(rules)+j)%97) }
	for i, k := range keys {
		for j, r := range rules {
			s.want(headgate.OpTake, r, k, cost(i, j), true, 100-cost(i, j))
		}
	}
	for i, k := range keys {
		for j, r := range rules {
			s.want(headgate.OpPeek, r, k, 1, cost(i, j) < 100, 100-cost(i, j))
		}
	}
}

func largestRequest(t *testing.T, mk Maker) {
	s := newSubject(t, mk)
	checks := make([]headgate.Check, headgate.MaxChecks)
	for i := range checks {
		limits := make([]headgate.Limit, headgate.MaxLimits)
		for j := range limits {
			limits[j] = everything(100)[(i+j)%7]
		}
		name := fmt.Sprintf("%02d", i) + strings.Repeat("n", headgate.MaxName-2)
		checks[i] = headgate.Check{Rule: headgate.MustRule(name, limits...), Key: strings.Repeat("k", headgate.MaxKey), Cost: int64(1 + i%9)}
	}
	for range 2 {
		s.do(headgate.OpTake, checks...)
	}
	tight := &checks[len(checks)-1]
	cost := tight.Cost
	tight.Cost = 101 - 2*cost
	for i, d := range s.do(headgate.OpTake, checks...) {
		used := 2 * checks[d.Check].Cost
		if d.Check == len(checks)-1 {
			used = 2 * cost
		}
		if d.Allowed != (d.Check < len(checks)-1) || d.Remaining != 100-used {
			t.Fatalf("decision %d, check %d: %s; want %d used, and only the last check denied", i, d.Check, formatDecision(&d), used)
		}
	}
	s.do(headgate.OpRefund, checks...)
	s.do(headgate.OpReset, checks...)
	for i, d := range s.do(headgate.OpPeek, checks...) {
		if d.Remaining != 100 {
			t.Fatalf("decision %d after a reset: %s", i, formatDecision(&d))
		}
	}
}

func largestCosts(t *testing.T, mk Maker) {
	const most = headgate.MaxCount
	for _, l := range []headgate.Limit{
		headgate.PerSecond(most),
		headgate.Per(most, headgate.MaxPeriod),
		{Algorithm: headgate.LeakyBucket, Count: most, Period: time.Microsecond},
		{Algorithm: headgate.FixedWindow, Count: most, Period: headgate.MaxPeriod},
		{Algorithm: headgate.FixedWindow, Count: most, Align: headgate.AlignYear},
		{Algorithm: headgate.SlidingCounter, Count: most, Period: headgate.MaxPeriod},
		{Algorithm: headgate.SlidingCounter, Count: most, Period: time.Second},
	} {
		s := newSubject(t, mk)
		r := headgate.MustRule("r", l)
		for _, cost := range []int64{1, most - 1, most} {
			s.want(headgate.OpTake, r, "k", cost, true, most-cost)
			s.want(headgate.OpTake, r, "k", most-cost+1, false, most-cost)
			s.want(headgate.OpRefund, r, "k", cost, true, most)
		}
		s.want(headgate.OpTake, r, "k", most, true, 0)
		c := headgate.Check{Rule: r, Key: "k", Cost: most}
		s.retry(s.do(headgate.OpTake, c)[0], headgate.OpTake, c)
	}
	s := newSubject(t, mk)
	r := headgate.MustRule("r", headgate.Sliding(headgate.MaxLog, headgate.MaxPeriod))
	s.want(headgate.OpTake, r, "k", headgate.MaxLog-9, true, 9)
	for i := range int64(9) {
		s.want(headgate.OpTake, r, "k", 1, true, 8-i)
	}
	c := headgate.Check{Rule: r, Key: "k", Cost: headgate.MaxLog}
	s.retry(s.do(headgate.OpTake, c)[0], headgate.OpTake, c)
}

// decisionsAreAppended: the caller's slice keeps what it has, whether it has room
// for more or not.
func decisionsAreAppended(t *testing.T, mk Maker) {
	s := newSubject(t, mk)
	checks := []headgate.Check{
		{Rule: headgate.MustRule("one", headgate.PerHour(3)), Key: "k"},
		{Rule: headgate.MustRule("all", everything(3)...), Key: "k"},
	}
	sentinel := headgate.Decision{Remaining: 4711, RetryAfter: time.Hour}
	for n := range 3 {
		for _, room := range []int{0, 1, 4, 64} {
			for _, op := range []headgate.Op{headgate.OpTake, headgate.OpPeek, headgate.OpRefund, headgate.OpReset, headgate.OpCharge} {
				for _, count := range []int{1, 2} {
					dst := make([]headgate.Decision, n, n+room)
					for i := range dst {
						dst[i] = sentinel
					}
					got, err := s.store.Take(context.Background(), op, checks[:count], dst)
					if err != nil {
						t.Fatal(err)
					}
					want := n
					if op != headgate.OpReset {
						want += []int{1, 8}[count-1]
					}
					if len(got) != want {
						t.Fatalf("%s of %d checks with %d decisions before: %d, want %d", op, count, n, len(got), want)
					}
					for i := range n {
						if got[i] != sentinel || dst[i] != sentinel {
							t.Fatalf("%s of %d checks overwrote decision %d of %d", op, count, i, n)
						}
					}
				}
			}
		}
	}
}

// endedContext: a store may refuse to begin what nobody waits for, or do it. Either
// it decides, or it says why not and has charged nothing.
func endedContext(t *testing.T, mk Maker) {
	ended := map[string]func() (context.Context, context.CancelFunc){
		"cancelled": func() (context.Context, context.CancelFunc) { return context.WithCancel(context.Background()) },
		"past its deadline": func() (context.Context, context.CancelFunc) {
			return context.WithDeadline(context.Background(), time.Unix(1, 0))
		},
	}
	for name, end := range ended {
		t.Run(name, func(t *testing.T) {
			s := newSubject(t, mk)
			ctx, cancel := end()
			cancel()
			for i, r := range []*headgate.Rule{headgate.MustRule("one", headgate.PerHour(9)), headgate.MustRule("all", everything(9)...)} {
				got, err := s.store.Take(ctx, headgate.OpTake, []headgate.Check{{Rule: r, Key: "k", Cost: 4}}, nil)
				left := int64(9)
				switch {
				case err == nil:
					if left = 5; !headgate.NewVerdict(got).Allowed || len(got) != len(r.Limits()) {
						t.Errorf("rule %d: neither an error nor %d decisions: %v", i, len(r.Limits()), got)
					}
				case len(got) != 0 || !errors.Is(err, headgate.ErrUnavailable) && !errors.Is(err, ctx.Err()):
					t.Errorf("rule %d: %d decisions and error %v; want none, and one that wraps ErrUnavailable or %v", i, len(got), err, ctx.Err())
				}
				s.want(headgate.OpPeek, r, "k", 1, true, left)
			}
		})
	}
}
