package envoyrls

import (
	"time"

	"github.com/headgate/headgate"
)

// metadata writes what other filters, and access logs, are told: what decided,
// and which shadows would have denied.
func (q *scratch) metadata(w *writer, v *headgate.Verdict) {
	w.boolEntry("allowed", v.Allowed)
	q.deciding(w, v)
	// The name and the form that envoyproxy/ratelimit gives it.
	q.shadows(w, "quotaModeViolations", func(i int, _ *headgate.Decision) {
		w.float(2, float64(i))
	}, func(p *plan) bool { return p.leaf != nil && p.leaf.Quota })
	q.shadows(w, "shadow_denied", func(_ int, d *headgate.Decision) {
		w.string(3, d.Rule.Name())
	}, func(*plan) bool { return true })
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

// shadows writes a list with a value for each denial of a shadow in the plans that
// are wanted, unless there is none.
func (q *scratch) shadows(w *writer, name string, value func(i int, d *headgate.Decision), wanted func(*plan) bool) {
	var outer, inner, list int
	found := false
	for i := range q.plans {
		p := &q.plans[i]
		decisions := of(p.decisions, q.decisions)
		for j := range decisions {
			if d := &decisions[j]; d.Shadow && !d.Allowed && wanted(p) {
				if !found {
					found = true
					outer, inner = w.entry(name)
					list = w.begin(6)
				}
				mark := w.begin(1)
				value(i, d)
				w.end(mark)
			}
		}
	}
	if found {
		w.end(list)
		w.end(inner)
		w.end(outer)
	}
}
