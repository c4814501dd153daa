package storetest

import (
	"context"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/headgate/headgate"
)

// Cases about many callers at once. The clock stands still, so that the number
// admitted does not depend on how fast the machine is.

// crowd is how many goroutines there are.
const crowd = 200

// rush runs f in all goroutines at once, in each so many times one after the other.
func rush(tries int, f func(goroutine, try int)) {
	var start, done sync.WaitGroup
	start.Add(1)
	for g := range crowd {
		done.Go(func() {
			start.Wait()
			for i := range tries {
				f(g, i)
			}
		})
	}
	start.Done()
	done.Wait()
}

func sharedExactly(t *testing.T, mk Maker) {
	const limit, tries = 200, 2 // half of those who ask are admitted
	rules := map[string][]headgate.Limit{"all": everything(limit)}
	for _, l := range everything(limit) {
		rules[l.Algorithm.String()+" "+l.String()] = []headgate.Limit{l}
	}
	for name, limits := range rules {
		t.Run(name, func(t *testing.T) {
			s := newSubject(t, mk)
			r := headgate.MustRule("r", limits...)
			var admitted, failed atomic.Int64
			rush(tries, func(int, int) {
				got, err := s.store.Take(context.Background(), headgate.OpTake, []headgate.Check{{Rule: r, Key: "k"}}, nil)
				switch {
				case err != nil:
					failed.Add(1)
				case headgate.NewVerdict(got).Allowed:
					admitted.Add(1)
				}
			})
			if admitted.Load() != limit || failed.Load() != 0 {
				t.Errorf("%d were admitted of %d tries, and %d failed; want exactly %d, and 0", admitted.Load(), crowd*tries, failed.Load(), limit)
			}
			for _, d := range s.do(headgate.OpPeek, headgate.Check{Rule: r, Key: "k"}) {
				if d.Remaining != 0 {
					t.Errorf("%v: %d remain, want 0", d.Limit, d.Remaining)
				}
			}
		})
	}
}

// sharedTogether has requests whose checks overlap in any order: they must not wait
// for one another for ever, and what one of their limits denies no other must have
// counted.
func sharedTogether(t *testing.T, mk Maker) {
	s := newSubject(t, mk)
	const keys = 16
	rules := []*headgate.Rule{
		headgate.MustRule("client", headgate.PerHour(100)),
		headgate.MustRule("ip", headgate.Sliding(90, time.Hour), headgate.PerHour(200)),
		headgate.MustRule("all", headgate.Limit{Algorithm: headgate.FixedWindow, Count: 700, Period: time.Hour, Align: headgate.AlignFirst}),
	}
	var used [2][keys]atomic.Int64 // admitted units by rule and key
	var total, failed atomic.Int64
	rush(5, func(g, i int) { // more in all than the last rule admits
		a, b := (g+i)%keys, (g*7+i*3)%keys
		checks := []headgate.Check{
			{Rule: rules[0], Key: string(rune('a' + a)), Cost: int64(1 + i%2)},
			{Rule: rules[1], Key: string(rune('a' + b))},
			{Rule: rules[2]},
		}
		if g%2 == 1 { // in another order
			checks[0], checks[2] = checks[2], checks[0]
		}
		got, err := s.store.Take(context.Background(), headgate.OpTake, checks, nil)
		switch {
		case err != nil:
			failed.Add(1)
		case headgate.NewVerdict(got).Allowed:
			used[0][a].Add(int64(1 + i%2))
			used[1][b].Add(1)
			total.Add(1)
		}
	})
	if failed.Load() != 0 {
		t.Fatalf("%d requests failed", failed.Load())
	}
	if total.Load() > 700 {
		t.Errorf("%d requests were admitted, want at most 700", total.Load())
	}
	for i, r := range rules {
		for k := range keys {
			key, want := "", total.Load()
			if i < 2 {
				key, want = string(rune('a'+k)), used[i][k].Load()
			}
			for _, d := range s.do(headgate.OpPeek, headgate.Check{Rule: r, Key: key}) {
				if got := d.Limit.Capacity() - d.Remaining; got != want {
					t.Errorf("rule %s, key %q: %d units are in use, %d were admitted", r.Name(), key, got, want)
				}
			}
		}
	}
}

// takenAndGivenBack returns each unit: at no time are more out than the limit, and
// in the end none.
func takenAndGivenBack(t *testing.T, mk Maker) {
	const limit = 20
	s := newSubject(t, mk)
	r := headgate.MustRule("r", everything(limit)...)
	var out, most, failed atomic.Int64
	rush(3, func(int, int) {
		checks := []headgate.Check{{Rule: r, Key: "k"}}
		got, err := s.store.Take(context.Background(), headgate.OpTake, checks, nil)
		if err != nil {
			failed.Add(1)
			return
		}
		if !headgate.NewVerdict(got).Allowed {
			return
		}
		n := out.Add(1)
		for m := most.Load(); n > m && !most.CompareAndSwap(m, n); m = most.Load() {
			continue
		}
		out.Add(-1)
		checks[0].At = got[0].At
		if _, err := s.store.Take(context.Background(), headgate.OpRefund, checks, nil); err != nil {
			failed.Add(1)
		}
	})
	if most.Load() > limit || failed.Load() != 0 {
		t.Errorf("%d units were out at once, want at most %d; %d calls failed", most.Load(), limit, failed.Load())
	}
	for _, d := range s.do(headgate.OpPeek, headgate.Check{Rule: r, Key: "k"}) {
		if d.Remaining != limit || d.ResetAfter != 0 {
			t.Errorf("%v: %s; want all of %d", d.Limit, formatDecision(&d), limit)
		}
	}
}
