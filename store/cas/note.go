package cas

import (
	"fmt"
	"time"

	"github.com/headgate/headgate"
	"github.com/headgate/headgate/store"
)

// note is what is remembered of a request. It holds the limits as well, so that a process
// whose rules have changed since can settle it.
type note struct {
	reserved bool // or taken
	admitted bool
	chosen   bool  // the caller gave the id
	term     int64 // in µs
	expires  headgate.Instant
	at       headgate.Instant // when it was decided
	checks   []noted
	answers  []answer // one for each limit

	// Only for a reservation:
	finished  bool // settled or abandoned
	units     []int64
	settled   []answer
	settledAt headgate.Instant
}

// noted is one check of a note.
type noted struct {
	check  headgate.Check // without its rule
	name   string         // of the rule
	tag    string
	limits string // as appendLimits writes them
	count  int    // of the limits
}

// answer is a decision without the parts that are the same for all decisions of a note.
type answer struct {
	allowed                bool
	remaining              int64
	retryAfter, resetAfter time.Duration
	delay                  time.Duration
}

func newNote(terms *headgate.Terms, reserve, chosen bool, checks []headgate.Check, decisions []headgate.Decision) *note {
	n := &note{
		reserved: reserve, admitted: headgate.NewVerdict(decisions).Allowed, chosen: chosen,
		term: terms.Term().Microseconds(), at: decisions[0].At, answers: answers(decisions),
	}
	n.expires = n.at + headgate.Instant(n.term)
	for i := range checks {
		c := checks[i]
		limits := c.Rule.Limits()
		n.checks = append(n.checks, noted{c, c.Rule.Name(), c.Rule.Tag(), string(appendLimits(nil, limits)), len(limits)})
	}
	return n
}

func answers(decisions []headgate.Decision) []answer {
	all := make([]answer, len(decisions))
	for i := range decisions {
		d := &decisions[i]
		all[i] = answer{d.Allowed, d.Remaining, d.RetryAfter, d.ResetAfter, d.Delay}
	}
	return all
}

// decisions appends the answers, as decisions on the limits of the checks.
func decisions(dst []headgate.Decision, all []answer, at headgate.Instant, checks []headgate.Check) []headgate.Decision {
	for i := range checks {
		limits := checks[i].Rule.Limits()
		for j := range limits {
			a := &all[j]
			dst = append(dst, headgate.Decision{
				Rule: checks[i].Rule, Limit: &limits[j], Check: i, Shadow: checks[i].Shadow, At: at,
				Allowed: a.allowed, Remaining: a.remaining, RetryAfter: a.retryAfter, ResetAfter: a.resetAfter, Delay: a.delay,
			})
		}
		all = all[len(limits):]
	}
	return dst
}

// forgotten returns when the note is of no more use.
func (n *note) forgotten() headgate.Instant {
	switch {
	case !n.reserved || !n.admitted:
		return n.expires
	case n.chosen:
		return n.expires + headgate.Instant(store.SettledFor.Microseconds())
	case n.units != nil:
		return n.settledAt + headgate.Instant(store.RepeatFor.Microseconds())
	}
	return n.expires
}

// pending reports whether the note may have units to give back when it expires.
func (n *note) pending() bool {
	if !n.reserved || !n.admitted || n.finished {
		return false
	}
	for i := range n.checks {
		if n.checks[i].check.GiveBack && n.charged(i) {
			return true
		}
	}
	return false
}

// charged reports whether check i of an admitted request was charged, that is, whether it was
// not a shadow that did not fit.
func (n *note) charged(i int) bool {
	all := n.answers
	for j := range i {
		all = all[n.checks[j].count:]
	}
	for _, a := range all[:n.checks[i].count] {
		if !a.allowed {
			return false
		}
	}
	return true
}

// same reports whether the checks are those of the note. Limits are not compared.
func (n *note) same(checks []headgate.Check) bool {
	if len(checks) != len(n.checks) {
		return false
	}
	for i := range checks {
		a, b := &n.checks[i], &checks[i]
		if a.name != b.Rule.Name() || a.check.Key != b.Key || a.check.Units() != b.Units() ||
			n.reserved && (a.check.GiveBack != b.GiveBack || max(a.check.Factor, 1) != max(b.Factor, 1)) {
			return false
		}
	}
	return true
}

// sameLimits reports whether checks that are the same have the same limits.
func (n *note) sameLimits(checks []headgate.Check) bool {
	for i := range checks {
		if checks[i].Shadow != n.checks[i].check.Shadow || !n.checks[i].of(checks[i].Rule) {
			return false
		}
	}
	return true
}

// of reports whether the check's rule had the limits of r.
func (c *noted) of(r *headgate.Rule) bool {
	return r.Name() == c.name && r.Tag() == c.tag && string(appendLimits(nil, r.Limits())) == c.limits
}

// reservation returns the note's reservation, or zero if nothing was charged. It uses the
// rules of like if they are the same, and makes new ones otherwise.
func (n *note) reservation(id string, like []headgate.Check) (headgate.Reservation, error) {
	if !n.reserved || !n.admitted {
		return headgate.Reservation{}, nil
	}
	checks := make([]headgate.Check, len(n.checks))
	for i := range checks {
		var err error
		checks[i] = n.checks[i].check
		if checks[i].Rule, err = n.checks[i].rule(like); err != nil {
			return headgate.Reservation{}, fmt.Errorf("%w: the note of a request cannot be read: %w", headgate.ErrUnavailable, err)
		}
	}
	return store.NewReservation(id, n.expires, checks, decisions(nil, n.answers, n.at, checks)), nil
}

func (c *noted) rule(like []headgate.Check) (*headgate.Rule, error) {
	for i := range like {
		if c.of(like[i].Rule) {
			return like[i].Rule, nil
		}
	}
	limits, err := readLimits(c.limits)
	if err != nil {
		return nil, err
	}
	r, err := headgate.NewRule(c.name, limits...)
	if err == nil && c.tag != "" {
		r, err = r.WithTag(c.tag)
	}
	return r, err
}
