package nested

import (
	"strings"

	"github.com/headgate/headgate/policy"
)

// maxMeasure is the length of the longest name that [Tree.Measure] returns, in bytes.
const maxMeasure = 256

// Measure returns the name under which requests with the descriptor are to be measured. Call it for
// a descriptor whose leaf has Measured set. The name is the path to the limit, with the values that
// the configuration asks for (value_to_metric) or with all values (detailed_metric). Secret values
// are replaced by their hashes. If no limit binds the descriptor, the name is the domain.
//
// Callers choose the values and thus the names, so whatever stores the names must bound their
// number.
func (t *Tree) Measure(domain string, d policy.Descriptor) string {
	leaf, _ := t.Find(domain, d)
	l := t.domains[domain]
	if leaf == nil || l == nil {
		return domain
	}
	var b strings.Builder
	b.WriteString(domain)
	for i := range d {
		e := &d[i]
		n := l.find(e)
		l = n.nodes
		open := leaf.Detailed || n.valued
		name, value := e.Name, ""
		switch {
		case n.byName && (n.shared || !open):
			name = n.pattern // All names and values that match count as one.
		case n.shared || n.pattern != "" && !open:
			value = n.pattern
		case n.exact || open:
			value = e.Value
			if value != "" && t.set.Secret(name) {
				value = "#" + t.set.Hash(name, value)
			}
		}
		b.WriteString("." + name)
		if value != "" {
			b.WriteString("_" + value)
		}
	}
	name := strings.ToValidUTF8(b.String(), "_")
	if len(name) > maxMeasure {
		mark := "~" + digest(name)
		name = strings.ToValidUTF8(name[:maxMeasure-len(mark)], "") + mark
	}
	return name
}
