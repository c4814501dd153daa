package redis

import (
	"fmt"

	"github.com/headgate/headgate"
	"github.com/headgate/headgate/algorithm"
)

// The statuses with which the answers of scripts begin.
const (
	statusDenied   = 0
	statusAdmitted = 1
	statusWindow   = 2 // a calendar window does not contain the store's time
	statusOther    = 3 // a short script met something that only take.lua handles; nothing was done
	statusConflict = 5 // the id is another request's, or the reservation was settled at other units
	statusDenies   = 6 // a denied request is repeated, and its limits have changed
	statusAdmits   = 7 // an admitted request is repeated, and its limits have changed
	statusNone     = 8 // there is no such reservation
	statusRefused  = 9 // batch.lua could not decide this check; nothing was done
)

// reply is a script's answer.
type reply struct {
	status int
	now    headgate.Instant
	text   string // the rest, after the status and the time
}

const replyHead = 8

func parseReply(text string) (reply, error) {
	if len(text) < replyHead {
		return reply{}, tooShort(len(text), replyHead)
	}
	return reply{status: int(text[0]), now: headgate.Instant(readUint(text[1:], 7)), text: text[replyHead:]}, nil
}

// tooShort returns the error for an answer that is too short.
func tooShort(has, least int) error {
	return unavailable("reading the script's answer", fmt.Errorf("it has %d bytes, must have %d or more", has, least))
}

// misread returns the error for an answer of the wrong length.
func (r reply) misread(want int) error {
	return unavailable("reading the script's answer", fmt.Errorf("it has %d bytes of limits, must have %d", len(r.text), want))
}

// decisions appends the decisions that follow from the answer of take.lua or refund.lua. It takes
// the state that the script read through the same steps as the script.
func (r reply) decisions(op headgate.Op, checks []headgate.Check, dst []headgate.Decision) ([]headgate.Decision, error) {
	want := 0
	for i := range checks {
		want += limitBytes(checks[i].Rule.Limits(), r.text[min(want, len(r.text)):])
	}
	if len(r.text) != want {
		return dst, r.misread(want)
	}
	admitted := op == headgate.OpTake && r.status == statusAdmitted
	text := r.text
	for i := range checks {
		c := &checks[i]
		limits := c.Rule.Limits()
		first := len(dst)
		for range limits {
			dst = append(dst, headgate.Decision{Rule: c.Rule, Check: i, Shadow: c.Shadow})
		}
		size := limitBytes(limits, text)
		charged := admitted && (!c.Shadow || fits(text, c, r.now))
		describeLimits(dst[first:], text, op, c, r.now, charged)
		text = text[size:]
	}
	return dst, nil
}

// limitBytes returns the length of a script's answer about a rule's limits, with which text begins.
// The answer has the states of all limits that are not sliding windows, followed by the facts of
// the sliding windows.
func limitBytes(limits []headgate.Limit, text string) int {
	n, facts := 0, 0
	for i := range limits {
		if limits[i].Algorithm == headgate.SlidingWindow {
			facts += factsBytes
		} else {
			n += counterBytes(&limits[i], text[min(n, len(text)):])
		}
	}
	return n + facts
}

// counterBytes returns the length of the answer about a limit that is not a sliding window. It has
// the limit's state and, for a bucket that lists of different rates share, the further states.
func counterBytes(l *headgate.Limit, text string) int {
	if len(text) >= stateBytes && l.Algorithm <= headgate.LeakyBucket && algorithm.HasSlots(readState(text)) {
		return algorithm.BucketSlots * stateBytes
	}
	return stateBytes
}

// cutCounter reads a counter from the front of a script's answer, advances it to now, and returns
// the rest of the answer.
func cutCounter(l *headgate.Limit, text string, now headgate.Instant) (c algorithm.Counter, rest string) {
	size := counterBytes(l, text)
	c = algorithm.LoadCounter(l, true, func(i int) algorithm.State { return readState(text[i*stateBytes:]) })
	c, _ = c.Advance(l, now)
	return c, text[size:]
}

// fits reports whether all limits of a check admit it, by the state that a script read.
func fits(text string, c *headgate.Check, now headgate.Instant) bool {
	var room [headgate.MaxLimits]headgate.Decision
	decisions := room[:len(c.Rule.Limits())]
	describeLimits(decisions, text, headgate.OpPeek, c, now, false)
	for i := range decisions {
		if !decisions[i].Allowed {
			return false
		}
	}
	return true
}

// describeLimits describes the limits of one check.
func describeLimits(dst []headgate.Decision, text string, op headgate.Op, c *headgate.Check, now headgate.Instant, charged bool) {
	limits := c.Rule.Limits()
	var penalty *headgate.Decision
	var before algorithm.Counter // the penalty's counter
	denied := false              // by a limit that is not a penalty
	for i := range limits {
		l := &limits[i]
		if l.Algorithm == headgate.SlidingWindow {
			continue
		}
		state, rest := cutCounter(l, text, now)
		text = rest
		describe(&dst[i], l, op, state, c, now, charged)
		if l.Algorithm == headgate.Penalty {
			penalty, before = &dst[i], state
		} else {
			denied = denied || !dst[i].Allowed
		}
	}
	for i := range limits {
		l := &limits[i]
		if l.Algorithm != headgate.SlidingWindow {
			continue
		}
		facts := readFacts(text, now)
		text = text[factsBytes:]
		if op == headgate.OpRefund {
			facts.Describe(&dst[i], l, now, 0, false)
			dst[i].Allowed, dst[i].RetryAfter = true, 0
		} else {
			facts.Describe(&dst[i], l, now, c.Units(), charged)
		}
		denied = denied || !dst[i].Allowed
	}
	if penalty != nil && denied && op == headgate.OpTake && penalty.Allowed {
		after := algorithm.Punish(penalty.Limit, before.State, now)
		algorithm.Describe(penalty, penalty.Limit, before.State, after, now, c.Units(), true)
	}
}

// describe describes one limit. It takes the counter that a script read through the same step as
// the script.
func describe(d *headgate.Decision, l *headgate.Limit, op headgate.Op, before algorithm.Counter, c *headgate.Check, now headgate.Instant, charged bool) {
	after, cost := before, c.Units()
	fits := before.Fits(l, now, cost)
	switch {
	case charged:
		after = before.Charge(l, now, cost)
	case op == headgate.OpRefund:
		after, fits = before.Refund(l, now, cost, c.At, 0), true
	}
	after.Describe(d, l, before, now, cost, fits)
	if op == headgate.OpRefund {
		d.Allowed, d.RetryAfter, d.Delay = true, 0, 0
	}
}
