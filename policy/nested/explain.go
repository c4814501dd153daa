package nested

import (
	"fmt"

	"github.com/headgate/headgate/internal/errtext"
	"github.com/headgate/headgate/policy"
	"github.com/headgate/headgate/policy/explain"
)

// Explain is [explain.Request] for one ordered descriptor, in the form that [Tree.Decide] takes. It
// says where each entry leads, which limit binds the descriptor, and why the other limits do not.
// It is slow, so it does not belong on the path of requests.
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

// end returns the node that has the limit.
func (l *limited) end() *node { return l.way[len(l.way)-1] }

// enforced returns the percentage of the keys for which the limit may deny: 100, or 0 in shadow or
// quota mode.
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

// walk looks up one entry after the other, adds a step to e for each, and returns the nodes that
// were found. It stops at the first entry that leads nowhere.
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

// hashed reports whether the key that the nodes of the way make contains a hash of a secret.
func (t *Tree) hashed(d policy.Descriptor, way []*node) bool {
	for i, n := range way {
		if n.counted && t.set.Secret(d[i].Name) {
			return true
		}
	}
	return false
}

// why returns the reason for which the limit does not bind the descriptor. way has the nodes that
// the descriptor's entries lead to.
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
	// The first entry that leads to another node than the way to the limit has, or nowhere.
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

// meets reports whether the entry matches the node. Another node of the level may still come first.
func (n *node) meets(e *policy.Entry) bool {
	switch {
	case n.star != nil:
		return n.star.matches(e)
	case n.exact:
		return e.Name == n.own.name && e.Value == n.own.value
	}
	return e.Name == n.own.name
}

// entriesIn writes a number of entries, such as "2 entries".
func entriesIn(n int) string {
	if n == 1 {
		return "1 entry"
	}
	return fmt.Sprintf("%d entries", n)
}
