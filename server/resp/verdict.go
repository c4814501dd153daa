package resp

import (
	"github.com/headgate/headgate"
	"github.com/headgate/headgate/policy"
	"github.com/headgate/headgate/server/decide"
)

// text holds the encoded parts of an answer that never change for one limit.
type text struct {
	denied string // members rule and limit
	name   string // members rule, limit and algorithm
	size   string // members capacity and period_ms
}

func newText(l decide.LimitText) text {
	denied := appendBulk(appendBulk(nil, "rule"), l.Rule)
	denied = appendBulk(appendBulk(denied, "limit"), l.Limit)
	name := appendBulk(appendBulk(denied[:len(denied):len(denied)], "algorithm"), l.Algorithm)
	size := appendInt(appendBulk(nil, "capacity"), l.Capacity)
	size = appendInt(appendBulk(size, "period_ms"), l.PeriodMS)
	return text{string(denied), string(name), string(size)}
}

// The encoded names of members.
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

// appendVerdict answers with the verdict. It always has the same members in the same order,
// followed by those of a reservation and by the rules that were not enforced, if any.
func (k *call) appendVerdict(o *decide.Outcome) {
	members := 6
	if k.request.Reserve {
		members += 2
	}
	if len(o.Unenforced) > 0 {
		members++
	}
	b := k.proto.appendMap(k.out, members)
	b = k.proto.appendBool(append(b, nameAllowed...), o.Verdict.Allowed)
	b = k.appendDeniedBy(append(b, nameDeniedBy...), o)
	b = appendInt(append(b, nameRetryAfter...), o.RetryAfterMS())
	b = appendInt(append(b, nameDelay...), o.DelayMS())
	b = appendInt(append(b, nameAt...), o.At)
	b = appendArray(append(b, nameDecisions...), len(o.Verdict.Decisions))
	for i := range o.Verdict.Decisions {
		row := o.Row(i)
		b = k.appendRow(b, &row)
	}
	if k.request.Reserve {
		b = k.appendReservation(b, o)
	}
	if len(o.Unenforced) > 0 {
		b = appendArray(appendBulk(b, "unenforced"), len(o.Unenforced))
		for _, name := range o.Unenforced {
			b = appendBulk(b, name)
		}
	}
	k.out = b
}

// appendReservation writes the id of the reservation, or null if nothing was reserved, and for how
// long it can be settled.
func (k *call) appendReservation(b []byte, o *decide.Outcome) []byte {
	b = appendBulk(b, "reservation")
	if o.Reservation == "" {
		b = k.proto.appendNull(b)
	} else {
		b = appendBulk(b, o.Reservation)
	}
	return appendInt(appendBulk(b, "expires_in_ms"), o.ExpiresInMS())
}

// appendDeniedBy writes the limit, or the entry of the deny list, that denied the request. If the
// request was not denied, it writes null.
func (k *call) appendDeniedBy(b []byte, o *decide.Outcome) []byte {
	if o.Listed != nil {
		return appendBulk(appendBulk(k.proto.appendMap(b, 1), "list"), o.Listed.Name)
	}
	if d := o.DeniedBy(); d != nil {
		return append(k.proto.appendMap(b, 2), k.text(d).denied...)
	}
	return k.proto.appendNull(b)
}

func (k *call) text(d *headgate.Decision) *text {
	return k.conn.server.texts.Of(k.request.Policy.Set, d)
}

func (k *call) appendRow(b []byte, row *decide.Row) []byte {
	d := row.Decision
	text := k.text(d)
	members := 9
	for _, more := range [...]bool{d.Shadow, row.Soft, row.Source != ""} {
		if more {
			members++
		}
	}
	b = append(k.proto.appendMap(b, members), text.name...)
	b = k.proto.appendBool(append(b, nameAllowed...), d.Allowed)
	b = append(b, text.size...)
	b = appendInt(append(b, nameRemaining...), d.Remaining)
	b = appendInt(append(b, nameRetryAfter...), row.RetryAfterMS)
	b = appendInt(append(b, nameResetAfter...), row.ResetAfterMS)
	if d.Shadow {
		b = k.proto.appendBool(append(b, nameShadow...), true)
	}
	if row.Soft {
		b = k.proto.appendBool(append(b, nameSoft...), true)
	}
	if row.Source != "" {
		b = appendBulk(append(b, nameSource...), row.Source)
	}
	return b
}

// rules lists the rules of the policy in force. For each condition it shows the entry and the
// number of values, but not the values, because they may be API keys.
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
		l := decide.NewLimitText(r.Limits, &limits[i])
		b = appendBulk(appendBulk(p.appendMap(b, 4), "limit"), l.Limit)
		b = appendBulk(appendBulk(b, "algorithm"), l.Algorithm)
		b = appendInt(appendBulk(b, "capacity"), l.Capacity)
		b = appendInt(appendBulk(b, "period_ms"), l.PeriodMS)
	}
	b = appendInt(appendBulk(b, "soft"), int64(r.Soft))
	b = appendBulk(appendBulk(b, "mode"), r.Mode.String())
	k.out = appendInt(appendBulk(b, "enforce"), int64(r.Enforced()))
}
