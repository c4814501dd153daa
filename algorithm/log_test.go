package algorithm_test

import (
	"math/rand/v2"
	"slices"
	"testing"
	"time"

	"github.com/headgate/headgate"
	"github.com/headgate/headgate/algorithm"
)

// units is a log as a list of the time of each unit.
type units []headgate.Instant

func (u units) inside(l *headgate.Limit, now headgate.Instant) (n int64) {
	for _, at := range u {
		if at > now-headgate.Instant(l.Micros()) {
			n++
		}
	}
	return n
}

// refund takes back the newest units of those at the time at or before.
func (u *units) refund(cost int64, at headgate.Instant) {
	for i := len(*u) - 1; i >= 0 && cost > 0; i-- {
		if at == 0 || (*u)[i] <= at {
			*u = slices.Delete(*u, i, i+1)
			cost--
		}
	}
}

// TestLog holds a log against a list of units, through everything that can be done
// to it.
func TestLog(t *testing.T) {
	rng := rand.New(rand.NewPCG(9, 10))
	for range 200 {
		rule := headgate.MustRule("r", headgate.Sliding(1+rng.Int64N(60), time.Duration(1+rng.IntN(400))*time.Microsecond),
			headgate.Sliding(1+rng.Int64N(60), time.Duration(1+rng.IntN(400))*time.Microsecond))
		need := algorithm.NeedOf(rule)
		l, o := &rule.Limits()[0], &rule.Limits()[1]
		if want := (algorithm.Need{Horizon: algorithm.Micros(max(l.Micros(), o.Micros())), Count: max(l.Count, o.Count)}); need != want {
			t.Fatalf("the need of %v is %v, want %v", rule, need, want)
		}
		horizon := need.Horizon
		log, list, now := new(algorithm.Log), units{}, epoch
		for step := range 400 {
			now += headgate.Instant(rng.Int64N(20))
			if rng.IntN(30) == 0 {
				now += headgate.Instant(horizon)
			}
			switch rng.IntN(10) {
			case 1:
				cost, at := 1+rng.Int64N(30), headgate.Instant(0)
				if rng.IntN(2) == 0 {
					at = now - headgate.Instant(rng.Int64N(100))
				}
				// A unit that has left all windows by the time of the newest one is
				// forgotten, and not given back.
				if len(list) > 0 {
					newest := list[len(list)-1]
					list = slices.DeleteFunc(list, func(at headgate.Instant) bool { return at <= newest-headgate.Instant(horizon) })
				}
				log.Refund(cost, at)
				list.refund(cost, at)
			case 2:
				copied := log.Clone()
				copied.Open(now+1, algorithm.Need{Horizon: 2 * horizon, Count: 1})
				copied.Add(now+1, 99)
				copied.Refund(1000, 0)
			default:
				cost := 1 + rng.Int64N(7)
				log.Open(now, need)
				log.Add(now, cost)
				for range cost {
					list = append(list, now)
				}
			}
			for i := range rule.Limits() {
				l, cost := &rule.Limits()[i], 1+rng.Int64N(70)
				used := list.inside(l, now)
				f := log.Facts(l, now, cost)
				if f.Used != used || f.Fits(l, cost) != (used+cost <= l.Count) {
					t.Fatalf("step %d, %v: %d units inside, cost %d fits %t; want %d", step, l, f.Used, cost, f.Fits(l, cost), used)
				}
				var d headgate.Decision
				f.Describe(&d, l, now, cost, false)
				if d.RetryAfter > 0 {
					then := now + headgate.Instant(d.RetryAfter.Microseconds())
					if list.inside(l, then-1)+cost <= l.Count || list.inside(l, then)+cost > l.Count {
						t.Fatalf("step %d, %v, cost %d: %v is not when it first fits", step, l, cost, d.RetryAfter)
					}
				} else if (d.RetryAfter == headgate.Never) != (cost > l.Count) || d.RetryAfter == 0 && !d.Allowed {
					t.Fatalf("step %d, %v, cost %d: %+v", step, l, cost, d)
				}
				if free := now + headgate.Instant(d.ResetAfter.Microseconds()); list.inside(l, free) != 0 || used > 0 && list.inside(l, free-1) == 0 {
					t.Fatalf("step %d, %v: %v is not when it is first free", step, l, d.ResetAfter)
				}
			}
		}
	}
}

// TestLogMerge: units that were merged leave later than they came, never earlier.
func TestLogMerge(t *testing.T) {
	l := one(t, headgate.Sliding(10, 100*time.Microsecond))
	log, need := new(algorithm.Log), algorithm.Need{Horizon: 100, Count: 10}
	log.Open(epoch, need)
	log.Merge(epoch, 3) // into an empty log
	log.Open(epoch+10, need)
	log.Add(epoch+10, 2)
	size := log.Bytes()
	log.Open(epoch+50, need)
	log.Merge(epoch+50, 4)
	if log.Len() != 2 || log.Bytes() != size {
		t.Errorf("%d entries in %d bytes after a merge, want 2 in %d", log.Len(), log.Bytes(), size)
	}
	for _, c := range []struct {
		after headgate.Instant
		used  int64
	}{{50, 9}, {99, 9}, {100, 6}, {110, 6}, {149, 6}, {150, 0}} {
		if f := log.Facts(l, epoch+c.after, 1); f.Used != c.used {
			t.Errorf("%d µs later %d units are inside, want %d", c.after, f.Used, c.used)
		}
	}
}

// TestLogClamp: entries of the future move to now, those that had left stay away.
func TestLogClamp(t *testing.T) {
	l := one(t, headgate.Sliding(10, 100*time.Microsecond))
	log := new(algorithm.Log)
	for _, after := range []headgate.Instant{0, 60, 110, 120} {
		log.Open(epoch+after, algorithm.Need{Horizon: 100, Count: 10})
		log.Add(epoch+after, 1)
	}
	// By 120 µs, 0 and what came at 20 or before had left.
	now := epoch + 65
	if !log.Stepped(now) || log.Stepped(epoch+120) {
		t.Error("the log does not know whether the clock stepped back")
	}
	log.Clamp(now)
	if f := log.Facts(l, now, 9); f.Used != 3 || f.Newest != now || f.Blocking != now || log.Stepped(now) {
		t.Errorf("after the clamp: %+v, want 3 units, one of 60 µs and two of now", f)
	}
	if f := log.Facts(l, epoch+160, 1); f.Used != 2 {
		t.Errorf("at 160 µs: %+v, want 2 units", f)
	}
	if f := log.Facts(l, now+100, 1); f.Used != 0 {
		t.Errorf("100 µs later: %+v, want none", f)
	}
	empty := new(algorithm.Log)
	empty.Clamp(now)
	if empty.Stepped(0) || empty.Len() != 0 {
		t.Error("an empty log has stepped")
	}
}

// TestLogFreesMemory: a log that was long and is short gives its memory back.
func TestLogFreesMemory(t *testing.T) {
	log := new(algorithm.Log)
	need := algorithm.Need{Horizon: 9_900, Count: 10_000}
	for i := range headgate.Instant(10_000) {
		log.Open(epoch+i, need)
		log.Add(epoch+i, 1)
	}
	if log.Bytes() < 10_000*algorithm.EntryBytes {
		t.Fatalf("%d bytes for 10,000 entries", log.Bytes())
	}
	log.Open(epoch+19_799, need)
	if log.Len() != 100 || log.Bytes() > 400*algorithm.EntryBytes {
		t.Errorf("%d entries in %d bytes, want 100 in at most 6,400", log.Len(), log.Bytes())
	}
	log.Open(epoch+30_000, need)
	if log.Len() != 0 || log.Bytes() != 0 {
		t.Errorf("%d entries in %d bytes, want none", log.Len(), log.Bytes())
	}
	log.Add(epoch+30_000, 1)
	small := log.Bytes()
	log.Open(epoch+50_000, need)
	if log.Len() != 0 || log.Bytes() != small {
		t.Errorf("%d entries in %d bytes, want none, and the room for the next", log.Len(), log.Bytes())
	}
}
