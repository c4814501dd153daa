package layered

import "github.com/headgate/headgate"

// Fraction is which part of the demand for a key this node takes itself for.
func (a *Async) Fraction(c *headgate.Check) float64 {
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
