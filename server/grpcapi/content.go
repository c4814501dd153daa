package grpcapi

import (
	"fmt"
	"sync"
	"time"

	"google.golang.org/protobuf/proto"

	"github.com/headgate/headgate"
	headgatev1 "github.com/headgate/headgate/api/headgate/v1"
)

// ruleCache spares the work of making a rule for every check that brings it: a rule
// is found by the bytes that it has on the wire.
type ruleCache struct {
	mu    sync.RWMutex
	rules map[string]*headgate.Rule
}

// The bounds of the rules that are kept. Beyond them all are forgotten, and those
// in use are made again.
const (
	maxCachedRules = 4096
	// maxCachedRule is the longest, in bytes: some sixteen limits with time zones.
	maxCachedRule = 1 << 10
)

// of returns the rule that stands in text. The error wraps errWire, or is an
// [*headgate.InvalidError].
func (c *ruleCache) of(text string) (*headgate.Rule, error) {
	c.mu.RLock()
	rule := c.rules[text]
	c.mu.RUnlock()
	if rule != nil {
		return rule, nil
	}
	m := new(headgatev1.Rule)
	if err := proto.Unmarshal([]byte(text), m); err != nil {
		return nil, errWire
	}
	rule, err := newRule(m)
	if err != nil || len(text) > maxCachedRule {
		return rule, err
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.rules == nil || len(c.rules) >= maxCachedRules {
		c.rules = make(map[string]*headgate.Rule)
	}
	c.rules[string([]byte(text))] = rule // a text of its own, not that of a whole message
	return rule, nil
}

// newRule is the rule that the message means.
func newRule(m *headgatev1.Rule) (*headgate.Rule, error) {
	var problems []string
	limits := make([]headgate.Limit, 0, len(m.GetLimits()))
	for i, from := range m.GetLimits() {
		l, problem := newLimit(from)
		if problem != "" {
			problems = append(problems, fmt.Sprintf("limit %d: %s", i+1, problem))
		}
		limits = append(limits, l)
	}
	if problems != nil {
		return nil, &headgate.InvalidError{Subject: fmt.Sprintf("rule %q", m.GetName()), Problems: problems}
	}
	return headgate.NewRule(m.GetName(), limits...)
}

// newLimit is the limit that the message means, or what keeps it from meaning one.
// Whether its numbers are good is NewRule's to say.
func newLimit(m *headgatev1.Limit) (l headgate.Limit, problem string) {
	most := func(unit time.Duration) int64 { return int64(1<<63-1) / int64(unit) }
	switch {
	case m.GetAlgorithm() < 0 || m.GetAlgorithm() > 255 || m.GetAlign() < 0 || m.GetAlign() > 255:
		return l, fmt.Sprintf("algorithm %d or alignment %d is unknown", m.GetAlgorithm(), m.GetAlign())
	case m.GetPeriodUs() < 0 || m.GetPeriodUs() > most(time.Microsecond):
		return l, fmt.Sprintf("period is %d µs, must be 1 µs to %v", m.GetPeriodUs(), headgate.MaxPeriod)
	case min(m.GetBlockMs(), m.GetMaxBlockMs()) < 0 || max(m.GetBlockMs(), m.GetMaxBlockMs()) > most(time.Millisecond):
		return l, fmt.Sprintf("block is %d ms to %d ms, must be up to %v", m.GetBlockMs(), m.GetMaxBlockMs(), headgate.MaxBlockTime)
	}
	l = headgate.Limit{
		Algorithm: headgate.Algorithm(m.GetAlgorithm()),
		Count:     m.GetCount(),
		Period:    time.Duration(m.GetPeriodUs()) * time.Microsecond,
		Burst:     m.GetBurst(),
		Align:     headgate.Alignment(m.GetAlign()),
		Block:     time.Duration(m.GetBlockMs()) * time.Millisecond,
		MaxBlock:  time.Duration(m.GetMaxBlockMs()) * time.Millisecond,
	}
	if name := m.GetTimeZone(); name != "" {
		// Local would be the server's own, which is not what a caller means.
		zone, err := time.LoadLocation(name)
		if err != nil || name == "Local" {
			return l, fmt.Sprintf("time zone %q is not known here; use an IANA name such as Europe/Berlin", name)
		}
		l.Location = zone
	}
	return l, ""
}

// read reads the checks of a message.
func (s *Store) read(t *take, checks []*headgatev1.StoreCheck) {
	for _, m := range checks {
		var rule *headgate.Rule
		var err error
		if m.GetRule() != nil {
			// The same as the caller's text, unless its library has it another way.
			text, marshal := proto.MarshalOptions{Deterministic: true}.Marshal(m.GetRule())
			if marshal != nil {
				text = nil
			}
			rule, err = s.rules.of(string(text))
		}
		t.addCheck(rule, err, headgate.Check{
			Key: string(m.GetKey()), Cost: m.GetCost(), At: m.GetAt(), Shadow: m.GetShadow(), GiveBack: m.GetGiveBack(), Factor: m.GetFactor(),
		}, int64(m.GetOnError()))
	}
}

// addCheck adds a check, and notes what is wrong with it that Validate does not
// look at.
func (t *take) addCheck(rule *headgate.Rule, err error, c headgate.Check, onError int64) {
	i := len(t.ask.Checks) + t.unread
	if i >= headgate.MaxChecks {
		t.unread++
		return
	}
	switch {
	case err != nil:
		t.faults.refuse(checkField(i, "rule"), err)
	case rule == nil:
		t.faults.add(checkField(i, "rule"), "is missing")
	}
	if c.At < 0 || c.At > maxAt {
		t.faults.add(checkField(i, "at"), "is %d, must be 1 to %d: microseconds since 1970", c.At, int64(maxAt))
	}
	if c.Factor < 0 || c.Factor > headgate.MaxCount {
		t.faults.add(checkField(i, "factor"), "is %d, must be 1 to %d", c.Factor, int64(headgate.MaxCount))
	}
	if onError < 0 || onError > int64(headgate.OnErrorLocal) {
		t.faults.add(checkField(i, "on_error"), "is %d, which is none", onError)
	} else {
		c.OnError = headgate.OnError(onError)
	}
	c.Rule = rule
	t.ask.Checks = append(t.ask.Checks, c)
}

// readTerms reads terms, and notes what is wrong with them.
func (t *take) readTerms(m *headgatev1.Terms) headgate.Terms {
	if n := len(m.GetId()); n > headgate.MaxID {
		t.faults.add("terms.id", "has %d bytes, must have at most %d", n, headgate.MaxID)
	}
	if most := headgate.MaxTerm.Milliseconds(); m.GetTermMs() < 0 || m.GetTermMs() > most {
		t.faults.add("terms.term_ms", "is %d, must be 1 to %d", m.GetTermMs(), most)
		return headgate.Terms{}
	}
	return headgate.Terms{ID: string(m.GetId()), For: time.Duration(m.GetTermMs()) * time.Millisecond}
}

// newDecisions is what callers are told who know their limits.
func newDecisions(decisions []headgate.Decision) []*headgatev1.StoreDecision {
	if len(decisions) == 0 {
		return nil
	}
	all := make([]headgatev1.StoreDecision, len(decisions))
	out := make([]*headgatev1.StoreDecision, len(decisions))
	for i := range decisions {
		d, to := &decisions[i], &all[i]
		to.Allowed, to.Remaining, to.At = d.Allowed, d.Remaining, d.At
		to.RetryAfterUs, to.ResetAfterUs, to.DelayUs = micros(d.RetryAfter), micros(d.ResetAfter), micros(d.Delay)
		to.Source = headgatev1.Source(d.Source)
		out[i] = to
	}
	return out
}

// micros is d in microseconds, which stores count in. Never stays -1.
func micros(d time.Duration) int64 {
	if d == headgate.Never {
		return -1
	}
	return d.Microseconds()
}

// newReservation is the reservation as a message.
func newReservation(r *headgate.Reservation) *headgatev1.StoreReservation {
	m := &headgatev1.StoreReservation{Id: []byte(r.ID), Expires: r.Expires}
	for i := range r.Checks {
		c := &r.Checks[i]
		m.Checks = append(m.Checks, &headgatev1.StoreCheck{
			Rule: ruleMessage(c.Rule), Key: []byte(c.Key), Cost: c.Cost, At: c.At, Shadow: c.Shadow,
			GiveBack: c.GiveBack, OnError: headgatev1.OnError(c.OnError), Factor: c.Factor,
		})
	}
	return m
}

// ruleMessage says what newRule understands.
func ruleMessage(r *headgate.Rule) *headgatev1.Rule {
	m := &headgatev1.Rule{Name: r.Name()}
	for _, l := range r.Limits() {
		to := &headgatev1.Limit{
			Algorithm: headgatev1.Algorithm(l.Algorithm), Count: l.Count, PeriodUs: l.Period.Microseconds(), Burst: l.Burst,
			Align: headgatev1.Alignment(l.Align), BlockMs: l.Block.Milliseconds(), MaxBlockMs: l.MaxBlock.Milliseconds(),
		}
		if l.Location != nil {
			to.TimeZone = l.Location.String()
		}
		m.Limits = append(m.Limits, to)
	}
	return m
}
