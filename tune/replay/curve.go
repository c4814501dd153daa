package replay

import (
	"context"
	"fmt"
	"math"
	"slices"
	"strconv"

	"github.com/headgate/headgate"
)

// factors are the multiples of its limits with which each rule is tried.
var factors = []float64{0.25, 0.5, 0.75, 1, 1.5, 2, 4}

// curve tries each rule, by itself, with lower and higher limits.
type curve struct {
	left  int64 // requests that are still to be tried
	store *timed
	// scaled has, for each list of limits, a check for each factor. They are in shadow, so that each
	// is decided and charged as if there were no other.
	scaled map[*headgate.Rule]*trial
	found  map[string]*tried // by the name of the rule
	room   []headgate.Decision
}

// trial is how one list of limits is tried.
type trial struct {
	of      *tried
	checks  []headgate.Check
	factors []int // the place of each check's factor in factors
}

// tried is the result for one rule.
type tried struct {
	name     string // of its counters
	requests int64
	denied   []int64 // with each factor
}

// curveBytes bounds the memory of the store.
const curveBytes = 336 << 20

func newCurve(requests int64) *curve {
	c := &curve{left: requests, scaled: make(map[*headgate.Rule]*trial), found: make(map[string]*tried)}
	if requests > 0 {
		c.store = newTimed(curveBytes)
	}
	return c
}

// add tries the checks of one request.
func (c *curve) add(checks []headgate.Check, at int64) {
	if c.left <= 0 {
		c.store = nil
		return
	}
	c.left--
	c.store.now.Store(at)
	for i := range checks {
		t := c.scaled[checks[i].Rule]
		if t == nil {
			t = c.trial(checks[i].Rule)
			c.scaled[checks[i].Rule] = t
		}
		t.of.requests++
		if len(t.checks) == 0 {
			continue
		}
		for j := range t.checks {
			t.checks[j].Key, t.checks[j].Cost = checks[i].Key, checks[i].Cost
		}
		var err error
		if c.room, err = c.store.Take(context.Background(), headgate.OpTake, t.checks, c.room[:0]); err != nil {
			panic(err) // As in decider.take.
		}
		last := -1
		for j := range c.room {
			if d := &c.room[j]; !d.Allowed && d.Check != last {
				t.of.denied[t.factors[d.Check]]++
				last = d.Check
			}
		}
	}
}

// trial returns how a list of limits is tried: multiplied by each factor, except where such limits
// are not valid. The lists of one rule share their counters, as those of its tiers do.
func (c *curve) trial(r *headgate.Rule) *trial {
	of := c.found[r.Name()]
	if of == nil {
		of = &tried{name: strconv.Itoa(len(c.found)), denied: make([]int64, len(factors))}
		c.found[r.Name()] = of
	}
	t := &trial{of: of}
	for i, f := range factors {
		limits := slices.Clone(r.Limits())
		for j := range limits {
			l := &limits[j]
			if l.Algorithm == headgate.Penalty {
				continue
			}
			l.Count = times(l.Count, f)
			if l.Burst != 0 {
				l.Burst = times(l.Burst, f)
			}
		}
		if rule, err := headgate.NewRule(fmt.Sprintf("%s*%g", of.name, f), limits...); err == nil {
			t.checks, t.factors = append(t.checks, headgate.Check{Rule: rule, Shadow: true}), append(t.factors, i)
		}
	}
	return t
}

func times(n int64, f float64) int64 { return max(1, int64(math.Round(float64(n)*f))) }
