package policy

import (
	"fmt"
	"slices"
	"strings"
)

// circles warns of rules and entries of the deny list that replace each other in a
// circle, so that all of them fall away from a request that meets them all. Each of
// them stands in one warning at least, and each warning has the fewest that make a
// circle with the one that it begins with.
func (l *linter) circles() {
	s := l.set
	if !s.replaces {
		return
	}
	g := newReplacements(s)
	told := make([]bool, len(g.names))
	for from := range g.names {
		if told[from] {
			continue
		}
		circle := g.circle(from)
		if circle == nil {
			continue
		}
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
	g.dropEnds()
	return g
}

// dropEnds takes out what leads into no circle, which is nearly all of most
// policies, so that nothing is looked for there.
func (g *replacements) dropEnds() {
	before := make([][]int, len(g.next))
	left := make([]int, len(g.next))
	var ends []int
	for from, next := range g.next {
		for _, to := range next {
			before[to] = append(before[to], from)
		}
		if left[from] = len(next); left[from] == 0 {
			ends = append(ends, from)
		}
	}
	for len(ends) > 0 {
		end := ends[len(ends)-1]
		ends = ends[:len(ends)-1]
		g.next[end] = nil
		for _, from := range before[end] {
			if left[from]--; left[from] == 0 {
				ends = append(ends, from)
			}
		}
	}
}

// circle returns the shortest way from one back to it, which begins with it; nil if
// there is none.
func (g *replacements) circle(start int) []int {
	if g.next[start] == nil {
		return nil
	}
	from := map[int]int{start: start}
	for queue := []int{start}; len(queue) > 0; queue = queue[1:] {
		at := queue[0]
		for _, to := range g.next[at] {
			if to == start {
				way := []int{at}
				for ; at != start; at = from[at] {
					way = append(way, from[at])
				}
				slices.Reverse(way)
				return way
			}
			if _, seen := from[to]; !seen {
				from[to] = at
				queue = append(queue, to)
			}
		}
	}
	return nil
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

// chain writes who replaces whom. Of a long circle it leaves out the middle.
func (g *replacements) chain(circle []int) string {
	const most = 6
	var b strings.Builder
	if g.rule(circle[0]) != "" {
		b.WriteString("it") // The warning names it.
	} else {
		b.WriteString(g.title(circle[0]))
	}
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
