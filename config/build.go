package config

import (
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	"github.com/headgate/headgate"
	"github.com/headgate/headgate/internal/closest"
	"github.com/headgate/headgate/internal/errtext"
	"github.com/headgate/headgate/policy"
)

// compiler makes a set of what was read. Every rule goes to policy.New, even if
// some of it could not be used, so that what is wrong with the rest is told as
// well; stand-ins take the place of what could not.
type compiler struct {
	*mistakes
	rules   []policy.Rule
	places  []places
	file    places // of what is not in a rule
	options []policy.Option
	// inherited are mistakes in limits that a rule has from another one.
	inherited []inheritedMistake
}

// inheritedMistake is told only if it is not one of the other rule as well.
type inheritedMistake struct{ own, here Mistake }

// standIn takes the place of a limit with a mistake.
func standIn() headgate.Limit { return headgate.PerSecond(1) }

func compile(m *mistakes, file *fileText, src *source, opts []policy.Option) *policy.Set {
	c := compiler{mistakes: m, file: file.places, options: slices.Clone(opts)}
	inherit(m, file.rules)
	for i := range file.rules {
		if e := &file.rules[i]; e.good {
			c.rule(e.at, &e.value)
		}
	}
	for i := range file.short {
		if e := &file.short[i]; e.good {
			c.short(e.at, &e.value)
		}
	}
	if file.entries != nil {
		c.options = append(c.options, policy.Entries(file.entries...))
	}
	c.options = append(c.options,
		policy.Behind(file.behind...),
		policy.Models(file.models...),
		policy.Ignored(file.ignore...),
		policy.Denied(c.list("deny", file.deny)...),
		policy.Allowed(c.list("allow", file.allow)...))
	if file.unit != nil {
		c.options = append(c.options, policy.MoneyUnit(*file.unit))
	}
	if file.subjects != nil {
		c.subjects(file.subjects, src)
	}
	set, err := policy.New(c.rules, c.options...)
	if found, ok := errors.AsType[*policy.Error](err); ok {
		for i := range found.Mistakes {
			c.keep(c.placed(&found.Mistakes[i]))
		}
	}
	for _, one := range c.inherited {
		if !c.seen[one.own] {
			c.keep(one.here)
		}
	}
	return set
}

// placed gives the mistake the place of its field or, failing that, of what the
// field is in.
func (c *compiler) placed(m *policy.Mistake) Mistake {
	found := Mistake{c.mistakes.file, m.Pos.Line, m.Pos.Column, m.Text}
	if m.Pos.File != "" {
		found.File = m.Pos.File
	}
	known := c.file
	if m.Index >= 0 {
		known = c.places[m.Index]
	}
	for field := m.Field; field != ""; field = field[:max(0, strings.LastIndexByte(field, '.'))] {
		if at, ok := known[field]; ok {
			found.File, found.Line, found.Column = c.mistakes.file, at.line, at.column
			break
		}
		if m.Index < 0 && m.Pos.Line != 0 {
			break // The entry's own place is nearer than its list's.
		}
	}
	return found
}

// list makes the entries of allow or deny, and keeps their places.
func (c *compiler) list(name string, entries []entry[listText]) []policy.ListEntry {
	var all []policy.ListEntry
	for i := range entries {
		e := &entries[i]
		if !e.good || e.value.entry.Name == "" || e.value.entry.Match == nil {
			continue // Reported already.
		}
		prefix := fmt.Sprintf("%s.%d", name, len(all))
		c.file.keep(e.at, prefix)
		for field, at := range e.value.places {
			c.file.keep(at, prefix+"."+field)
		}
		one := e.value.entry
		one.Pos = e.at.in(c.mistakes.file)
		all = append(all, one)
	}
	return all
}

func (c *compiler) rule(at place, t *ruleText) {
	r := t.rule
	r.Cost, r.Costs, r.Pos = t.cost.number, t.cost.costs, at.in(c.mistakes.file)
	l := limitsCompiler{c: c, t: t, name: t.rule.Name, written: make(map[string]policy.Written, len(t.places))}
	// With its own name, if it is one, the rule can be found to repeat that of
	// another.
	if _, err := headgate.NewRule(t.rule.Name, standIn()); err != nil {
		l.name = fmt.Sprintf("line-%d-column-%d", at.line, at.column)
		var invalid *headgate.InvalidError
		if place, given := t.places["name"]; given && errors.As(err, &invalid) {
			c.add(place, "%s", invalid.Problems)
		}
	}
	r.Name, l.tag = l.name, c.tag(t)
	own, limited := t.places["limits"]
	_, bounded := t.places["in_progress"]
	if bounded {
		r.InProgress = &t.bound.bound
	}
	switch {
	case !limited && bounded:
		for _, name := range []string{"algorithm", "slot"} {
			if at, given := t.places[name]; given && !t.inherited[at] {
				c.add(at, "%s is about limits, and the rule has none, only in_progress; leave it out, or add limits", name)
			}
		}
	case t.limits.entry == "":
		r.Limits = l.compile(t.limits.list, own, "limits")
	default:
		r.Tariff = &policy.Tariff{Entry: t.limits.entry}
		t.places.keep(own, "tariff")
		for i := range t.limits.tiers {
			tier := &t.limits.tiers[i]
			if tier.value == star {
				r.Tariff.Other = l.compile(tier.limits, own, "tariff.other")
				continue
			}
			field := fmt.Sprintf("tariff.%d", len(r.Tariff.Tiers))
			limits := l.compile(tier.limits, own, field)
			t.places.keep(tier.at, field)
			r.Tariff.Tiers = append(r.Tariff.Tiers, policy.Tier{Value: tier.value, Limits: limits})
		}
	}
	for i := range t.overrides {
		e := &t.overrides[i]
		if !e.good || e.value.match == nil {
			continue // Reported already.
		}
		prefix := fmt.Sprintf("overrides.%d", len(r.Overrides))
		t.places.keep(e.at, prefix)
		for field, at := range e.value.places {
			t.places.keep(at, prefix+"."+field)
		}
		o := policy.Override{Match: e.value.match, InProgress: e.value.inProgress, Until: e.value.until, Pos: e.at.in(c.mistakes.file)}
		if _, given := e.value.places["limits"]; given || o.InProgress == 0 {
			o.Limits = l.compile(e.value.limits, t.places["overrides"], prefix+".limits")
		}
		r.Overrides = append(r.Overrides, o)
	}
	if zone, given := t.places["time_zone"]; given && !t.inherited[zone] && !l.bad && !l.zoned {
		c.add(zone, "time_zone is %s, but no limit has calendar windows that it would apply to; leave it out", t.zone)
	}
	for field, at := range t.places {
		if _, ok := l.written[field]; !ok {
			l.written[field] = policy.Written{Pos: at.in(c.mistakes.file)}
		}
	}
	r.Written = l.written
	c.rules = append(c.rules, r)
	c.places = append(c.places, t.places)
}

// tag is the rule's, if it is one.
func (c *compiler) tag(t *ruleText) string {
	at, given := t.places["slot"]
	if !given {
		return ""
	}
	_, err := headgate.MustRule("tagged", standIn()).WithTag(t.slot)
	var invalid *headgate.InvalidError
	switch reported := t.inherited[at]; {
	case t.slot == "" && !reported:
		c.add(at, "the tag has 0 bytes, must have 1 to %d", headgate.MaxTag)
	case errors.As(err, &invalid) && !reported:
		c.add(at, "%s", invalid.Problems)
	}
	if err != nil {
		return ""
	}
	return t.slot
}

func (c *compiler) short(at place, t *shortText) {
	list := make([]entry[limitText], len(t.config))
	for i := range t.config {
		e := &t.config[i]
		list[i] = entry[limitText]{at: e.at}
		if w := e.value; e.good && w.limit > 0 && w.period > 0 {
			limit := headgate.Sliding(w.limit, time.Duration(w.period)*time.Second)
			list[i].value, list[i].good = limitText{limit: limit, chosen: true}, true
		}
	}
	c.rule(at, &ruleText{places: t.places, rule: policy.Rule{Name: t.name, Direct: true}, limits: limitsText{list: list}})
}

// limitsCompiler compiles the lists of limits of one rule.
type limitsCompiler struct {
	c    *compiler
	t    *ruleText
	name string
	tag  string
	// bad and zoned say of all lists so far whether one has a mistake, and
	// whether the rule's time zone applies to one.
	bad, zoned bool
	// written has how each limit was written.
	written map[string]policy.Written
}

// compile makes a list of limits, which stands in a field at own, or a stand-in. The field is
// what the list is called in the rule.
func (l *limitsCompiler) compile(list []entry[limitText], own place, field string) *headgate.Rule {
	limits := make([]headgate.Limit, len(list))
	for i := range list {
		e := &list[i]
		limits[i] = standIn()
		_, named := l.t.places["algorithm"]
		l.written[fmt.Sprintf("%s.%d", field, i)] = policy.Written{Pos: e.at.in(l.c.mistakes.file), Default: !named && !e.value.chosen}
		if !e.good {
			l.bad = true
			continue
		}
		limit, err := e.value.resolve(l.t.algorithm, l.t.zone)
		if err != nil {
			l.tell(e.at, own, errtext.Text(err))
			continue
		}
		l.zoned = l.zoned || limit.Location != nil && limit.Location == l.t.zone
		if invalid, ok := errors.AsType[*headgate.InvalidError](limit.Validate()); ok {
			for _, problem := range invalid.Problems {
				l.tell(e.at, own, fmt.Sprintf("limit %q: %s", &limit, problem.Text))
			}
		}
		limits[i] = limit
	}
	if len(limits) == 0 {
		l.bad = true // Reported already.
		return headgate.MustRule(l.name, standIn())
	}
	compiled, err := headgate.NewRule(l.name, limits...)
	var invalid *headgate.InvalidError
	if !errors.As(err, &invalid) {
		// The tag has been found to be good.
		tagged, _ := compiled.WithTag(l.tag)
		return tagged
	}
	for _, problem := range invalid.Problems {
		if problem.Field == "limits" { // Those of single limits have been reported.
			l.tell(own, own, problem.Text)
		}
	}
	return headgate.MustRule(l.name, standIn())
}

// tell adds a mistake in a limit. Where the rule has its limits from another
// one, whose algorithm may differ, the mistake lies in saying so.
func (l *limitsCompiler) tell(at, own place, text string) {
	l.bad = true
	like, inherits := l.t.places["like"]
	if !inherits || !l.t.inherited[own] {
		l.c.add(at, "%s", text)
		return
	}
	l.c.inherited = append(l.c.inherited, inheritedMistake{
		Mistake{l.c.mistakes.file, at.line, at.column, text},
		Mistake{l.c.mistakes.file, like.line, like.column, fmt.Sprintf("like %q, line %d: %s", l.t.like, at.line, text)},
	})
}

// maxAdvised is for how many names that are not there the one that was meant is looked
// for among ten thousand.
const maxAdvised = 20

// inherit gives every rule with like the fields that it has not, in any order of
// the rules.
func inherit(m *mistakes, rules []entry[ruleText]) {
	fields := ruleFields()
	byName := make(map[string]*ruleText)
	var names []string
	for i := range rules {
		t := &rules[i].value
		if _, taken := byName[t.rule.Name]; rules[i].good && !taken && t.rule.Name != "" {
			byName[t.rule.Name] = t
			names = append(names, t.rule.Name)
		}
	}
	const under, done = 1, 2
	total := 0   // what all rules come to
	advised := 0 // how many names have been compared with all others
	state := make(map[*ruleText]int)
	var expand func(t *ruleText, path []string)
	expand = func(t *ruleText, path []string) {
		path = append(path, t.rule.Name)
		if t.like == "" || state[t] == done {
			return
		}
		state[t] = under
		base := byName[t.like]
		switch {
		case base == nil:
			advice := "it must be another rule of this file"
			if advised++; advised <= maxAdvised {
				if meant := closest.Word(t.like, names); meant != "" {
					advice = fmt.Sprintf("did you mean %q?", meant)
				}
			}
			m.add(t.places["like"], "there is no rule %q to be like; %s", t.like, advice)
		case state[base] == under:
			m.add(t.places["like"], "the rule is like itself: %s; break the circle", circle(path, t.like))
		default:
			expand(base, path)
			if total > maxNodes {
				break // Reported already.
			}
			t.take(base, fields)
			if total += t.size(); total > maxNodes {
				m.add(t.places["like"], "with what rules are like written out this has more than %d values", maxNodes)
			}
		}
		state[t] = done
	}
	for i := range rules {
		if rules[i].good {
			expand(&rules[i].value, nil)
		}
	}
}

// size is about how many values the rule has.
func (t *ruleText) size() int {
	conditions := func(all []policy.Condition) (n int) {
		for i := range all {
			c := &all[i]
			n += 1 + len(c.Equals) + len(c.Prefixes) + len(c.Networks) + len(c.Hashes)
		}
		return n
	}
	n := 1 + conditions(t.rule.Match) + len(t.rule.Per) + len(t.limits.list)
	for i := range t.limits.tiers {
		n += 1 + len(t.limits.tiers[i].limits)
	}
	for i := range t.overrides {
		n += 1 + conditions(t.overrides[i].value.match) + len(t.overrides[i].value.limits)
	}
	if t.cost.costs != nil {
		n += len(t.cost.costs.Values)
	}
	return n
}

// circle writes the part of the path that goes around.
func circle(path []string, back string) string {
	text := back
	for i := len(path) - 1; i >= 0; i-- {
		text = path[i] + " is like " + text
		if path[i] == back {
			break
		}
	}
	return text
}

// take copies from base what t has not.
func (t *ruleText) take(base *ruleText, fields []ruleField) {
	given := func(field string) bool {
		_, ok := t.places[field]
		return ok
	}
	taken := make(places)
	for _, f := range fields {
		if f.take == nil || given(f.name) || slices.ContainsFunc(f.with, given) {
			continue
		}
		f.take(t, base)
		for field, at := range base.places {
			if field == f.name || strings.HasPrefix(field, f.name+".") {
				taken[field] = at
			}
		}
	}
	maps.Copy(t.places, taken)
	t.inherited = make(map[place]bool, len(taken))
	for _, at := range taken {
		t.inherited[at] = true
	}
}
