package lint

import (
	"fmt"
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

// ofAll reports whether the rule counts all clients together: it counts by nothing, or only by
// entries that clients choose anew with each request.
func ofAll(r *rule) bool {
	return !slices.ContainsFunc(r.Per, func(p policy.Part) bool { return !slices.Contains(chosen, p.Entry) })
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
		if !ofAll(c) || ofAll(r) || !identifies(entry) || demandsAbsence(c, entry) {
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
		return c.Entry == entry && c.Not && len(c.Equals)+len(c.Prefixes)+len(c.Networks)+len(c.Hashes) == 0
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
	shapes := make(map[string]*alike)
	for _, r := range plain {
		if l.shadowed(r, plain, likely) {
			continue
		}
		s := shape(r)
		if shapes[s] == nil {
			shapes[s] = new(alike)
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
	told := make([]bool, len(limits))
	found := 0
	for _, i := range likely.implied(r.bound) {
		other := others[i]
		// A rule that may be replaced cannot be relied on to deny.
		if other == r || other.replaced || other.Factor() != r.Factor() || !wider(other.Per, r.Per) {
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
			if told[j] {
				continue
			}
			by, why := makesUseless(other.Limits, limits[j].Limit)
			if why == "" || same && useless(limits[j].Limit, by) != "" {
				continue
			}
			told[j] = true
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

// alike has the rules of one shape.
type alike struct {
	rules  []*rule
	likely groups
}

func (a *alike) add(r *rule) {
	a.likely.add(len(a.rules), r.match)
	a.rules = append(a.rules, r)
}

// shape returns a text of what the rule counts by, its cost and its limits. Rules with the same
// text have the same shape.
func shape(r *rule) string {
	var b strings.Builder
	for _, p := range r.Per {
		fmt.Fprintf(&b, "%s/%d/%d ", p.Entry, p.Bits4, p.Bits6)
	}
	fmt.Fprintf(&b, "cost %d ", r.Factor())
	limits := r.Limits.Limits()
	for i := range limits {
		fmt.Fprintf(&b, "%v %v, ", limits[i].Algorithm, &limits[i])
	}
	return b.String()
}

// twice warns of a rule if an earlier rule of the same shape counts some of the same requests.
func (l *linter) twice(r *rule, earlier *alike) {
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
