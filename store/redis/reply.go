package redis

import (
	"fmt"

	"github.com/headgate/headgate"
	"github.com/headgate/headgate/algorithm"
)

// What the scripts answer first.
const (
	statusDenied   = 0
	statusAdmitted = 1
	statusWindow   = 2 // a calendar window does not contain the store's time
	statusOther    = 3 // a short script found what only take.lua knows; nothing was done
	statusConflict = 5 // the id is another request's, or the reservation was settled otherwise
	statusDenies   = 6 // a request that was denied is repeated under other limits
	statusAdmits   = 7 // one that was admitted
	statusNone     = 8 // there is no such reservation
	statusRefused  = 9 // the server refused what batch.lua asked for one check; nothing was done
)

// reply is a script's answer.
type reply struct {
	status int
	now    int64
	text   string // what is left of it
}

const replyHead = 8

func parseReply(text string) (reply, error) {
	if len(text) < replyHead {
		return reply{}, tooShort(len(text), replyHead)
	}
	return reply{status: int(text[0]), now: readUint(text[1:], 7), text: text[replyHead:]}, nil
}

// tooShort is the error of an answer that ends before its time.
func tooShort(has, least int) error {
	return unavailable("reading the script's answer", fmt.Errorf("it has %d bytes, must have %d or more", has, least))
}

// misread is the error of an answer that has not the bytes it must have.
func (r reply) misread(want int) error {
	return unavailable("reading the script's answer", fmt.Errorf("it has %d bytes of limits, must have %d", len(r.text), want))
}

// decisions describes the answer of take.lua or refund.lua: what the script read
// is taken through the same steps here.
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

// limitBytes is how long a script's answer about a rule's limits is, which text begins with: the
// states of all that are not sliding windows, then the facts of those that are.
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

// counterBytes is how long the answer about a limit is that is no sliding window: its state and, of
// a bucket that lists of different rates share, the further ones.
func counterBytes(l *headgate.Limit, text string) int {
	if len(text) >= stateBytes && l.Algorithm <= headgate.LeakyBucket && algorithm.HasSlots(readState(text)) {
		return algorithm.BucketSlots * stateBytes
	}
	return stateBytes
}

// cutCounter cuts a counter off a script's answer, and brings it up to now.
func cutCounter(l *headgate.Limit, text string, now int64) (c algorithm.Counter, rest string) {
	size := counterBytes(l, text)
	c = algorithm.LoadCounter(l, true, func(i int) algorithm.State { return readState(text[i*stateBytes:]) })
	c, _ = c.Advance(l, now)
	return c, text[size:]
}

// fits reports whether all limits of a check admit it, by what a script read.
func fits(text string, c *headgate.Check, now int64) bool {
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
func describeLimits(dst []headgate.Decision, text string, op headgate.Op, c *headgate.Check, now int64, charged bool) {
	limits := c.Rule.Limits()
	var penalty *headgate.Decision
	var before algorithm.Counter // of the penalty
	denied := false              // by a limit that is none
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

// describe takes the counter that a script read through the step that the script
// made.
func describe(d *headgate.Decision, l *headgate.Limit, op headgate.Op, before algorithm.Counter, c *headgate.Check, now int64, charged bool) {
	after, cost := before, c.Units()
	fits := before.Fits(l, now, cost)
	switch {
	case charged:
		after = before.Charge(l, now, cost)
	case op == headgate.OpRefund:
		after, fits = before.Refund(l, now, cost, int64(c.At), 0), true
	}
	after.Describe(d, l, before, now, cost, fits)
	if op == headgate.OpRefund {
		d.Allowed, d.RetryAfter, d.Delay = true, 0, 0
	}
}
