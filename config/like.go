package config

import (
	"fmt"
	"maps"
	"slices"
	"strings"

	"github.com/headgate/headgate/internal/closest"
	"github.com/headgate/headgate/policy"
)

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
				break // Told already.
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
