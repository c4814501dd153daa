package envoyrls

import (
	"maps"

	pb "github.com/envoyproxy/go-control-plane/envoy/service/ratelimit/v3"

	"github.com/headgate/headgate"
	"github.com/headgate/headgate/server/decide"
)

// metadata writes what other filters, and access logs, are told: what decided,
// and which shadows would have denied.
func (q *scratch) metadata(w *writer, o *decide.Outcome) {
	w.boolEntry("allowed", o.Verdict.Allowed)
	q.deciding(w, o)
	q.violations(w)
	q.shadows(w)
	unenforced(w, o)
	q.configured(w)
}

// unenforced writes the names of the rules that bound what is in progress and bind the
// request: a question ends before the request does.
func unenforced(w *writer, o *decide.Outcome) {
	l := list{w: w, name: "unenforced"}
	for _, name := range o.Unenforced {
		mark := l.begin()
		w.string(3, name)
		w.end(mark)
	}
	l.end()
}

// configured writes the metadata that the configuration has for the limits of the descriptors
// that pass, as one structure: of values of one name the first counts, unless both are
// structures.
func (q *scratch) configured(w *writer) {
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
	outer, inner := w.entry("metadata")
	w.structure(5, all)
	w.end(inner)
	w.end(outer)
}

// merge adds what is new to the fields. Structures in them are copied before they are added
// to, since they belong to the configuration.
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

// deciding writes which limit decided, and of which descriptor.
func (q *scratch) deciding(w *writer, o *decide.Outcome) {
	i, p, d := q.parts.Deciding()
	if p == nil {
		return
	}
	w.numberEntry("descriptor", int64(i))
	if d == nil {
		if p.Listed != nil {
			w.textEntry("list", p.Listed.Name)
		}
		return
	}
	w.textEntry("rule", d.Rule.Name())
	w.textEntry("limit", d.Limit.String())
	w.numberEntry("remaining", d.Remaining)
	if !o.Verdict.Allowed && o.Verdict.RetryAfter != headgate.Never {
		w.numberEntry("retry_after_ms", o.RetryAfterMS())
	}
	if delay := o.DelayMS(); delay > 0 {
		w.numberEntry("delay_ms", delay)
	}
}

// violations writes the places of the descriptors that are beyond a limit in quota
// mode, under the name and in the form that envoyproxy/ratelimit gives them.
func (q *scratch) violations(w *writer) {
	l := list{w: w, name: "quotaModeViolations"}
	for i := range q.parts.List {
		if q.parts.List[i].Beyond {
			mark := l.begin()
			w.float(2, float64(i))
			w.end(mark)
		}
	}
	l.end()
}

// shadows writes the names of the rules that would have denied.
func (q *scratch) shadows(w *writer) {
	l := list{w: w, name: "shadow_denied"}
	for i := range q.parts.List {
		decisions := q.parts.Decisions(&q.parts.List[i])
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
