package lint

import (
	"fmt"
	"iter"
	"net/netip"
	"slices"
	"strings"

	"github.com/headgate/headgate"
	"github.com/headgate/headgate/policy"
)

// maxSteps bounds the work of finding requests that no rule binds, and again that of finding rules
// that get in each other's way: about half a second each. Policies that people write take a few
// steps for each rule.
const maxSteps = 10_000_000

// budget bounds the work of comparing rules.
type budget struct {
	steps  int
	unseen []bool // by place: the rule was not compared with all others
}

// spend adds the steps of a comparison of the rule, and reports whether the budget is used up. If
// it is, the rule must not be compared further.
func (b *budget) spend(r *rule, steps int) bool {
	b.steps += steps
	if b.steps > maxSteps {
		b.unseen[r.place] = true
	}
	return b.steps > maxSteps
}

// compared are the codes of the warnings for which rules are compared.
var compared = []string{Uncaught, Unreachable, Shadowed, Twice}

// mayLack reports whether warnings with the code may be missing.
func (b *budget) mayLack(code string) bool {
	return slices.Contains(b.unseen, true) && slices.Contains(compared, code)
}

// effort estimates the number of steps for comparing two lists of conditions. The values of one
// condition are looked up among those of the other.
func effort(a, b []condition) int {
	size := func(list []condition) (n int) {
		for i := range list {
			n += len(list[i].values.list)
		}
		return n
	}
	return 1 + len(a)*len(b) + min(size(a), size(b))
}

// compare warns of what shows only when rules are compared with each other and with the lists.
func (l *linter) compare() {
	l.uncaught()
	l.budget.steps = 0
	l.overlaps()
	first, others := slices.Index(l.budget.unseen, true), -1
	if first < 0 {
		return
	}
	for _, unseen := range l.budget.unseen {
		if unseen {
			others++
		}
	}
	l.aboutRule(&l.rules[first])(Unseen, "it has not been compared with all other rules, and neither have %d others: too many of them match requests that others match as well; what %s would say of them may be missing",
		others, strings.Join(compared, ", "))
}

// uncaught warns of rules that do not bind requests without an entry by which they count, where no
// other rule binds these requests instead.
func (l *linter) uncaught() {
	// A rule with an open tariff binds only some of the requests that it matches, and a direct rule
	// binds only those whose callers name it. So neither can be relied on.
	var catchers []*rule
	var matches [][]condition
	for i := range l.rules {
		if r := &l.rules[i]; !r.Direct && (r.Tariff == nil || r.Tariff.Other != nil) {
			catchers, matches = append(catchers, r), append(matches, r.match)
		}
	}
	likely := newGroups(matches)
	for i := range l.rules {
		r := &l.rules[i]
		if r.never != "" {
			continue
		}
		for _, p := range r.Per {
			if requires(r, p.Entry) {
				continue
			}
			caught, total := l.caught(r, p.Entry, catchers, likely)
			if caught {
				continue
			}
			others := "no other rule does"
			if total != nil {
				others = fmt.Sprintf("the only other rules that do, such as %q, count all clients together", total.Name)
			}
			l.aboutField(r, "per")(Uncaught, "it does not bind requests without %q, and %s; add one for them, with match: { %s: absent }, or require the entry here, with match: { %s: present }, if they are to pass freely",
				p.Entry, others, p.Entry, p.Entry)
		}
	}
}

// requires reports whether the rule's conditions demand that the entry be present.
func requires(r *rule, entry string) bool {
	return slices.ContainsFunc(r.Match, func(c policy.Condition) bool { return c.Entry == entry && !c.Not })
}

// identifies reports whether the entry says who the client is, and may be missing because the
// client did not say so. An address is present wherever requests come over a network.
func identifies(entry string) bool { return entry != "ip" && !slices.Contains(chosen, entry) }

// caught reports whether another rule binds the requests that r does not bind because they lack the
// entry. The other rule may count by further entries. They are taken to be present, because there
// is a warning about them as well.
//
// If r does not count all clients together and the entry says who the client is, a rule that counts
// all clients together is no substitute, unless its conditions demand that the entry be absent.
// total is the first such rule. If the budget is used up, caught is true.
func (l *linter) caught(r *rule, entry string, catchers []*rule, likely *groups) (caught bool, total *rule) {
	if l.budget.spend(r, 1) {
		return true, nil
	}
	lacking := append(slices.Clip(r.match), absent(entry))
	caught = slices.ContainsFunc(likely.implied(lacking), func(i int) bool {
		c := catchers[i]
		// A rule that bounds only what is in progress does not limit rates.
		if c == r || r.Limits != nil && c.Limits == nil || slices.ContainsFunc(c.Per, func(p policy.Part) bool { return p.Entry == entry }) {
			return l.budget.spend(r, 1)
		}
		if l.budget.spend(r, effort(lacking, c.match)) {
			return true
		}
		if !implied(lacking, c.match) {
			return false
		}
		if own(c) || !own(r) || !identifies(entry) || demandsAbsence(c, entry) {
			return true
		}
		if total == nil {
			total = c
		}
		return false
	})
	return caught, total
}

// demandsAbsence reports whether the rule's conditions demand that the entry be absent.
func demandsAbsence(r *rule, entry string) bool {
	return slices.ContainsFunc(r.Match, func(c policy.Condition) bool {
		return c.Entry == entry && c.Not && c.Size() == 0
	})
}

// overlaps warns of rules whose requests are all answered by a list, of limits that another rule
// makes useless, and of rules that count the same requests twice.
func (l *linter) overlaps() {
	deny, allow := newAnswers("deny", l.set.Denied()), newAnswers("allow", l.set.Allowed())
	var plain []*rule
	var matches [][]condition
	for i := range l.rules {
		r := &l.rules[i]
		if r.Direct || r.never != "" || l.unreachable(r, deny) || l.unreachable(r, allow) {
			continue
		}
		// Other rules are left out, because their limits are not the same for all of their
		// requests.
		if r.Limits != nil && r.Tariff == nil && r.Costs == nil && len(r.Overrides) == 0 && r.Enforced() == 100 {
			plain, matches = append(plain, r), append(matches, r.match)
		}
	}
	likely := newGroups(matches)
	shapes := make(map[string]*sameShape)
	for _, r := range plain {
		if l.shadowed(r, plain, likely) {
			continue
		}
		s := shape(r)
		if shapes[s] == nil {
			shapes[s] = new(sameShape)
		}
		l.twice(r, shapes[s])
		shapes[s].add(r)
	}
}

// answers are the entries of one list that have no Until.
type answers struct {
	list    string
	names   []string
	matches [][]condition
	likely  *groups
}

func newAnswers(name string, list []policy.ListEntry) *answers {
	a := &answers{list: name}
	for i := range list {
		if e := &list[i]; e.Until.IsZero() {
			a.names, a.matches = append(a.names, e.Name), append(a.matches, newConditions(e.Match))
		}
	}
	a.likely = newGroups(a.matches)
	return a
}

// unreachable warns of a rule whose requests are all answered by an entry of the list. It reports
// whether the rule needs no further comparison: there is a warning, or the budget is used up.
func (l *linter) unreachable(r *rule, list *answers) bool {
	if l.budget.spend(r, 1) {
		return true
	}
	for _, i := range list.likely.implied(r.bound) {
		if l.budget.spend(r, effort(r.bound, list.matches[i])) {
			return true
		}
		if implied(r.bound, list.matches[i]) {
			l.aboutRule(r)(Unreachable, "it is never reached: the entry %q of the %s list answers every request that it matches", list.names[i], list.list)
			return true
		}
	}
	return false
}

// shadowed warns of limits of the rule that another rule makes useless. That is a rule that counts
// all of the same requests, and perhaps more, under the same key or a wider one. It reports whether
// there are such limits.
func (l *linter) shadowed(r *rule, others []*rule, likely *groups) bool {
	if l.budget.spend(r, 1) {
		return false
	}
	list := limitLists(r)[0]
	limits := list.limits
	reported := make([]bool, len(limits))
	found := 0
	for _, i := range likely.implied(r.bound) {
		other := others[i]
		// A rule that may be replaced cannot be relied on to deny.
		if other == r || other.replaced || other.Counts != r.Counts || other.Factor() != r.Factor() || !wider(other.Per, r.Per) {
			if l.budget.spend(r, 1) {
				break
			}
			continue
		}
		if l.budget.spend(r, effort(r.bound, other.match)) {
			break
		}
		if !implied(r.bound, other.match) {
			continue
		}
		// If both rules count the same requests and make each other useless, the warning is about
		// the later one.
		same := other.place > r.place && wider(r.Per, other.Per) && implied(other.bound, r.match)
		for j := range limits {
			if reported[j] {
				continue
			}
			by, why := makesUseless(other.Limits, limits[j].Limit)
			if why == "" || same && useless(limits[j].Limit, by) != "" {
				continue
			}
			reported[j] = true
			found++
			l.aboutField(r, list.at(limits[j]))(Shadowed, "limit %q can never bind, because rule %q counts all its requests as well: %s", limits[j], other.Name, why)
		}
		if found == len(limits) {
			break
		}
	}
	return found > 0
}

// makesUseless returns the first of the rule's limits that makes the other limit useless, and the
// reason. The reason is "" if none does.
func makesUseless(r *headgate.Rule, other *headgate.Limit) (*headgate.Limit, string) {
	limits := withoutPenalties(r.Limits())
	for i := range limits {
		if why := useless(&limits[i], other); why != "" {
			return &limits[i], why
		}
	}
	return nil, ""
}

// wider reports whether all requests that have the same key by the parts b also have the same key
// by the parts a.
func wider(a, b []policy.Part) bool {
	return !slices.ContainsFunc(a, func(p policy.Part) bool {
		return !slices.ContainsFunc(b, func(q policy.Part) bool {
			return p.Entry == q.Entry && notLonger(p.Bits4, q.Bits4) && notLonger(p.Bits6, q.Bits6)
		})
	})
}

// notLonger reports whether the prefix length a is at most b. Zero means the whole address.
func notLonger(a, b int) bool { return a == b || a != 0 && (b == 0 || a < b) }

// sameShape has the rules of one shape.
type sameShape struct {
	rules  []*rule
	likely groups
}

func (a *sameShape) add(r *rule) {
	a.likely.add(len(a.rules), r.match)
	a.rules = append(a.rules, r)
}

// shape returns a text of what the rule counts, by what, its cost and its limits. Rules with the same
// text have the same shape.
func shape(r *rule) string {
	var b strings.Builder
	for _, p := range r.Per {
		fmt.Fprintf(&b, "%s/%d/%d ", p.Entry, p.Bits4, p.Bits6)
	}
	fmt.Fprintf(&b, "%v cost %d ", r.Counts, r.Factor())
	limits := r.Limits.Limits()
	for i := range limits {
		fmt.Fprintf(&b, "%v %v, ", limits[i].Algorithm, &limits[i])
	}
	return b.String()
}

// twice warns of a rule if an earlier rule of the same shape counts some of the same requests.
func (l *linter) twice(r *rule, earlier *sameShape) {
	if len(earlier.rules) == 0 || l.budget.spend(r, 1) {
		return
	}
	for _, i := range earlier.likely.meeting(r.match) {
		other := earlier.rules[i]
		if l.budget.spend(r, effort(other.match, r.match)) {
			return
		}
		if apart(other.match, r.match) || slices.Contains(other.Replaces, r.Name) || slices.Contains(r.Replaces, other.Name) ||
			contradiction(slices.Concat(other.match, r.match), r.Per, l.set.Secret) != "" {
			continue
		}
		l.aboutRule(r)(Twice, "it has the key and the limits of rule %q, and a request that both match is counted by each under a counter of its own; make one rule of them, or let their match exclude each other", other.Name)
		return
	}
}

// condition is a condition of a rule or of an entry of a list, with its values prepared for
// comparisons.
type condition struct {
	*policy.Condition
	values *values
}

func newConditions(list []policy.Condition) []condition {
	all := make([]condition, len(list))
	for i := range list {
		all[i] = condition{&list[i], newValues(&list[i])}
	}
	return all
}

// present and absent return the conditions that an entry is present or absent.
func present(entry string) condition {
	return condition{&policy.Condition{Entry: entry}, new(values)}
}

func absent(entry string) condition {
	return condition{&policy.Condition{Entry: entry, Not: true}, new(values)}
}

// bare reports whether the condition demands only presence or absence.
func (c *condition) bare() bool { return len(c.values.list) == 0 }

// implies reports whether every request that meets condition c is known to meet want. It looks only
// at these two, and so misses what follows from several conditions together.
func (c *condition) implies(want *condition) bool {
	switch {
	case c.Entry != want.Entry:
		return false
	case c.Not && want.Not: // c excludes all that want excludes.
		return c.bare() || !want.bare() && c.values.coverAll(want.values)
	case c.Not:
		return false
	case want.Not: // want excludes no value that meets c.
		return !c.bare() && !want.bare() && !c.values.meet(want.values)
	}
	return want.bare() || !c.bare() && want.values.coverAll(c.values)
}

// implied reports whether every request that meets all of the given conditions is known to
// meet all of the wanted ones.
func implied(given, want []condition) bool {
	for i := range want {
		if !slices.ContainsFunc(given, func(c condition) bool { return c.implies(&want[i]) }) {
			return false
		}
	}
	return true
}

// apart reports whether two of the conditions demand values of the same entry and have no value in
// common. For most pairs of rules this is enough to show that no request meets both.
func apart(a, b []condition) bool {
	for i := range a {
		for j := range b {
			p, q := &a[i], &b[j]
			if p.Entry == q.Entry && !p.Not && !q.Not && !p.bare() && !q.bare() && !p.values.meet(q.values) {
				return true
			}
		}
	}
	return false
}

// contradiction says why no request can meet all conditions and have the entries by which the rule
// counts. It returns "" if it finds no reason.
func contradiction(match []condition, per []policy.Part, secret func(entry string) bool) string {
	for i := range match {
		entry := match[i].Entry
		if slices.ContainsFunc(match[:i], func(c condition) bool { return c.Entry == entry }) {
			continue // The entry was looked at already.
		}
		if why := contradictionOf(entry, match[i:], per, secret(entry)); why != "" {
			return why
		}
	}
	return ""
}

// contradictionOf is contradiction for the conditions on one entry.
func contradictionOf(entry string, match []condition, per []policy.Part, secret bool) string {
	var required, absent bool
	var demanded, excluded []*condition
	for i := range match {
		c := &match[i]
		switch {
		case c.Entry != entry:
		case c.Not && c.bare():
			absent = true
		case c.Not:
			excluded = append(excluded, c)
		case c.bare():
			required = true
		default:
			required = true
			demanded = append(demanded, c)
		}
	}
	counted := slices.ContainsFunc(per, func(p policy.Part) bool { return p.Entry == entry })
	switch {
	case absent && required:
		return fmt.Sprintf("entry %q must be both absent and present; drop one of the conditions", entry)
	case absent && counted:
		return fmt.Sprintf("entry %q must be absent, but the rule counts by it; take it out of per, or drop the condition", entry)
	case len(demanded) == 0:
		return ""
	}
	left := common(demanded)
	if len(left) == 0 {
		return fmt.Sprintf("entry %q must have a value out of %d lists that have none in common; join them into one", entry, len(demanded))
	}
	for _, p := range left {
		if !slices.ContainsFunc(excluded, func(c *condition) bool { return c.values.cover(p) }) {
			return ""
		}
	}
	return fmt.Sprintf("entry %q must have one of the values %s, and not has each of them; take them out of not", entry, demanded[0].Describe(secret))
}

// common returns the patterns that the values which meet all of the conditions may meet. Two
// patterns either have no value in common, or one includes the other. So the patterns shared by all
// conditions are among the conditions' own patterns.
func common(demanded []*condition) []pattern {
	if len(demanded) == 1 {
		return demanded[0].values.list
	}
	var left []pattern
	for i, c := range demanded {
		for _, p := range c.values.list {
			shared := true
			for j, other := range demanded {
				shared = shared && (i == j || other.values.mayHave(p))
			}
			if shared {
				left = append(left, p)
			}
		}
	}
	return left
}

// groups holds many lists of conditions, each with a number. It finds the few lists with which a
// given list must be compared. Each list is in the group of one entry of which it demands values or
// presence. Lists that demand neither of any entry are in rest.
type groups struct {
	entries map[string]*group
	rest    []int
	found   []int // the result of the last call
}

// group has the lists that are grouped by one entry. Each slice of lists is in ascending order.
type group struct {
	// demand has, for each pattern, the lists whose condition has that pattern. lengths and bits
	// are the lengths of the prefixes and of the networks among these patterns, each once.
	demand        map[pattern][]int
	lengths, bits []int
	// present has the lists that demand only presence.
	present []int
	// mixed has all lists except those that demand one of some whole values. all has all lists of
	// the group.
	mixed, all []int
}

// newGroups groups the lists. The number of a list is its index.
func newGroups(lists [][]condition) *groups {
	g := &groups{}
	for i, list := range lists {
		g.add(i, list)
	}
	return g
}

// whole reports whether the condition demands one of some whole values.
func (c *condition) whole() bool { return !c.Not && c.values.kinds == wholeKind }

// add adds a list to the group of one of its conditions: one with whole values if there is one,
// because the fewest lists have to be compared with it, else one with other values, else one that
// demands presence.
func (g *groups) add(i int, list []condition) {
	at := slices.IndexFunc(list, func(c condition) bool { return c.whole() })
	if at < 0 {
		at = slices.IndexFunc(list, func(c condition) bool { return !c.Not && !c.bare() })
	}
	if at < 0 {
		at = slices.IndexFunc(list, func(c condition) bool { return !c.Not })
	}
	if at < 0 {
		g.rest = append(g.rest, i)
		return
	}
	c := &list[at]
	if g.entries == nil {
		g.entries = make(map[string]*group)
	}
	in := g.entries[c.Entry]
	if in == nil {
		in = &group{demand: make(map[pattern][]int)}
		g.entries[c.Entry] = in
	}
	in.all = append(in.all, i)
	if !c.whole() {
		in.mixed = append(in.mixed, i)
	}
	if c.bare() {
		in.present = append(in.present, i)
	}
	for _, p := range c.values.list {
		in.demand[p] = append(in.demand[p], i)
	}
	in.lengths, in.bits = with(in.lengths, c.values.lengths), with(in.bits, c.values.bits)
}

// with adds the numbers of more that are missing in list.
func with(list, more []int) []int {
	for _, n := range more {
		if !slices.Contains(list, n) {
			list = append(list, n)
		}
	}
	return list
}

// implied returns the lists that may follow from the given conditions, in ascending order. The
// slice is valid until the next call of a method.
func (g *groups) implied(given []condition) []int {
	g.found = append(g.found[:0], g.rest...)
	for i := range given {
		c := &given[i]
		in := g.entries[c.Entry]
		if c.Not || in == nil {
			continue
		}
		g.found = append(g.found, in.present...)
		if c.bare() {
			continue
		}
		// A list that follows from the condition follows from each of its values, so the lists for
		// the first value are enough.
		for p := range covering(c.values.list[0], in.lengths, in.bits) {
			g.found = append(g.found, in.demand[p]...)
		}
	}
	return g.sorted()
}

// meeting returns the lists that a request which meets the conditions may meet as well, in
// ascending order. The slice is valid until the next call of a method.
func (g *groups) meeting(match []condition) []int {
	g.found = append(g.found[:0], g.rest...)
	for entry, in := range g.entries {
		at := slices.IndexFunc(match, func(c condition) bool { return c.Entry == entry && c.whole() })
		if at < 0 {
			g.found = append(g.found, in.all...)
			continue
		}
		g.found = append(g.found, in.mixed...)
		for _, p := range match[at].values.list {
			g.found = append(g.found, in.demand[p]...)
		}
	}
	return g.sorted()
}

func (g *groups) sorted() []int {
	slices.Sort(g.found)
	g.found = slices.Compact(g.found)
	return g.found
}

// pattern is a value, prefix, network or hash that a condition lists.
type pattern struct {
	kind    kinds
	text    string       // for all kinds except networkKind
	network netip.Prefix // for networkKind
}

// kinds is a set of kinds of patterns.
type kinds uint8

const (
	wholeKind   kinds = 1 << iota // a whole value
	prefixKind                    // the beginning of a value
	networkKind                   // a network that contains an address
	hashKind                      // the hash of a secret value
)

// unclear returns the kinds of patterns that cannot be compared with those in k: it is not known
// whether some value meets both patterns. A hash may be the hash of any value, and the spelling of
// an address says nothing about its network.
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

// values are the patterns of a condition. The condition holds for a value that meets one of them.
// There may be ten thousand, so they are found in a map, not by a search through the list.
type values struct {
	list    []pattern
	known   map[pattern]bool // the patterns in list
	kinds   kinds            // the kinds of the patterns in list
	lengths []int            // the lengths of the prefixes, each once
	bits    []int            // the lengths of the networks, each once
}

func newValues(c *policy.Condition) *values {
	v := &values{list: make([]pattern, 0, c.Size())}
	for _, text := range c.Equals {
		if c.Entry == "ip" {
			if a, ok := address(text); ok {
				text = a.String()
			}
		}
		v.list = append(v.list, pattern{kind: wholeKind, text: text})
	}
	for _, text := range c.Prefixes {
		v.list = append(v.list, pattern{kind: prefixKind, text: text})
		v.lengths = append(v.lengths, len(text))
	}
	for _, n := range c.Networks {
		v.list = append(v.list, pattern{kind: networkKind, network: n})
		v.bits = append(v.bits, n.Bits())
	}
	for _, text := range c.Hashes {
		v.list = append(v.list, pattern{kind: hashKind, text: text})
	}
	v.known = make(map[pattern]bool, len(v.list))
	for _, p := range v.list {
		v.known[p] = true
		v.kinds |= p.kind
	}
	slices.Sort(v.lengths)
	slices.Sort(v.bits)
	v.lengths, v.bits = slices.Compact(v.lengths), slices.Compact(v.bits)
	return v
}

// address parses an address in the form in which conditions on the entry "ip" compare it.
func address(text string) (netip.Addr, bool) {
	a, err := netip.ParseAddr(text)
	return a.Unmap().WithZone(""), err == nil
}

// covering yields the patterns that every value which meets p is known to meet: p itself, the
// prefixes of p with the given lengths, and the networks around p with the given bits.
func covering(p pattern, lengths, bits []int) iter.Seq[pattern] {
	return func(yield func(pattern) bool) {
		if !yield(p) || p.kind == hashKind {
			return
		}
		network := p.network
		if p.kind == wholeKind && len(bits) > 0 {
			if a, ok := address(p.text); ok {
				network = netip.PrefixFrom(a, a.BitLen())
			}
		}
		if network.IsValid() {
			for _, n := range bits {
				if outer, err := network.Addr().Prefix(n); err == nil && n <= network.Bits() && !yield(pattern{kind: networkKind, network: outer}) {
					return
				}
			}
		}
		if p.kind == networkKind {
			return
		}
		for _, n := range lengths {
			if n <= len(p.text) && !yield(pattern{kind: prefixKind, text: p.text[:n]}) {
				return
			}
		}
	}
}

// cover reports whether every value that meets p is known to meet a pattern of v.
func (v *values) cover(p pattern) bool {
	for q := range covering(p, v.lengths, v.bits) {
		if v.known[q] {
			return true
		}
	}
	return false
}

// coverAll reports whether every value that meets a pattern of o is known to meet a pattern of v.
func (v *values) coverAll(o *values) bool {
	return !slices.ContainsFunc(o.list, func(p pattern) bool { return !v.cover(p) })
}

// mayHave reports whether it is possible that every value which meets p also meets a pattern of v:
// that is known, or the patterns cannot be compared.
func (v *values) mayHave(p pattern) bool { return v.cover(p) || p.kind.unclear()&v.kinds != 0 }

// meet reports whether a value may meet both a pattern of v and a pattern of o.
func (v *values) meet(o *values) bool {
	if len(v.list) > len(o.list) {
		v, o = o, v
	}
	return v.kinds.unclear()&o.kinds != 0 || slices.ContainsFunc(v.list, o.cover) ||
		// Whole values cover only themselves.
		v.kinds != wholeKind && slices.ContainsFunc(o.list, v.cover)
}
