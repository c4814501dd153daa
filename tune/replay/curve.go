package replay

import (
	"context"
	"math"

	"github.com/headgate/headgate"
)

// factors are the multiples of its limits with which each rule is tried.
var factors = []float64{0.25, 0.5, 0.75, 1, 1.5, 2, 4}

// curve tries each rule, by itself, with lower and higher limits.
type curve struct {
	left   int64 // requests that are still to be tried
	stores []*timed
	scaled map[*headgate.Rule][]*headgate.Rule
	found  map[string]*tried // by the name of the rule
	check  [1]headgate.Check
	room   []headgate.Decision
}

// tried is the result for one rule.
type tried struct {
	requests int64
	denied   []int64 // with each factor
}

// curveBytes bounds the memory of the store for each factor.
const curveBytes = 48 << 20

func newCurve(requests int64) *curve {
	c := &curve{left: requests, scaled: make(map[*headgate.Rule][]*headgate.Rule), found: make(map[string]*tried)}
	if requests > 0 {
		for range factors {
			c.stores = append(c.stores, newTimed(curveBytes))
		}
	}
	return c
}

// add tries the checks of one request.
func (c *curve) add(checks []headgate.Check, at int64) {
	if c.left <= 0 {
		c.stores = nil
		return
	}
	c.left--
	for i := range checks {
		rules, known := c.scaled[checks[i].Rule]
		if !known {
			rules = scale(checks[i].Rule)
			c.scaled[checks[i].Rule] = rules
		}
		t := c.found[checks[i].Rule.Name()]
		if t == nil {
			t = &tried{denied: make([]int64, len(factors))}
			c.found[checks[i].Rule.Name()] = t
		}
		t.requests++
		for j, rule := range rules {
			if rule == nil {
				continue
			}
			s := c.stores[j]
			s.now.Store(at)
			c.check[0] = checks[i]
			c.check[0].Rule, c.check[0].Shadow = rule, false
			var err error
			if c.room, err = s.Take(context.Background(), headgate.OpTake, c.check[:], c.room[:0]); err != nil {
				panic(err) // As in decider.take.
			}
			if !allowed(c.room) {
				t.denied[j]++
			}
		}
	}
}

// scale returns the rule with its limits multiplied by each factor, or nil where such limits are
// not valid.
func scale(r *headgate.Rule) []*headgate.Rule {
	all := make([]*headgate.Rule, len(factors))
	for i, f := range factors {
		limits := append([]headgate.Limit(nil), r.Limits()...)
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
		// The name stays: tiers of one rule share their counters.
		if rule, err := headgate.NewRule(r.Name(), limits...); err == nil {
			all[i] = rule
		}
	}
	return all
}

func times(n int64, f float64) int64 { return max(1, int64(math.Round(float64(n)*f))) }
