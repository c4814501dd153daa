package policy

import (
	"net/netip"
	"slices"
)

// patternSet is some patterns. What they cover is found without looking at all of
// them: lint asks that of each two rules that may have to do with each other, and a
// policy has ten thousand rules, or a condition as many values.
type patternSet struct {
	list  []pattern
	kinds kinds
	// The others are made when they are first needed, for sets that are not small.
	texts    map[string]kinds // those that are no networks
	lengths  []int            // of the beginnings, each once
	networks *networks
}

// kinds are kinds of patterns.
type kinds uint8

const (
	wholeKind kinds = 1 << iota
	prefixKind
	networkKind
	hashKind
)

func (p pattern) kind() kinds {
	switch {
	case p.hash:
		return hashKind
	case p.network.IsValid():
		return networkKind
	case p.prefix:
		return prefixKind
	}
	return wholeKind
}

// unclear are the kinds of which it cannot be told from two patterns whether a
// value meets both.
func (k kinds) unclear() kinds {
	var with kinds
	if k&hashKind != 0 {
		with |= wholeKind | prefixKind | networkKind
	}
	if k&^hashKind != 0 {
		with |= hashKind
	}
	if k&prefixKind != 0 {
		with |= networkKind
	}
	if k&networkKind != 0 {
		with |= prefixKind
	}
	return with
}

func newPatternSet(list []pattern) *patternSet {
	s := &patternSet{list: list}
	for _, p := range list {
		s.kinds |= p.kind()
	}
	return s
}

// smallSet is how many patterns are looked through rather than looked up.
const smallSet = 8

// covers reports whether every value that meets q is known to meet one of the set.
func (s *patternSet) covers(q pattern) bool {
	if len(s.list) <= smallSet {
		return slices.ContainsFunc(s.list, func(p pattern) bool { return p.covers(q) })
	}
	s.index()
	kind := q.kind()
	switch {
	case kind == networkKind:
		return s.networks.hold(q.network)
	case s.texts[q.text]&kind != 0:
		return true
	case kind == hashKind:
		return false
	case kind == wholeKind && s.networks != nil && s.networks.contains(q.text):
		return true
	}
	return slices.ContainsFunc(s.lengths, func(n int) bool {
		return n <= len(q.text) && s.texts[q.text[:n]]&prefixKind != 0
	})
}

func (s *patternSet) index() {
	if s.texts != nil {
		return
	}
	s.texts = make(map[string]kinds, len(s.list))
	var held []netip.Prefix
	for _, p := range s.list {
		switch p.kind() {
		case networkKind:
			held = append(held, p.network)
			continue
		case prefixKind:
			s.lengths = append(s.lengths, len(p.text))
		}
		s.texts[p.text] |= p.kind()
	}
	slices.Sort(s.lengths)
	s.lengths = slices.Compact(s.lengths)
	s.networks = newNetworks(held)
}

// meets reports whether some value may meet one of each.
func (s *patternSet) meets(o *patternSet) bool {
	if s.kinds|o.kinds == wholeKind { // The usual case: they need not be looked up both ways.
		if len(s.list) > len(o.list) {
			s, o = o, s
		}
		return slices.ContainsFunc(s.list, o.covers)
	}
	return s.kinds.unclear()&o.kinds != 0 || slices.ContainsFunc(s.list, o.covers) || slices.ContainsFunc(o.list, s.covers)
}

// and has what the one leaves, or may leave, of the other.
func (s *patternSet) and(o *patternSet) *patternSet {
	var both []pattern
	for _, one := range [][2]*patternSet{{s, o}, {o, s}} {
		for _, p := range one[0].list {
			if one[1].covers(p) || p.kind().unclear()&one[1].kinds != 0 {
				both = append(both, p)
			}
		}
	}
	return newPatternSet(both)
}

// clause is a condition as lint compares it with others.
type clause struct {
	*Condition
	values *patternSet // shared by copies, since it is indexed when it is first needed
}

func newClause(c *Condition) clause { return clause{c, newPatternSet(c.patterns())} }

// newClauses does not copy the conditions.
func newClauses(conditions []Condition) []clause {
	all := make([]clause, len(conditions))
	for i := range conditions {
		all[i] = newClause(&conditions[i])
	}
	return all
}

// implies reports whether the one condition's holding makes the other hold. It
// may miss that for conditions which need several others to follow.
func (given *clause) implies(want *clause) bool {
	if given.Entry != want.Entry {
		return false
	}
	within := func(inner, outer *clause) bool {
		return !slices.ContainsFunc(inner.values.list, func(p pattern) bool { return !outer.values.covers(p) })
	}
	switch {
	case !given.Not && !want.Not:
		return want.bare() || !given.bare() && within(given, want)
	case !given.Not && want.Not:
		return !given.bare() && !want.bare() && !given.values.meets(want.values)
	case given.Not && want.Not:
		return given.bare() || !want.bare() && within(want, given)
	}
	return false
}

// implied reports whether what is given makes all that is wanted hold.
func implied(given, want []clause) bool {
	for i := range want {
		if !slices.ContainsFunc(given, func(g clause) bool { return g.implies(&want[i]) }) {
			return false
		}
	}
	return true
}

// coverers finds those of many lists of conditions which may follow from others,
// without comparing each with each.
type coverers struct {
	entries map[string]*covererFile
	rest    []int32 // demand nothing
}

// covererFile has the lists that are filed under what they demand of one entry, each
// in their order.
type covererFile struct {
	texts    map[string][]int32 // whole values, beginnings and hashes
	networks map[netip.Prefix][]int32
	lengths  []int // of the beginnings
	bits     []int // of the networks
	present  []int32
	others   []int32 // demand that it be absent, or have another value
}

func newCoverers(lists [][]clause) *coverers {
	c := &coverers{entries: make(map[string]*covererFile)}
	for i, list := range lists {
		c.file(int32(i), list)
	}
	for _, f := range c.entries {
		slices.Sort(f.lengths)
		f.lengths = slices.Compact(f.lengths)
		slices.Sort(f.bits)
		f.bits = slices.Compact(f.bits)
	}
	return c
}

// file files a list under the condition by which it is found least often.
func (c *coverers) file(i int32, list []clause) {
	if len(list) == 0 {
		c.rest = append(c.rest, i)
		return
	}
	rank := func(one *clause) int {
		switch {
		case one.Not:
			return 2
		case one.bare():
			return 1
		}
		return 0
	}
	best := &list[0]
	for j := range list[1:] {
		if one := &list[j+1]; rank(one) < rank(best) {
			best = one
		}
	}
	f := c.entries[best.Entry]
	if f == nil {
		f = &covererFile{texts: make(map[string][]int32), networks: make(map[netip.Prefix][]int32)}
		c.entries[best.Entry] = f
	}
	switch rank(best) {
	case 2:
		f.others = append(f.others, i)
		return
	case 1:
		f.present = append(f.present, i)
		return
	}
	for _, p := range best.values.list {
		if p.kind() == networkKind {
			put(f.networks, p.network, i)
			f.bits = append(f.bits, p.network.Bits())
			continue
		}
		put(f.texts, p.text, i)
		if p.prefix {
			f.lengths = append(f.lengths, len(p.text))
		}
	}
}

// each calls f for the lists that may follow from the conditions, in their order,
// until it returns true, and reports whether it did.
func (c *coverers) each(given []clause, f func(i int32) bool) bool {
	lists := [][]int32{c.rest}
	add := func(list []int32) {
		if len(list) > 0 {
			lists = append(lists, list)
		}
	}
	for i := range given {
		one := &given[i]
		at := c.entries[one.Entry]
		if at == nil {
			continue
		}
		add(at.others)
		if one.Not {
			continue
		}
		add(at.present)
		if !one.bare() {
			// What follows from a list of values holds for the first of them.
			at.find(one.values.list[0], add)
		}
	}
	for last := int32(-1); ; {
		least := -1
		for i := range lists {
			for len(lists[i]) > 0 && lists[i][0] == last {
				lists[i] = lists[i][1:]
			}
			if len(lists[i]) > 0 && (least < 0 || lists[i][0] < lists[least][0]) {
				least = i
			}
		}
		if least < 0 {
			return false
		}
		if last = lists[least][0]; f(last) {
			return true
		}
	}
}

// find calls add with the lists that are filed under what may cover the pattern.
func (f *covererFile) find(p pattern, add func([]int32)) {
	network := p.network
	if p.kind() == wholeKind {
		if a, err := netip.ParseAddr(p.text); err == nil {
			a = a.Unmap().WithZone("")
			network = netip.PrefixFrom(a, a.BitLen())
		}
	}
	if network.IsValid() {
		for _, n := range f.bits {
			if n > network.Bits() {
				break
			}
			if wider, err := network.Addr().Prefix(n); err == nil {
				add(f.networks[wider])
			}
		}
	}
	if p.kind() == networkKind {
		return
	}
	add(f.texts[p.text])
	for _, n := range f.lengths {
		if n >= len(p.text) {
			break
		}
		add(f.texts[p.text[:n]])
	}
}

// mayMeet reports whether it is not clear that the one demands other values of some
// entry than the other: of most pairs of rules it is.
func mayMeet(a, b []clause) bool {
	for i := range a {
		for j := range b {
			p, q := &a[i], &b[j]
			if p.Entry == q.Entry && !p.Not && !q.Not && !p.bare() && !q.bare() && !p.values.meets(q.values) {
				return false
			}
		}
	}
	return true
}

// contradiction says why no request can meet the conditions and be counted by the
// parts, or "".
func contradiction(match []clause, per []Part, secret func(entry string) bool) string {
	var seen []string
	for i := range match {
		entry := match[i].Entry
		if slices.Contains(seen, entry) {
			continue
		}
		seen = append(seen, entry)
		if why := contradicts(match, per, entry, secret(entry)); why != "" {
			return why
		}
	}
	return ""
}
