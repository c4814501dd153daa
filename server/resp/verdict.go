package resp

import (
	"sync/atomic"
	"time"

	"github.com/headgate/headgate"
	"github.com/headgate/headgate/policy"
)

// texts holds what is always the same in the answers about a limit.
type texts struct {
	// known is never changed once it stands here: a limit that is new gets a copy.
	known atomic.Pointer[map[*headgate.Limit]*text]
}

// maxTexts bounds the known limits. Policies that are reloaded leave limits behind
// that nobody asks about any more; beyond the bound all are forgotten, and those in
// use are found again.
const maxTexts = 16 << 10

// text is what is always the same about one limit, written out.
type text struct {
	denied string // the rule and the limit
	name   string // the rule, the limit, and its algorithm
	size   string // the capacity and the period
}

// of returns the text of the decision's limit.
func (t *texts) of(d *headgate.Decision) *text {
	known := t.known.Load()
	if known != nil {
		if found := (*known)[d.Limit]; found != nil {
			return found
		}
	}
	made := newText(d.Rule, d.Limit)
	grown := make(map[*headgate.Limit]*text)
	if known != nil && len(*known) < maxTexts {
		for limit, text := range *known {
			grown[limit] = text
		}
	}
	grown[d.Limit] = made
	// Whoever loses the race is found again at the next decision.
	t.known.CompareAndSwap(known, &grown)
	return made
}

func newText(rule *headgate.Rule, limit *headgate.Limit) *text {
	denied := appendBulk(appendBulk(nil, "rule"), rule.Name())
	denied = appendBulk(appendBulk(denied, "limit"), limit.String())
	name := appendBulk(appendBulk(denied[:len(denied):len(denied)], "algorithm"), limit.Algorithm.String())
	size := appendInt(appendBulk(nil, "capacity"), limit.Capacity())
	size = appendInt(appendBulk(size, "period_ms"), ceilMillis(time.Duration(limit.Micros())*time.Microsecond))
	return &text{string(denied), string(name), string(size)}
}

// The names of members, written out.
const (
	nameAllowed    = "$7\r\nallowed\r\n"
	nameDeniedBy   = "$9\r\ndenied_by\r\n"
	nameRetryAfter = "$14\r\nretry_after_ms\r\n"
	nameResetAfter = "$14\r\nreset_after_ms\r\n"
	nameDelay      = "$8\r\ndelay_ms\r\n"
	nameAt         = "$2\r\nat\r\n"
	nameDecisions  = "$9\r\ndecisions\r\n"
	nameRemaining  = "$9\r\nremaining\r\n"
	nameShadow     = "$6\r\nshadow\r\n"
	nameSoft       = "$4\r\nsoft\r\n"
	nameSource     = "$6\r\nsource\r\n"
)

// appendVerdict answers with the verdict on the call's decisions: always the same
// members in the same order, and those of a reservation behind them.
func (k *call) appendVerdict(r *headgate.Reservation) {
	v := headgate.NewVerdict(k.decisions)
	if listed := k.ask.Denied; listed != nil && k.wish.op <= headgate.OpPeek {
		v.Allowed, v.RetryAfter = false, headgate.Never
	}
	members := 6
	if k.wish.reserve {
		members = 7
	}
	b := k.proto.appendMap(k.out, members)
	b = k.proto.appendBool(append(b, nameAllowed...), v.Allowed)
	b = k.appendDeniedBy(append(b, nameDeniedBy...), &v)
	b = appendInt(append(b, nameRetryAfter...), ceilMillis(v.RetryAfter))
	b = appendInt(append(b, nameDelay...), ceilMillis(v.Delay))
	at := int64(0)
	if len(v.Decisions) > 0 {
		at = v.Decisions[0].At
	}
	b = appendInt(append(b, nameAt...), at)
	b = appendArray(append(b, nameDecisions...), len(v.Decisions))
	for i := range v.Decisions {
		b = k.appendDecision(b, &v.Decisions[i])
	}
	if k.wish.reserve {
		b = k.appendReservation(appendBulk(b, "reservation"), r)
	}
	k.out = b
}

// appendReservation writes what was reserved, if anything was.
func (k *call) appendReservation(b []byte, r *headgate.Reservation) []byte {
	if r.ID == "" {
		return k.proto.appendNull(b)
	}
	left := time.Duration(r.Expires-k.decisions[0].At) * time.Microsecond
	b = appendBulk(appendBulk(k.proto.appendMap(b, 2), "id"), r.ID)
	return appendInt(appendBulk(b, "expires_in_ms"), left.Milliseconds())
}

// appendDeniedBy writes the limit or the entry of the deny list that decided a
// denial.
func (k *call) appendDeniedBy(b []byte, v *headgate.Verdict) []byte {
	d := v.Deciding()
	switch {
	case v.Allowed:
		return k.proto.appendNull(b)
	case k.ask.Denied != nil:
		return appendBulk(appendBulk(k.proto.appendMap(b, 1), "list"), k.ask.Denied.Name)
	case d == nil:
		return k.proto.appendNull(b)
	}
	return append(k.proto.appendMap(b, 2), k.conn.server.texts.of(d).denied...)
}

func (k *call) appendDecision(b []byte, d *headgate.Decision) []byte {
	text := k.conn.server.texts.of(d)
	soft := k.ask.Policy.Soft(d)
	members := 9
	for _, more := range [...]bool{d.Shadow, soft, d.Source != headgate.SourceStore} {
		if more {
			members++
		}
	}
	b = append(k.proto.appendMap(b, members), text.name...)
	b = k.proto.appendBool(append(b, nameAllowed...), d.Allowed)
	b = append(b, text.size...)
	b = appendInt(append(b, nameRemaining...), d.Remaining)
	b = appendInt(append(b, nameRetryAfter...), ceilMillis(d.RetryAfter))
	b = appendInt(append(b, nameResetAfter...), ceilMillis(d.ResetAfter))
	if d.Shadow {
		b = k.proto.appendBool(append(b, nameShadow...), true)
	}
	if soft {
		b = k.proto.appendBool(append(b, nameSoft...), true)
	}
	if d.Source != headgate.SourceStore {
		b = appendBulk(append(b, nameSource...), d.Source.String())
	}
	return b
}

// ceilMillis is d in milliseconds, rounded up so that waiting that long is enough.
// Never stays -1.
func ceilMillis(d time.Duration) int64 { return ceil(d, time.Millisecond) }

func ceil(d, unit time.Duration) int64 {
	if d == headgate.Never {
		return -1
	}
	n := d / unit
	if d%unit > 0 {
		n++
	}
	return int64(n)
}

// rules lists the policy in force. Of a condition it shows the entry and how many
// values it is compared with, but not the values: they may be API keys.
func (k *call) rules() {
	set := k.conn.server.decider.Policy()
	p := k.proto
	k.out = p.appendMap(k.out, 3)
	k.out = appendInt(appendBulk(k.out, "version"), set.Version)
	k.out = appendBulk(appendBulk(k.out, "hash"), set.Hash)
	rules := set.Rules()
	k.out = appendArray(appendBulk(k.out, "rules"), len(rules))
	for i := range rules {
		k.appendRule(&rules[i])
	}
}

func (k *call) appendRule(r *policy.Rule) {
	p := k.proto
	b := appendBulk(appendBulk(p.appendMap(k.out, 9), "name"), r.Name)
	b = p.appendBool(appendBulk(b, "direct"), r.Direct)
	b = appendArray(appendBulk(b, "match"), len(r.Match))
	for i := range r.Match {
		c := &r.Match[i]
		b = appendBulk(appendBulk(p.appendMap(b, 3), "entry"), c.Entry)
		b = p.appendBool(appendBulk(b, "not"), c.Not)
		b = appendInt(appendBulk(b, "values"), int64(len(c.Equals)+len(c.Prefixes)+len(c.Networks)+len(c.Hashes)))
	}
	b = appendArray(appendBulk(b, "per"), len(r.Per))
	for i := range r.Per {
		b = appendBulk(b, r.Per[i].String())
	}
	b = appendInt(appendBulk(b, "cost"), max(r.Cost, 1))
	limits := r.Limits.Limits()
	b = appendArray(appendBulk(b, "limits"), len(limits))
	for i := range limits {
		l := &limits[i]
		b = appendBulk(appendBulk(p.appendMap(b, 4), "limit"), l.String())
		b = appendBulk(appendBulk(b, "algorithm"), l.Algorithm.String())
		b = appendInt(appendBulk(b, "capacity"), l.Capacity())
		b = appendInt(appendBulk(b, "period_ms"), ceilMillis(time.Duration(l.Micros())*time.Microsecond))
	}
	b = appendInt(appendBulk(b, "soft"), int64(r.Soft))
	b = appendBulk(appendBulk(b, "mode"), r.Mode.String())
	k.out = appendInt(appendBulk(b, "enforce"), int64(r.Enforced()))
}
