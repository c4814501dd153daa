package nested

import (
	"fmt"

	"github.com/headgate/headgate/internal/errtext"
	"github.com/headgate/headgate/policy"
	"github.com/headgate/headgate/policy/explain"
)

// Explain is [explain.Request] for one ordered descriptor, as [Tree.Decide] takes
// it: where each of its entries leads, which limit that comes to, and why the others
// do not bind it. It takes its time, and is not for the path of requests.
func (t *Tree) Explain(d policy.Descriptor, cost int64) explain.Explanation {
	e := explain.Explanation{Entries: t.explainEntries(d), Cost: max(cost, 1), Rules: []explain.Rule{}}
	domain, entries, err := ordered(d, cost, nil)
	if err != nil {
		e.Error = errtext.Text(err)
		for i := range t.limits {
			e.Rules = append(e.Rules, explain.Rule{Rule: t.limits[i].name, Pos: t.limits[i].end().pos, Why: "the request cannot be decided"})
		}
		return e
	}
	way := t.walk(domain, entries, &e)
	leaf, key := t.Find(domain, entries)
	for i := range t.limits {
		l := &t.limits[i]
		r := explain.Rule{Rule: l.name, Pos: l.end().pos, Depth: len(l.way), LimitName: l.leaf.Name, Replaces: l.leaf.Replaces, Enforce: l.leaf.enforced()}
		if leaf == nil || l.leaf != leaf {
			r.Why = t.why(l, domain, entries, way)
			e.Rules = append(e.Rules, r)
			continue
		}
		r.Quota = leaf.Quota && !leaf.Shadow && !leaf.Unlimited
		listed := &explain.Listed{Name: l.name, Pos: r.Pos}
		switch {
		case leaf.Unlimited:
			r.Binds, r.Admits, e.Allowed = true, "everything", listed
		case leaf.Denies():
			if r.Binds, r.Admits, r.Shadow = true, "nothing", leaf.Shadow || leaf.Quota; !r.Shadow {
				e.Denied = listed
			}
		default:
			r.Bind(leaf.check(key, cost))
			r.Hashed = t.hashed(entries, way)
		}
		e.Rules = append(e.Rules, r)
	}
	return e
}

// end is the node of the limit.
func (l *limited) end() *node { return l.way[len(l.way)-1] }

// enforced is for how many percent of the keys the limit may deny.
func (l *Leaf) enforced() int {
	if l.mode() != policy.ModeEnforce {
		return 0
	}
	return 100
}

func (t *Tree) explainEntries(d policy.Descriptor) []explain.Entry {
	entries := make([]explain.Entry, len(d))
	for i, e := range d {
		entries[i] = explain.Entry{Name: e.Name, Value: e.Value, Secret: e.Value != "" && t.set.Secret(e.Name)}
		if entries[i].Secret {
			entries[i].Value = t.set.Hash(e.Name, e.Value)
		}
	}
	return entries
}

// walk looks up one entry after the other, and returns the nodes that they lead to.
func (t *Tree) walk(domain string, d policy.Descriptor, e *explain.Explanation) (way []*node) {
	l := t.domains[domain]
	for i := range d {
		step := explain.Step{Entry: d[i].Name}
		var at *node
		if l != nil {
			at = l.find(&d[i])
		}
		if at != nil {
			step.Node, step.Pos = at.path, at.pos
			switch {
			case at.exact:
				step.By = "value"
			case at.pattern != "":
				step.By = "star"
			default:
				step.By = "key"
			}
		}
		e.Steps = append(e.Steps, step)
		if at == nil {
			break
		}
		way, l = append(way, at), at.nodes
	}
	return way
}

// hashed reports whether there is a secret in the key that the way makes.
func (t *Tree) hashed(d policy.Descriptor, way []*node) bool {
	for i, n := range way {
		if n.counted && t.set.Secret(d[i].Name) {
			return true
		}
	}
	return false
}

// why is why a limit does not bind the descriptor that has gone another way.
func (t *Tree) why(l *limited, domain string, d policy.Descriptor, way []*node) string {
	if l.domain != domain {
		return fmt.Sprintf("the domain is %q, must be %q", domain, l.domain)
	}
	if len(d) > policy.MaxEntries {
		return fmt.Sprintf("nothing binds a descriptor of more than %d entries", policy.MaxEntries)
	}
	same := 0
	for same < min(len(way), len(l.way)) && way[same] == l.way[same] {
		same++
	}
	switch {
	case same == len(l.way):
		return fmt.Sprintf("the descriptor has %s more than the %d that lead here", entriesIn(len(d)-same), same)
	case same == len(d):
		return fmt.Sprintf("the descriptor ends %s before it", entriesIn(len(l.way)-same))
	}
	// The entry at which the ways part.
	e, n := &d[same], l.way[same]
	value := fmt.Sprintf("%q", e.Value)
	if e.Value != "" && t.set.Secret(e.Name) {
		value = fmt.Sprintf("(secret, %s%s)", policy.HashMark, t.set.Hash(e.Name, e.Value))
	}
	switch {
	case n.meets(e):
		return fmt.Sprintf("entry %d, %s = %s, leads to %s, which goes before it, and there is no way back", same+1, e.Name, value, way[same].path)
	case n.byName && !n.star.name.matches(e.Name):
		return fmt.Sprintf("entry %d is %q, must be like %q", same+1, e.Name, n.key)
	case !n.byName && e.Name != n.key:
		return fmt.Sprintf("entry %d is %q, must be %q", same+1, e.Name, n.key)
	}
	return fmt.Sprintf("entry %d, %s, is %s, must be %q", same+1, e.Name, value, n.value)
}

// meets reports whether the entry leads to the node where nothing goes before it.
func (n *node) meets(e *policy.Entry) bool {
	switch {
	case n.star != nil:
		return n.star.matches(e)
	case n.exact:
		return e.Name == n.own.name && e.Value == n.own.value
	}
	return e.Name == n.own.name
}

// entriesIn is the number of entries in words.
func entriesIn(n int) string {
	if n == 1 {
		return "1 entry"
	}
	return fmt.Sprintf("%d entries", n)
}
