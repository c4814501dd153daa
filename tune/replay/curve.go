package replay

import (
	"math"
	"slices"

	"github.com/headgate/headgate"
	"github.com/headgate/headgate/tune/accesslog"
)

// factors are the multiples of its limits with which each rule is tried.
var factors = [...]float64{0.25, 0.5, 0.75, 1, 1.5, 2, 4}

// curve tries each rule, by itself, with lower and higher limits.
type curve struct {
	left     int64                     // requests that are still to be tried
	counters *counters                 // with a way for each factor; nil at the end
	scaled   map[*headgate.Rule]*trial // by list of limits
	found    map[string]*tried         // by the name of the rule
}

// trial is how one list of limits is tried.
type trial struct {
	of    *tried
	rules [len(factors)]*headgate.Rule // nil where such limits are not valid
}

// tried is the result for one rule.
type tried struct {
	requests int64
	denied   [len(factors)]int64
}

// maxTried is how many counters the curve may have: some 200 MB.
const maxTried = 1 << 20

func newCurve(requests int64) *curve {
	c := &curve{left: requests, scaled: make(map[*headgate.Rule]*trial), found: make(map[string]*tried)}
	if requests > 0 {
		c.counters = newCounters(len(factors), maxTried)
		c.counters.sweepAt = maxTried // So few requests seldom need that any are dropped.
	}
	return c
}

// add tries the checks of one request, which d has decided last.
func (c *curve) add(d *decider, r *accesslog.Request) {
	b, now := d.binding, headgate.Instant(r.Spread)
	at := c.counters.of(&b.tried, b.checks, now)
	for i := range b.checks {
		rule := b.checks[i].Rule
		free := b.awaits && r.Status != 0 && !d.bindings.set.Charged(&b.checks[i], int(r.Status))
		t := c.scaled[rule]
		if t == nil {
			t = c.trial(rule)
			c.scaled[rule] = t
		}
		t.of.requests++
		for way, scaled := range t.rules {
			switch {
			case scaled == nil:
			case !c.counters.takeOne(way, now, scaled, b.checks[i].Units(), at):
				t.of.denied[way]++
			case free:
				c.counters.refund(way, now, &headgate.Check{Rule: scaled, Cost: b.checks[i].Units()}, at)
			}
		}
		at = at[len(rule.Limits()):]
	}
	if c.left--; c.left == 0 {
		c.counters = nil
	}
}

// trial returns how a list of limits is tried: multiplied by each factor, except where such limits
// are not valid. The lists of one rule share their counters, as those of its tiers do.
func (c *curve) trial(r *headgate.Rule) *trial {
	of := c.found[r.Name()]
	if of == nil {
		of = new(tried)
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
		if rule, err := headgate.NewRule(r.Name(), limits...); err == nil {
			t.rules[i] = rule
		}
	}
	return t
}

func times(n int64, f float64) int64 { return max(1, int64(math.Round(float64(n)*f))) }
