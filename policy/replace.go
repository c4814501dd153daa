package policy

import (
	"fmt"
	"slices"

	"github.com/headgate/headgate"
)

// replacers are the names of the rules, and of the entries of lists, that replace one rule or one
// entry of the deny list.
type replacers struct{ rules, entries []string }

// among returns the name of one of the replacers that binds the request by one of the checks or
// bounds, or that is among the entries that have answered it; "" if none does.
func (r *replacers) among(checks []headgate.Check, bounds []Bound, entries []*ListEntry) string {
	if r == nil {
		return ""
	}
	if len(r.rules) > 0 {
		for i := range checks {
			if c := &checks[i]; c.Rule != nil && slices.Contains(r.rules, c.Rule.Name()) {
				return c.Rule.Name()
			}
		}
		for i := range bounds {
			if name := bounds[i].Rule.Name; slices.Contains(r.rules, name) {
				return name
			}
		}
	}
	if len(r.entries) > 0 {
		for _, e := range entries {
			if slices.Contains(r.entries, e.Name) {
				return e.Name
			}
		}
	}
	return ""
}

// checkReplaces reports the names under Replaces that cannot be replaced. The names themselves are
// known to be valid.
func (s *Set) checkReplaces() (mistakes []Mistake) {
	listed := make(map[string]bool) // by name, whether it is on the deny list
	for i := range s.options.allow {
		listed[s.options.allow[i].Name] = false
	}
	for i := range s.options.deny {
		listed[s.options.deny[i].Name] = true
	}
	for i := range s.rules {
		r := &s.rules[i]
		bad := func(field, format string, args ...any) {
			mistakes = append(mistakes, Mistake{i, r.Name, field, r.Pos, fmt.Sprintf(format, args...)})
		}
		if r.Direct && len(r.Replaces) > 0 {
			bad("replaces", "a direct rule replaces nothing: whoever names it says what binds the request")
		}
		if slices.Contains(r.Replaces, r.Name) {
			bad(fmt.Sprintf("replaces.%d", slices.Index(r.Replaces, r.Name)), "the rule would replace itself")
		}
		s.checkReplaced("replaces", r.Replaces, listed, bad)
	}
	for _, list := range []struct {
		name    string
		entries []ListEntry
	}{{"deny", s.options.deny}, {"allow", s.options.allow}} {
		for i := range list.entries {
			e := &list.entries[i]
			bad := func(field, format string, args ...any) {
				mistakes = append(mistakes, Mistake{Index: -1, Field: field, Pos: e.Pos, Text: fmt.Sprintf(format, args...)})
			}
			field := fmt.Sprintf("%s.%d.replaces", list.name, i)
			if j := slices.Index(e.Replaces, e.Name); j >= 0 && s.Rule(e.Name) == nil {
				bad(fmt.Sprintf("%s.%d", field, j), "the entry would replace itself")
			}
			s.checkReplaced(field, e.Replaces, listed, bad)
		}
	}
	return mistakes
}

// checkReplaced reports which of the names cannot be replaced.
func (s *Set) checkReplaced(prefix string, names []string, listed map[string]bool, bad func(field, format string, args ...any)) {
	if len(names) > MaxReplaces {
		bad(prefix, "there are %d rules to replace, must be at most %d", len(names), MaxReplaces)
		return
	}
	seen := make(map[string]bool, len(names))
	for j, name := range names {
		field := fmt.Sprintf("%s.%d", prefix, j)
		denies, isListed := listed[name]
		switch other := s.Rule(name); {
		case seen[name]:
			bad(field, "the rule %q is named twice", name)
		case other != nil && other.Direct:
			bad(field, "the rule %q is direct, so that it binds whoever names it", name)
		case other != nil:
		case isListed && !denies:
			bad(field, "%q is an entry of the allow list, which limits nothing that could be replaced", name)
		case !isListed:
			bad(field, "there is no rule %q to replace, nor such an entry of the deny list", name)
		}
		seen[name] = true
	}
}

// compileReplaces records for each rule, and for each entry of the deny list, what replaces it.
func (s *Set) compileReplaces() {
	of := func(name string) *replacers {
		s.replaces = true
		if i, isRule := s.names[name]; isRule {
			c := &s.compiled[i]
			if c.replacedBy == nil {
				c.replacedBy = new(replacers)
			}
			return c.replacedBy
		}
		if s.deniedBy == nil {
			s.deniedBy = make(map[string]*replacers)
		}
		if s.deniedBy[name] == nil {
			s.deniedBy[name] = new(replacers)
		}
		return s.deniedBy[name]
	}
	for i := range s.rules {
		for _, name := range s.rules[i].Replaces {
			r := of(name)
			r.rules = append(r.rules, s.rules[i].Name)
		}
	}
	for _, list := range [][]ListEntry{s.options.deny, s.options.allow} {
		for i := range list {
			for _, name := range list[i].Replaces {
				r := of(name)
				r.entries = append(r.entries, list[i].Name)
			}
		}
	}
}

// Replaced reports whether the rule of the check is replaced by the rule of another check, or by an
// entry of a list. The checks are those of all descriptors of one request, and the entries are
// those that have answered some of its descriptors.
func (s *Set) Replaced(c *headgate.Check, checks []headgate.Check, entries ...*ListEntry) bool {
	return c.Rule != nil && s.replacing(c.Rule.Name(), checks, nil, entries...) != ""
}

// ReplacedEntry is Replaced for an entry of the deny list.
func (s *Set) ReplacedEntry(e *ListEntry, checks []headgate.Check, entries ...*ListEntry) bool {
	return s.replaces && s.deniedBy[e.Name].among(checks, nil, entries) != ""
}

// replacing returns the name of what replaces the rule of that name, or "".
func (s *Set) replacing(name string, checks []headgate.Check, bounds []Bound, entries ...*ListEntry) string {
	if !s.replaces {
		return ""
	}
	i, ok := s.names[name]
	if !ok {
		return ""
	}
	return s.compiled[i].replacedBy.among(checks, bounds, entries)
}

// dropReplaced removes the bounds, and the checks from the given place on, whose rules are replaced
// by others among them.
func (s *Set) dropReplaced(out *Outcome, from int) {
	if !s.replaces {
		return
	}
	own, bounds := out.Checks[from:], out.Bounds
	var kept []headgate.Check
	for i := range own {
		if s.replacing(own[i].Rule.Name(), own, bounds) == "" {
			kept = append(kept, own[i])
		}
	}
	var left []Bound
	for i := range bounds {
		if s.replacing(bounds[i].Rule.Name, own, bounds) == "" {
			left = append(left, bounds[i])
		}
	}
	clear(own)
	out.Checks, out.Bounds = append(out.Checks[:from], kept...), left
}
