package lint

import (
	"fmt"
	"slices"
	"strings"

	"github.com/headgate/headgate/policy"
)

// maxCircleSteps bounds the work of finding the shortest circles, in nodes and edges: about a tenth
// of a second. Policies that people write take a few hundred steps.
const maxCircleSteps = 20_000_000

// circles warns of rules and entries of the deny list that replace each other in a circle, so that
// a request which meets all of them is bound by none. A warning describes the shortest circle
// through the rule or entry with which it begins. Each rule and entry that is in a circle is in at
// least one warning. When the work exceeds maxCircleSteps, the last warning says how many are left.
func (l *linter) circles() {
	g := newReplacements(l)
	reported := make([]bool, len(g.nodes))
	steps := 0
	for from := range g.nodes {
		if reported[from] || len(g.next[from]) == 0 {
			continue
		}
		warn := l.about(g.nodes[from].rule(), g.nodes[from].pos)
		if steps > maxCircleSteps {
			left := 0
			for at := range reported {
				if !reported[at] && len(g.next[at]) > 0 {
					left++
				}
			}
			warn(Circle, "%s is in a circle of replaces as well, and so are %d others that are not listed; mend those that are, and look again", g.nodes[from].subject(), left-1)
			return
		}
		circle, looked := g.circle(from)
		steps += looked + len(g.nodes)
		for _, at := range circle {
			reported[at] = true
		}
		warn(Circle, "%s: %s by none of them; take one of the names out of replaces", g.chain(circle), g.effect(circle))
	}
}

// replacements is a graph of who replaces whom. Its nodes are the rules, in their order, and then
// the entries of the deny list. Nothing replaces entries of the allow list, so they are in no
// circle.
type replacements struct {
	nodes []replacement
	next  [][]int // by node, those that it replaces and that are in a circle with it
}

// replacement is a rule or an entry of the deny list.
type replacement struct {
	name  string
	entry bool
	pos   policy.Position
}

func newReplacements(l *linter) *replacements {
	deny := l.set.Denied()
	g := &replacements{nodes: make([]replacement, 0, len(l.rules)+len(deny))}
	entries := make(map[string]int, len(deny))
	for i := range l.rules {
		g.nodes = append(g.nodes, replacement{l.rules[i].Name, false, l.rules[i].Pos})
	}
	for i := range deny {
		entries[deny[i].Name] = len(g.nodes)
		g.nodes = append(g.nodes, replacement{deny[i].Name, true, deny[i].Pos})
	}
	g.next = make([][]int, len(g.nodes))
	link := func(from int, names []string) {
		for _, name := range names {
			if to, ok := l.places[name]; ok {
				g.next[from] = append(g.next[from], to)
			} else if to, ok := entries[name]; ok {
				g.next[from] = append(g.next[from], to)
			}
		}
	}
	for i := range l.rules {
		link(i, l.rules[i].Replaces)
	}
	for i := range deny {
		link(len(l.rules)+i, deny[i].Replaces)
	}
	g.keepCircles()
	return g
}

// keepCircles removes all edges that are in no circle. These are the edges between strongly
// connected components, which Tarjan's algorithm finds. In most policies no edge is left. A node is
// open from its visit until its component is known.
func (g *replacements) keepCircles() {
	var (
		order     = make([]int, len(g.next)) // of the visits, from 1; 0 before the visit
		low       = make([]int, len(g.next)) // the lowest order of an open node that is reached
		component = make([]int, len(g.next)) // the order of its first node; 0: unknown yet
		open      []int
		count     int
		visit     func(at int)
	)
	visit = func(at int) {
		count++
		order[at], low[at] = count, count
		open = append(open, at)
		for _, to := range g.next[at] {
			if order[to] == 0 {
				visit(to)
				low[at] = min(low[at], low[to])
			} else if component[to] == 0 {
				low[at] = min(low[at], order[to])
			}
		}
		if low[at] < order[at] {
			return
		}
		for component[at] == 0 {
			last := open[len(open)-1]
			open = open[:len(open)-1]
			component[last] = order[at]
		}
	}
	for at := range g.next {
		if order[at] == 0 {
			visit(at)
		}
	}
	for from, next := range g.next {
		g.next[from] = slices.DeleteFunc(next, func(to int) bool { return component[to] != component[from] })
	}
}

// circle returns the shortest way from a node back to it, beginning with the node, and the number
// of edges that it looked at. The node must be in a circle.
func (g *replacements) circle(start int) (way []int, steps int) {
	from := make([]int, len(g.next)) // by node, 1 + the one before it; 0: not reached
	for queue := []int{start}; ; queue = queue[1:] {
		at := queue[0]
		for _, to := range g.next[at] {
			steps++
			if to == start {
				for ; at != start; at = from[at] - 1 {
					way = append(way, at)
				}
				way = append(way, start)
				slices.Reverse(way)
				return way, steps
			}
			if from[to] == 0 {
				from[to] = at + 1
				queue = append(queue, to)
			}
		}
	}
}

// rule returns the rule's name, or "" for an entry.
func (r *replacement) rule() string {
	if r.entry {
		return ""
	}
	return r.name
}

// title names the node within a sentence.
func (r *replacement) title() string {
	if r.entry {
		return fmt.Sprintf("the entry %s of the deny list", policy.Quote(r.name))
	}
	return "rule " + policy.Quote(r.name)
}

// subject names the node at the beginning of a warning. The warning has the name of its rule
// already.
func (r *replacement) subject() string {
	if r.entry {
		return r.title()
	}
	return "it"
}

// chain writes who replaces whom. In a long circle, it leaves out the middle.
func (g *replacements) chain(circle []int) string {
	const most = 6
	var b strings.Builder
	b.WriteString(g.nodes[circle[0]].subject())
	for i, at := range circle[1:] {
		if rest := len(circle) - 1 - i; i == most-2 && rest > 2 {
			fmt.Fprintf(&b, " replaces the next of %d more, the last of which", rest)
			break
		}
		fmt.Fprintf(&b, " replaces %s, which", g.nodes[at].title())
	}
	fmt.Fprintf(&b, " replaces %s", g.nodes[circle[0]].title())
	return b.String()
}

// effect says what the circle does to a request. In a request with one descriptor, the lists answer
// before anything is replaced. So entries are replaced only in requests with several descriptors.
func (g *replacements) effect(circle []int) string {
	entries := 0
	for _, at := range circle {
		if g.nodes[at].entry {
			entries++
		}
	}
	switch entries {
	case 0:
		return "a request that meets all of these is limited"
	case len(circle):
		return "a request of Envoy that meets all of these, each with another descriptor, is denied"
	}
	return "a request of Envoy that meets all of these, the entries with descriptors of their own, is limited or denied"
}
