package lease

import "github.com/headgate/headgate"

// scratch is memory for one call that later calls reuse.
type scratch struct {
	checks    []headgate.Check
	decisions []headgate.Decision
	places    []int // for each check, its index in the request
	held      [headgate.MaxChecks]claim
}

func (l *Layer) get() *scratch {
	s, _ := l.pool.Get().(*scratch)
	s.checks, s.decisions, s.places = s.checks[:0], s.decisions[:0], s.places[:0]
	return s
}

// put returns the scratch to the pool. It removes the request's keys first, so that the pool does
// not keep them alive.
func (l *Layer) put(s *scratch) {
	clear(s.checks)
	l.pool.Put(s)
}

// add adds a check of the request to the checks for the store, with the rule that the store is to
// enforce. place is the check's index in the request.
func (s *scratch) add(c *headgate.Check, enforced *headgate.Rule, place int) {
	s.checks = append(s.checks, *c)
	s.checks[len(s.checks)-1].Rule = enforced
	s.places = append(s.places, place)
}

// enforced returns the rule that the store is asked to enforce for a check.
func (l *Layer) enforced(c *headgate.Check) *headgate.Rule {
	if c.Consistency != headgate.Leased {
		return c.Rule
	}
	return l.plans.Of(c.Rule).strict
}

// show appends the store's decisions about one check of the request, which are the first ones in
// from, and relabels them. It also returns the rest of from.
func (s *scratch) show(dst, from []headgate.Decision, checks []headgate.Check, place int) (out, rest []headgate.Decision) {
	n := 0
	for n < len(from) && s.places[from[n].Check] == place {
		n++
	}
	before := len(dst)
	dst = append(dst, from[:n]...)
	for i := before; i < len(dst); i++ {
		relabel(&dst[i], &s.checks[dst[i].Check], &checks[place], place, i-before)
	}
	return dst, from[n:]
}

// relabel replaces the rule and limit of the store's decision by those that the caller knows. limit
// is the limit's index in the rule, and place the check's index in the request.
func relabel(d *headgate.Decision, asked, c *headgate.Check, place, limit int) {
	// A layer that decided by another rule names the limits of that rule, which stay.
	if enforced := asked.Rule.Limits(); limit < len(enforced) && d.Limit == &enforced[limit] {
		d.Limit = &c.Rule.Limits()[limit]
	}
	d.Rule, d.Check = c.Rule, place
}

// addAll adds all checks of the request.
func (s *scratch) addAll(l *Layer, checks []headgate.Check) {
	for i := range checks {
		s.add(&checks[i], l.enforced(&checks[i]), i)
	}
}

// showAll relabels the store's decisions about all checks of the request.
func (s *scratch) showAll(decisions []headgate.Decision, checks []headgate.Check) {
	limit := 0
	for i := range decisions {
		place := decisions[i].Check
		if limit++; i == 0 || place != decisions[i-1].Check {
			limit = 0
		}
		relabel(&decisions[i], &s.checks[place], &checks[place], place, limit)
	}
}
