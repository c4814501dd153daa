// Package content turns the library's rules, checks and decisions into the messages
// of the service headgate.v1.Store and back: for the server and for the client.
//
// # Basics
//
// [Message] and [Rule] are each other's inverse, so that a rule which was sent has
// the limits and counters that it had where it came from.
//
// # Caveats
//
// A time zone crosses the wire by its IANA name. Both sides must know it.
package content

import (
	"fmt"
	"time"

	"github.com/headgate/headgate"
	headgatev1 "github.com/headgate/headgate/api/headgate/v1"
)

// Rule is the rule that the message means, or a [*headgate.InvalidError].
func Rule(m *headgatev1.Rule) (*headgate.Rule, error) {
	var problems headgate.Problems
	limits := make([]headgate.Limit, 0, len(m.GetLimits()))
	for i, from := range m.GetLimits() {
		l, problem := limit(from)
		if problem != "" {
			problems.Add(fmt.Sprintf("limits[%d]", i), "limit %d: %s", i+1, problem)
		}
		limits = append(limits, l)
	}
	if err := problems.Err(fmt.Sprintf("rule %q", m.GetName())); err != nil {
		return nil, err
	}
	return headgate.NewRule(m.GetName(), limits...)
}

// limit is the limit that the message means, or what keeps it from meaning one.
// Whether its numbers are good is NewRule's to say.
func limit(m *headgatev1.Limit) (l headgate.Limit, problem string) {
	const most = 1<<63 - 1
	fits := func(n int64, unit time.Duration) bool { return n >= 0 && n <= most/int64(unit) }
	switch {
	case m.GetAlgorithm() < 0 || m.GetAlgorithm() > 255 || m.GetAlign() < 0 || m.GetAlign() > 255:
		return l, fmt.Sprintf("algorithm %d or alignment %d is unknown", m.GetAlgorithm(), m.GetAlign())
	case !fits(m.GetPeriodUs(), time.Microsecond):
		return l, fmt.Sprintf("period is %d µs, must be 1 µs to %v", m.GetPeriodUs(), headgate.MaxPeriod)
	case !fits(m.GetBlockMs(), time.Millisecond) || !fits(m.GetMaxBlockMs(), time.Millisecond):
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
		l.Location, problem = zone(name)
	}
	return l, problem
}

// zone is the time zone of that name, or what is wrong with it.
func zone(name string) (*time.Location, string) {
	// Local would be another one on the other side.
	z, err := time.LoadLocation(name)
	if err != nil || name == "Local" {
		return nil, fmt.Sprintf("time zone %q is not an IANA name that is known here, such as Europe/Berlin", name)
	}
	return z, ""
}

// Message says what [Rule] understands. The error is a [*headgate.InvalidError]:
// a time zone has no name that another process knows.
func Message(r *headgate.Rule) (*headgatev1.Rule, error) {
	m := &headgatev1.Rule{Name: r.Name()}
	var problems headgate.Problems
	for i, l := range r.Limits() {
		to := &headgatev1.Limit{
			Algorithm: headgatev1.Algorithm(l.Algorithm), Count: l.Count, PeriodUs: l.Period.Microseconds(), Burst: l.Burst,
			Align: headgatev1.Alignment(l.Align), BlockMs: l.Block.Milliseconds(), MaxBlockMs: l.MaxBlock.Milliseconds(),
		}
		if l.Location != nil {
			to.TimeZone = l.Location.String()
			if _, problem := zone(to.GetTimeZone()); problem != "" {
				problems.Add(fmt.Sprintf("limits[%d]", i), "limit %d: %s", i+1, problem)
			}
		}
		m.Limits = append(m.Limits, to)
	}
	return m, problems.Err(fmt.Sprintf("rule %q", r.Name()))
}

// CheckMessage is the check, whose rule the caller has as a message already.
func CheckMessage(c *headgate.Check, rule *headgatev1.Rule) *headgatev1.StoreCheck {
	return &headgatev1.StoreCheck{
		Rule: rule, Key: []byte(c.Key), Cost: c.Cost, At: int64(c.At), Shadow: c.Shadow,
		GiveBack: c.GiveBack, OnError: headgatev1.OnError(c.OnError), Factor: c.Factor,
	}
}

// Check is the check that the message means, without its rule and without OnError,
// whose number may be none.
func Check(m *headgatev1.StoreCheck) headgate.Check {
	return headgate.Check{
		Key: string(m.GetKey()), Cost: m.GetCost(), At: headgate.Instant(m.GetAt()), Shadow: m.GetShadow(), GiveBack: m.GetGiveBack(), Factor: m.GetFactor(),
	}
}

// Reservation is the reservation as a message.
func Reservation(r *headgate.Reservation) (*headgatev1.StoreReservation, error) {
	m := &headgatev1.StoreReservation{Id: []byte(r.ID), Expires: int64(r.Expires)}
	for i := range r.Checks {
		rule, err := Message(r.Checks[i].Rule)
		if err != nil {
			return nil, err
		}
		m.Checks = append(m.Checks, CheckMessage(&r.Checks[i], rule))
	}
	return m, nil
}

// Micros is d in microseconds, which stores count in. Never stays -1.
func Micros(d time.Duration) int64 {
	if d == headgate.Never {
		return -1
	}
	return d.Microseconds()
}

// Duration is the inverse of [Micros].
func Duration(micros int64) time.Duration {
	if micros == -1 {
		return headgate.Never
	}
	return time.Duration(micros) * time.Microsecond
}
