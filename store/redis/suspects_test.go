package redis

import (
	"hash/maphash"
	"strconv"
	"testing"
	"time"

	"github.com/headgate/headgate"
	"github.com/headgate/headgate/internal/bubbletest"
)

// TestSuspects: a counter is suspected while it would probably deny, and no longer.
func TestSuspects(t *testing.T) {
	bubbletest.Test(t, func(t *testing.T) {
		rule := headgate.MustRule("r", headgate.Per(10, time.Minute), headgate.Sliding(10, time.Minute))
		limits := rule.Limits()
		table := suspects{seed: maphash.MakeSeed()}
		check := headgate.Check{Rule: rule, Key: "k", Cost: 2}
		shadow := check
		shadow.Shadow = true
		two := func(a, b headgate.Decision) []headgate.Decision {
			a.Limit, b.Limit = &limits[0], &limits[1]
			return []headgate.Decision{a, b}
		}
		well := headgate.Decision{Allowed: true, Remaining: 5, ResetAfter: time.Minute}
		for _, c := range []struct {
			name      string
			check     headgate.Check
			decisions []headgate.Decision
			want      time.Duration // for how long it is suspected
		}{
			{"all is well", check, two(well, well), 0},
			{"denied", check, two(well, headgate.Decision{RetryAfter: 300 * time.Millisecond}), 300 * time.Millisecond},
			{"denied for long", check, two(headgate.Decision{RetryAfter: time.Hour}, well), suspectFor},
			{"can never fit", check, two(headgate.Decision{RetryAfter: headgate.Never}, well), suspectFor},
			{"as much is left as was asked for", check, two(headgate.Decision{Allowed: true, Remaining: 2, ResetAfter: time.Minute}, well), 0},
			{"less is left", check, two(headgate.Decision{Allowed: true, Remaining: 1, ResetAfter: 200 * time.Millisecond}, well), 200 * time.Millisecond},
			{"a shadow is never suspected", shadow, two(headgate.Decision{RetryAfter: time.Hour}, well), 0},
			{"well again", check, two(well, well), 0},
		} {
			table.note([]headgate.Check{c.check}, c.decisions)
			if got := table.among([]headgate.Check{c.check}); got != (c.want > 0) {
				t.Errorf("%s: suspected %t", c.name, got)
			}
			if c.want > 0 {
				time.Sleep(c.want - time.Millisecond)
				if !table.among([]headgate.Check{c.check}) {
					t.Errorf("%s: not suspected for %v", c.name, c.want)
				}
				time.Sleep(2 * time.Millisecond)
				if table.among([]headgate.Check{c.check}) {
					t.Errorf("%s: suspected for longer than %v", c.name, c.want)
				}
			}
		}
	})
}

// TestSuspectsAreApart: one counter is not suspected for another, and any number of
// them takes no more memory.
func TestSuspectsAreApart(t *testing.T) {
	table := suspects{seed: maphash.MakeSeed()}
	a, b := headgate.MustRule("a", headgate.PerHour(1)), headgate.MustRule("b", headgate.PerHour(1))
	denied := []headgate.Decision{{Limit: &a.Limits()[0], RetryAfter: time.Hour}}
	for i := range 10_000 {
		table.note([]headgate.Check{{Rule: a, Key: strconv.Itoa(i)}}, denied)
	}
	for i := range 10_000 {
		for _, c := range []headgate.Check{{Rule: b, Key: strconv.Itoa(i)}, {Rule: a, Key: "x" + strconv.Itoa(i)}} {
			if table.among([]headgate.Check{c}) {
				t.Fatalf("%s %s is suspected, and was never asked", c.Rule.Name(), c.Key)
			}
		}
	}
	if allocs := testing.AllocsPerRun(100, func() {
		c := headgate.Check{Rule: a, Key: "k"}
		table.note([]headgate.Check{c}, denied)
		table.among([]headgate.Check{c})
	}); allocs != 0 {
		t.Errorf("%v allocations", allocs)
	}
}
