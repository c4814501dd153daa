package envoyrls

import (
	"maps"

	pb "github.com/envoyproxy/go-control-plane/envoy/service/ratelimit/v3"

	"github.com/headgate/headgate"
	"github.com/headgate/headgate/server/decide"
	"github.com/headgate/headgate/server/wire"
)

// metadata writes the metadata for other filters and access logs: what decided the request, and
// which rules in shadow would have denied it.
func (q *scratch) metadata(w *wire.Writer, o *decide.Outcome) {
	w.BoolEntry("allowed", o.Verdict.Allowed)
	q.deciding(w, o)
	q.violations(w)
	q.shadows(w)
	unenforced(w, o)
	q.configured(w)
}

// unenforced writes the names of the rules that bound what is in progress and bind the request.
// They are not enforced, because the service does not know when the request ends.
func unenforced(w *wire.Writer, o *decide.Outcome) {
	l := w.ListEntry("unenforced")
	for _, name := range o.Unenforced {
		l.Text(name)
	}
	l.End()
}

// configured writes the metadata that the configuration has for the limits of the descriptors that
// pass, merged into one structure. If several have a value of the same name, the first one counts,
// unless both are structures.
func (q *scratch) configured(w *wire.Writer) {
	var all map[string]any
	for i := range q.parts.List {
		p := &q.parts.List[i]
		if p.Leaf == nil || p.Unlimited || len(p.Leaf.Metadata) == 0 || q.code(p) != pb.RateLimitResponse_OK {
			continue
		}
		if all == nil {
			all = make(map[string]any)
		}
		merge(all, p.Leaf.Metadata)
	}
	if all == nil {
		return
	}
	w.StructEntry("metadata", all)
}

// merge adds the fields that into lacks, and merges structures that both have. It copies a
// structure before it adds to it, because the structure belongs to the configuration.
func merge(into, fields map[string]any) {
	for name, value := range fields {
		there, taken := into[name]
		if !taken {
			into[name] = value
			continue
		}
		ours, ok := there.(map[string]any)
		theirs, also := value.(map[string]any)
		if ok && also {
			both := maps.Clone(ours)
			merge(both, theirs)
			into[name] = both
		}
	}
}

// deciding writes which limit decided the request, and for which descriptor.
func (q *scratch) deciding(w *wire.Writer, o *decide.Outcome) {
	i, p, d := q.parts.Deciding()
	if p == nil {
		return
	}
	w.NumberEntry("descriptor", int64(i))
	if d == nil {
		if p.Listed != nil {
			w.TextEntry("list", p.Listed.Name)
		}
		return
	}
	w.TextEntry("rule", d.Rule.Name())
	w.TextEntry("limit", d.Limit.String())
	w.NumberEntry("remaining", d.Remaining)
	if !o.Verdict.Allowed && o.Verdict.RetryAfter != headgate.Never {
		w.NumberEntry("retry_after_ms", o.RetryAfterMS())
	}
	if delay := o.DelayMS(); delay > 0 {
		w.NumberEntry("delay_ms", delay)
	}
}

// violations writes the indexes of the descriptors that are beyond a limit in quota mode. Name and
// form are those of envoyproxy/ratelimit.
func (q *scratch) violations(w *wire.Writer) {
	l := w.ListEntry("quotaModeViolations")
	for i := range q.parts.List {
		if q.parts.List[i].Beyond {
			l.Number(int64(i))
		}
	}
	l.End()
}

// shadows writes the names of the rules in shadow that would have denied.
func (q *scratch) shadows(w *wire.Writer) {
	l := w.ListEntry("shadow_denied")
	for i := range q.parts.List {
		decisions := q.parts.Decisions(&q.parts.List[i])
		for j := range decisions {
			if d := &decisions[j]; d.Shadow && !d.Allowed {
				l.Text(d.Rule.Name())
			}
		}
	}
	l.End()
}
