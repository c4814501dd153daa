package cas

import (
	"errors"
	"fmt"
	"slices"

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
	checks   []noteCheck
	answers  []headgate.Decision // one for each limit, without what decisions adds

	// Only for a reservation:
	finished  bool // settled or expired
	units     []int64
	settled   []headgate.Decision
	settledAt headgate.Instant
}

// noteCheck is one check of a note.
type noteCheck struct {
	check  headgate.Check // without its rule
	name   string         // of the rule
	tag    string
	limits string // as codeLimits writes them
	count  int    // of the limits
}

func newNote(terms *headgate.Terms, reserve, chosen bool, checks []headgate.Check, decisions []headgate.Decision) *note {
	n := &note{
		reserved: reserve, admitted: headgate.NewVerdict(decisions).Allowed, chosen: chosen,
		term: terms.Term().Microseconds(), at: decisions[0].At, answers: slices.Clone(decisions),
	}
	n.expires = n.at + headgate.Instant(n.term)
	for i := range checks {
		c := checks[i]
		limits := c.Rule.Limits()
		n.checks = append(n.checks, noteCheck{c, c.Rule.Name(), c.Rule.Tag(), limitsText(limits), len(limits)})
	}
	return n
}

// decisions appends the answers, as decisions on the limits of the checks.
func decisions(dst, answers []headgate.Decision, at headgate.Instant, checks []headgate.Check) []headgate.Decision {
	for i := range checks {
		limits := checks[i].Rule.Limits()
		for j := range limits {
			d := answers[j]
			d.Rule, d.Limit, d.Check, d.Shadow, d.At = checks[i].Rule, &limits[j], i, checks[i].Shadow, at
			dst = append(dst, d)
		}
		answers = answers[len(limits):]
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
	return !slices.ContainsFunc(all[:n.checks[i].count], func(d headgate.Decision) bool { return !d.Allowed })
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
func (c *noteCheck) of(r *headgate.Rule) bool {
	return r.Name() == c.name && r.Tag() == c.tag && limitsText(r.Limits()) == c.limits
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

func (c *noteCheck) rule(like []headgate.Check) (*headgate.Rule, error) {
	for i := range like {
		if c.of(like[i].Rule) {
			return like[i].Rule, nil
		}
	}
	var limits []headgate.Limit
	if err := decode([]byte(c.limits), func(f *codec) { codeLimits(f, &limits) }); err != nil {
		return nil, err
	}
	r, err := headgate.NewRule(c.name, limits...)
	if err == nil && c.tag != "" {
		r, err = r.WithTag(c.tag)
	}
	return r, err
}

// maxText bounds each text of a note: the limits of a rule, with the names of their
// zones.
const maxText = 1 << 13

// code describes the bytes of a note.
func (n *note) code(c *codec) {
	c.version()
	// Older versions of the program do not set the flag of ids that the store made up.
	settled, madeUp := n.units != nil, !n.chosen
	c.flags(&n.reserved, &n.admitted, &n.finished, &settled, &madeUp)
	n.chosen = !madeUp
	signed(c, &n.term)
	signed(c, &n.expires)
	signed(c, &n.at)
	list(c, &n.checks, headgate.MaxChecks, func(one *noteCheck) { one.code(c) })
	codeAnswers(c, &n.answers)
	if settled {
		signed(c, &n.settledAt)
		list(c, &n.units, headgate.MaxChecks, func(u *int64) { unsigned(c, u, headgate.MaxCount) })
		codeAnswers(c, &n.settled)
	}
	if c.err == nil && !c.writes {
		c.fail(n.check(settled))
	}
}

// check returns an error if what was read is no note.
func (n *note) check(settled bool) error {
	limits, charged := 0, 0
	for i := range n.checks {
		limits += n.checks[i].count
	}
	switch {
	case len(n.checks) == 0:
		return errors.New("it has no checks")
	case len(n.answers) != limits:
		return fmt.Errorf("it has %d answers for %d limits", len(n.answers), limits)
	}
	for i := range n.checks {
		if n.charged(i) {
			charged += n.checks[i].count
		}
	}
	if settled && (len(n.units) == 0 || len(n.settled) != charged) {
		return fmt.Errorf("it has %d costs and %d answers for %d limits that were settled", len(n.units), len(n.settled), charged)
	}
	return nil
}

func (c *noteCheck) code(f *codec) {
	k := &c.check
	k.Cost, k.Factor = k.Units(), max(k.Factor, 0)
	f.text(&c.name, headgate.MaxName)
	f.text(&c.tag, headgate.MaxTag)
	f.text(&k.Key, headgate.MaxKey)
	unsigned(f, &k.Cost, headgate.MaxCount)
	unsigned(f, &k.Factor, 1<<62)
	f.flags(&k.GiveBack, &k.Shadow)
	octet(f, &k.OnError)
	octet(f, &k.Consistency)
	octet(f, &k.DenyCache)
	unsigned(f, &c.count, headgate.MaxLimits)
	f.text(&c.limits, maxText)
	if f.err == nil && (c.limits == "" || int(c.limits[0]) != c.count) {
		f.fail(errors.New("it miscounts its limits"))
	}
}

func codeAnswers(c *codec, all *[]headgate.Decision) {
	list(c, all, headgate.MaxChecks*headgate.MaxLimits, func(d *headgate.Decision) {
		never, retry := d.RetryAfter == headgate.Never, d.RetryAfter
		if never {
			retry = 0
		}
		c.flags(&d.Allowed, &never)
		unsigned(c, &d.Remaining, headgate.MaxCount)
		c.duration(&retry)
		c.duration(&d.ResetAfter)
		c.duration(&d.Delay)
		if d.RetryAfter = retry; never {
			d.RetryAfter = headgate.Never
		}
	})
}

// limitsText is all that NewRule needs of a rule's limits.
func limitsText(limits []headgate.Limit) string {
	return string(encode(func(c *codec) { codeLimits(c, &limits) }))
}

func codeLimits(c *codec, limits *[]headgate.Limit) {
	const most = uint64(headgate.MaxPeriod)
	list(c, limits, headgate.MaxLimits, func(l *headgate.Limit) {
		octet(c, &l.Algorithm)
		octet(c, &l.Align)
		unsigned(c, &l.Count, headgate.MaxCount)
		unsigned(c, &l.Burst, headgate.MaxCount)
		unsigned(c, &l.Period, most)
		unsigned(c, &l.Block, most)
		unsigned(c, &l.MaxBlock, most)
		zone := ""
		if l.Location != nil {
			zone = l.Location.String()
		}
		c.text(&zone, maxText)
		if zone != "" && !c.writes && c.err == nil {
			var err error
			l.Location, err = headgate.LoadLocation(zone)
			c.fail(err)
		}
	})
}
