package nested

import (
	"strings"

	"github.com/headgate/headgate/policy"
)

// maxMeasure bounds the name that [Tree.Measure] gives, in bytes.
const maxMeasure = 256

// Measure is the name under which requests of the descriptor are to be measured that
// has arrived at a limit with Measured: the way to it with the values that the
// configuration asks for (value_to_metric), or with all of them (detailed_metric). Of
// secret values it has the hashes. Callers make those names: whoever keeps them has
// to bound their number.
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
			name = n.pattern // The star stands for names, and for all values.
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
