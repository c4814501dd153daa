package async

import (
	"time"

	"github.com/headgate/headgate"
)

// Fraction is which part of the demand for a key this node takes itself for.
func (a *Layer) Fraction(c *headgate.Check) float64 {
	s := a.shard(a.hash(c))
	s.mu.Lock()
	defer s.mu.Unlock()
	if e := s.find(c, a.options.Part); e != nil {
		return e.fraction
	}
	return 0
}

// StaleAfter is for how many intervals an answer of the store is good.
const StaleAfter = staleAfter

// Refuses reports whether a node denies a unit of a bucket without asking, some time
// after it heard that so many were left, while others take so many a second.
func Refuses(limit headgate.Limit, left, others float64, after time.Duration) bool {
	o := Options{Interval: DefaultInterval, Part: DefaultPart}
	var e entry
	e.init(headgate.MustRule("r", limit), o.Part)
	e.limits[0].level, e.others, e.goodUntil = left, others/1e6, after+1
	return e.decide(1, &o, after) == deny
}
