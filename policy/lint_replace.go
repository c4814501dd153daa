package policy

import (
	"fmt"
	"slices"
	"strings"
)

// maxCircleSteps is for how long the shortest circles are looked for: about a tenth of a
// second. Policies that people write take a few hundred steps.
const maxCircleSteps = 20_000_000

// circles warns of rules and entries of the deny list that replace each other in a
// circle, so that all of them fall away from a request that meets them all. Each of
// them stands in one warning at least, and each warning has the fewest that make a
// circle with the one that it begins with. What is left when that has taken long is
// one warning.
func (l *linter) circles() {
	s := l.set
	if !s.replaces {
		return
	}
	g := newReplacements(s)
	told := make([]bool, len(g.names))
	steps := 0
	for from := range g.names {
		if told[from] || len(g.next[from]) == 0 {
			continue
		}
		if steps > maxCircleSteps {
			l.about(g.rule(from), g.pos(from))(CodeCircle, "%s is in a circle of replaces as well, and so are %d others that are not listed; mend those that are, and look again", g.subject(from), g.left(told)-1)
			return
		}
		circle, looked := g.circle(from)
		steps += looked + len(g.names)
		for _, at := range circle {
			told[at] = true
		}
		l.about(g.rule(from), g.pos(from))(CodeCircle, "%s: %s by none of them; take one of the names out of replaces", g.chain(circle), g.effect(circle))
	}
}

// replacements is who replaces whom: rules, in their order, and behind them the
// entries of the deny list. Entries of the allow list cannot be replaced, so that
// they are in no circle.
type replacements struct {
	set   *Set
	names []string
	next  [][]int
}

func newReplacements(s *Set) *replacements {
	deny := s.options.deny
	g := &replacements{set: s, names: make([]string, 0, len(s.rules)+len(deny))}
	entries := make(map[string]int, len(deny))
	for i := range s.rules {
		g.names = append(g.names, s.rules[i].Name)
	}
	for i := range deny {
		entries[deny[i].Name] = len(g.names)
		g.names = append(g.names, deny[i].Name)
	}
	g.next = make([][]int, len(g.names))
	link := func(from int, names []string) {
		for _, name := range names {
			if to, isRule := s.names[name]; isRule {
				g.next[from] = append(g.next[from], int(to))
			} else if to, isEntry := entries[name]; isEntry {
				g.next[from] = append(g.next[from], to)
			}
		}
	}
	for i := range s.rules {
		link(i, s.rules[i].Replaces)
	}
	for i := range deny {
		link(len(s.rules)+i, deny[i].Replaces)
	}
	g.keepCircles()
	return g
}

// keepCircles keeps only what leads from one of a circle to another one of it, which is
// next to nothing of most policies: who is left is in a circle, and nothing is looked
// for elsewhere. The circles are the components in which each reaches each other, by
// Tarjan's algorithm.
func (g *replacements) keepCircles() {
	var (
		seen  = make([]int, len(g.next)) // in which order they were met, from 1 on
		low   = make([]int, len(g.next)) // the first that is reached and has no component yet
		part  = make([]int, len(g.next)) // the component, by the first of it; 0 until it is known
		open  []int
		count int
		visit func(at int)
	)
	visit = func(at int) {
		count++
		seen[at], low[at] = count, count
		open = append(open, at)
		for _, to := range g.next[at] {
			if seen[to] == 0 {
				visit(to)
				low[at] = min(low[at], low[to])
			} else if part[to] == 0 {
				low[at] = min(low[at], seen[to])
			}
		}
		if low[at] < seen[at] {
			return
		}
		for part[at] == 0 {
			last := open[len(open)-1]
			open = open[:len(open)-1]
			part[last] = seen[at]
		}
	}
	for at := range g.next {
		if seen[at] == 0 {
			visit(at)
		}
	}
	for from, next := range g.next {
		g.next[from] = slices.DeleteFunc(next, func(to int) bool { return part[to] != part[from] })
	}
}

// circle returns the shortest way from one that is in a circle back to it, which begins
// with it, and how many steps it has looked at.
func (g *replacements) circle(start int) (way []int, steps int) {
	from := make([]int, len(g.next)) // who was met from whom, which is counted from 1 on
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

// rule is the rule's name, or "" for an entry.
func (g *replacements) rule(at int) string {
	if at < len(g.set.rules) {
		return g.names[at]
	}
	return ""
}

func (g *replacements) pos(at int) Position {
	if at < len(g.set.rules) {
		return g.set.rules[at].Pos
	}
	return g.set.options.deny[at-len(g.set.rules)].Pos
}

func (g *replacements) title(at int) string {
	if at < len(g.set.rules) {
		return "rule " + quote(g.names[at])
	}
	return fmt.Sprintf("the entry %s of the deny list", quote(g.names[at]))
}

// subject is title where a warning begins, which names the rule that it is about.
func (g *replacements) subject(at int) string {
	if g.rule(at) != "" {
		return "it"
	}
	return g.title(at)
}

// left is how many are in circles, and not told of.
func (g *replacements) left(told []bool) (n int) {
	for at := range told {
		if !told[at] && len(g.next[at]) > 0 {
			n++
		}
	}
	return n
}

// chain writes who replaces whom. Of a long circle it leaves out the middle.
func (g *replacements) chain(circle []int) string {
	const most = 6
	var b strings.Builder
	b.WriteString(g.subject(circle[0]))
	for i, at := range circle[1:] {
		if rest := len(circle) - 1 - i; i == most-2 && rest > 2 {
			fmt.Fprintf(&b, " replaces the next of %d more, the last of which", rest)
			break
		}
		fmt.Fprintf(&b, " replaces %s, which", g.title(at))
	}
	fmt.Fprintf(&b, " replaces %s", g.title(circle[0]))
	return b.String()
}

// effect is what becomes of requests. The lists answer one that has a single
// descriptor before anything is replaced.
func (g *replacements) effect(circle []int) string {
	entries := 0
	for _, at := range circle {
		if at >= len(g.set.rules) {
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
