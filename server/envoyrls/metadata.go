package envoyrls

import (
	"time"

	"github.com/headgate/headgate"
	"github.com/headgate/headgate/policy"
)

// metadata writes what other filters, and access logs, are told: what decided,
// and which shadows would have denied.
func (q *scratch) metadata(w *writer, v *headgate.Verdict) {
	w.boolEntry("allowed", v.Allowed)
	q.deciding(w, v)
	q.violations(w)
	q.shadows(w)
}

// deciding writes which limit decided, and of which descriptor.
func (q *scratch) deciding(w *writer, v *headgate.Verdict) {
	// The decisions that decide for the descriptors, each with its descriptor's
	// place.
	q.told = q.told[:0]
	for i := range q.plans {
		p := &q.plans[i]
		if p.turnsAway() {
			w.numberEntry("descriptor", int64(i))
			if p.listed != nil {
				w.textEntry("list", p.listed.Name)
			}
			return
		}
		own := headgate.NewVerdict(of(p.decisions, q.decisions))
		if d := own.Deciding(); d != nil && p.op != headgate.OpRefund {
			q.told = append(q.told, *d)
			q.told[len(q.told)-1].Check = i
		}
	}
	all := headgate.NewVerdict(q.told)
	d := all.Deciding()
	if d == nil {
		return
	}
	w.numberEntry("descriptor", int64(d.Check))
	w.textEntry("rule", d.Rule.Name())
	w.textEntry("limit", d.Limit.String())
	w.numberEntry("remaining", d.Remaining)
	if !v.Allowed && v.RetryAfter != headgate.Never {
		w.numberEntry("retry_after_ms", inMillis(v.RetryAfter))
	}
	if v.Delay > 0 {
		w.numberEntry("delay_ms", inMillis(v.Delay))
	}
}

// inMillis rounds up.
func inMillis(d time.Duration) int64 { return int64((d + time.Millisecond - 1) / time.Millisecond) }

// violations writes the places of the descriptors that are beyond a limit in quota
// mode, under the name and in the form that envoyproxy/ratelimit gives them.
func (q *scratch) violations(w *writer) {
	l := list{w: w, name: "quotaModeViolations"}
	for i := range q.plans {
		if q.violates(&q.plans[i]) {
			mark := l.begin()
			w.float(2, float64(i))
			w.end(mark)
		}
	}
	l.end()
}

// violates reports whether the descriptor is beyond a limit in quota mode.
func (q *scratch) violates(p *plan) bool {
	if p.leaf != nil && (!p.leaf.Quota || p.leaf.Shadow) {
		return false
	}
	if p.leaf != nil && p.denies {
		return p.op != headgate.OpRefund
	}
	decisions := of(p.decisions, q.decisions)
	for i := range decisions {
		if d := &decisions[i]; d.Shadow && !d.Allowed && (p.leaf != nil || q.quota(d.Rule.Name())) {
			return true
		}
	}
	return false
}

// quota reports whether the rule is in quota mode.
func (q *scratch) quota(name string) bool {
	r := q.policy.Rule(name)
	return r != nil && r.Mode == policy.ModeQuota
}

// shadows writes the names of the rules that would have denied.
func (q *scratch) shadows(w *writer) {
	l := list{w: w, name: "shadow_denied"}
	for i := range q.plans {
		decisions := of(q.plans[i].decisions, q.decisions)
		for j := range decisions {
			if d := &decisions[j]; d.Shadow && !d.Allowed {
				mark := l.begin()
				w.string(3, d.Rule.Name())
				w.end(mark)
			}
		}
	}
	l.end()
}

// list is a list among the metadata, which is not there if it has no values.
type list struct {
	w                   *writer
	name                string
	outer, inner, marks int
	begun               bool
}

// begin begins a value.
func (l *list) begin() (mark int) {
	if !l.begun {
		l.begun = true
		l.outer, l.inner = l.w.entry(l.name)
		l.marks = l.w.begin(6)
	}
	return l.w.begin(1)
}

func (l *list) end() {
	if l.begun {
		l.w.end(l.marks)
		l.w.end(l.inner)
		l.w.end(l.outer)
	}
}
