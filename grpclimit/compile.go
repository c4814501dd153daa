package grpclimit

import (
	"errors"
	"slices"
	"strings"

	"github.com/headgate/headgate"
	"github.com/headgate/headgate/policy"
)

// compiled is bindings as a policy of their own, so that their keys are made in one
// place.
type compiled struct {
	bindings []binding
	set      *policy.Set
}

// compiler works out what options mean, for a server or a client.
type compiler struct {
	settings *settings
	known    []*fact         // what every call has
	taken    map[string]bool // names of rules
	needed   map[string]bool // entries that some rule looks at
	sources  []*fact
}

func newCompiler(s *settings, known []*fact) *compiler {
	c := &compiler{s, known, make(map[string]bool), make(map[string]bool), slices.Clone(s.facts)}
	if s.set != nil {
		for _, r := range s.set.Rules() {
			c.taken[r.Name] = true
		}
		for _, name := range s.set.Entries() {
			c.needed[name] = true
		}
	}
	return c
}

// compile turns bindings, which the option of that name has made, into a policy.
func (c *compiler) compile(option string, bindings []binding) compiled {
	s := c.settings
	var rules []policy.Rule
	for i := range bindings {
		l := &bindings[i]
		if !l.key.made {
			s.bad("%s %d has an empty Key; make one with a By function, Everyone or Combine", option, i+1)
		}
		if len(l.rules) == 0 {
			s.bad("%s %d has no rule", option, i+1)
		}
		c.sources = append(c.sources, l.key.facts...)
		for _, f := range l.key.facts {
			c.needed[f.name] = true
		}
		for _, r := range l.rules {
			switch {
			case r == nil:
				s.bad("%s %d has a nil rule; make rules with headgate.NewRule", option, i+1)
				continue
			case c.taken[r.Name()]:
				s.bad("%s %d: the rule %q is there already; counters are kept under the name, so give each rule its own", option, i+1, r.Name())
				continue
			}
			c.taken[r.Name()] = true
			rules = append(rules, policy.Rule{Limits: r, Per: l.key.parts(s.ipv6Bits)})
		}
	}
	if len(rules) > headgate.MaxChecks {
		s.bad("there are %d rules in %ss, must be at most %d", len(rules), option, headgate.MaxChecks)
	}
	var options []policy.Option
	if s.hashKey != nil {
		options = append(options, policy.WithHashKey(s.hashKey))
	}
	if s.oldHashes {
		options = append(options, policy.WithOldHashKey(s.oldHashKey))
	}
	set, err := policy.New(rules, options...)
	var mistaken *policy.Error
	switch {
	case errors.As(err, &mistaken):
		for _, mistake := range mistaken.Mistakes {
			if mistake.Rule != "" {
				s.bad("rule %q: %s", mistake.Rule, mistake.Text)
			} else if !slices.Contains(s.problems, mistake.Text) { // of the hash keys, which all have
				s.bad("%s", mistake.Text)
			}
		}
	case err != nil:
		s.bad("%v", err)
	}
	return compiled{bindings, set}
}

// facts returns the facts that some rule needs, the first of each name: what the
// options say goes before what every call has.
func (c *compiler) facts() []*fact {
	s := c.settings
	var chosen []*fact
	byName := make(map[string]*fact)
	for _, f := range append(c.sources, c.known...) {
		if f.find == nil {
			s.bad("the entry %q needs a function that finds it", f.name)
		}
		switch first := byName[f.name]; {
		case first == nil:
			byName[f.name] = f
			if c.needed[f.name] || s.describe != nil {
				chosen = append(chosen, f)
			}
		case first != f && !slices.Contains(c.known, f):
			s.bad("the entry %q is found in two ways; make its Key or Fact once", f.name)
		}
	}
	if s.describe == nil && s.set != nil {
		c.unknown(byName)
	}
	return chosen
}

// unknown reports entries that the policy's rules need and nothing provides: such a
// rule would never bind, or always, which is not what it says.
func (c *compiler) unknown(byName map[string]*fact) {
	var unknown []string
	tabled := c.settings.set.Subjects().Names()
	for name := range c.needed {
		if byName[name] == nil && !slices.Contains(tabled, name) {
			unknown = append(unknown, name)
		}
	}
	if len(unknown) == 0 {
		return
	}
	slices.Sort(unknown)
	provided := make([]*fact, 0, len(byName))
	for _, f := range byName {
		provided = append(provided, f)
	}
	c.settings.bad("the policy's rules need the entries %s, which nothing finds (there are %s); add a Fact for each",
		strings.Join(unknown, ", "), strings.Join(names(provided), ", "))
}
