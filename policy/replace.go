package policy

import (
	"fmt"
	"slices"

	"github.com/headgate/headgate"
)

// checkReplaces reports what the rules replace and cannot. Their names are known.
func (s *Set) checkReplaces() (mistakes []Mistake) {
	for i := range s.rules {
		r := &s.rules[i]
		bad := func(field, format string, args ...any) {
			mistakes = append(mistakes, Mistake{i, r.Name, field, r.Pos, fmt.Sprintf(format, args...)})
		}
		if len(r.Replaces) > MaxReplaces {
			bad("replaces", "there are %d rules to replace, must be at most %d", len(r.Replaces), MaxReplaces)
			continue
		}
		if r.Direct && len(r.Replaces) > 0 {
			bad("replaces", "a direct rule replaces nothing: whoever names it says what binds the request")
		}
		for j, name := range r.Replaces {
			field := fmt.Sprintf("replaces.%d", j)
			switch other := s.Rule(name); {
			case name == r.Name:
				bad(field, "the rule would replace itself")
			case other == nil:
				bad(field, "there is no rule %q to replace", name)
			case other.Direct:
				bad(field, "the rule %q is direct, so that it binds whoever names it", name)
			case slices.Contains(r.Replaces[:j], name):
				bad(field, "the rule %q is named twice", name)
			}
		}
	}
	return mistakes
}

// compileReplaces has each rule know what it is replaced by.
func (s *Set) compileReplaces() {
	for i := range s.rules {
		for _, name := range s.rules[i].Replaces {
			s.replaces = true
			other := &s.compiled[s.names[name]]
			other.replacedBy = append(other.replacedBy, s.rules[i].Name)
		}
	}
}

// Replaced reports whether the check is of a rule that one of the others replaces.
// The checks are all of one request.
func (s *Set) Replaced(c *headgate.Check, checks []headgate.Check) bool {
	return s.replacing(c, checks) != ""
}

// replacing returns the name of the rule that takes the place of the check's, or "".
func (s *Set) replacing(c *headgate.Check, checks []headgate.Check) string {
	if !s.replaces || c.Rule == nil {
		return ""
	}
	i, ok := s.names[c.Rule.Name()]
	if !ok || len(s.compiled[i].replacedBy) == 0 {
		return ""
	}
	for j := range checks {
		if name := checks[j].Rule.Name(); slices.Contains(s.compiled[i].replacedBy, name) {
			return name
		}
	}
	return ""
}

// dropReplaced takes off the checks from the given one on whose rules others of
// them replace.
func (s *Set) dropReplaced(checks []headgate.Check, from int) []headgate.Check {
	if !s.replaces {
		return checks
	}
	own := checks[from:]
	var kept []headgate.Check
	for i := range own {
		if !s.Replaced(&own[i], own) {
			kept = append(kept, own[i])
		}
	}
	clear(own)
	return append(checks[:from], kept...)
}
