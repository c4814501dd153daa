package admission

import (
	"errors"
	"slices"
	"strings"
	"sync/atomic"

	"github.com/headgate/headgate"
	"github.com/headgate/headgate/policy"
)

// Fact is an entry of the descriptor and how to find it in a request of type R. Facts
// are compared by pointer: two facts of one name contradict each other.
type Fact[R any] struct {
	Name string
	// Find returns the value, or "" if the request has none. It is nil if
	// [Options.Finders] has the function, or by mistake.
	Find func(r R) string
	// Unclear, if it is not nil, says why servers read the value in different ways, or
	// returns "". It is asked if a rule needs the fact.
	Unclear func(r R) string
}

// Key is what a counter is kept for: the values of its facts.
type Key[R any] struct {
	Facts []*Fact[R]
	Made  bool // by a function of the adapter, and not the zero Key
}

// By returns the key of the values of the facts.
func By[R any](facts ...*Fact[R]) Key[R] { return Key[R]{Facts: facts, Made: true} }

// Combine returns the key of the values of all keys.
func Combine[R any](keys ...Key[R]) Key[R] {
	k := Key[R]{Made: len(keys) > 0}
	for _, part := range keys {
		k.Facts = append(k.Facts, part.Facts...)
		k.Made = k.Made && part.Made
	}
	return k
}

// lacks returns the name of an entry that the key needs and the request does not have,
// or "".
func (k *Key[R]) lacks(facts policy.Descriptor) string {
	for _, f := range k.Facts {
		if _, ok := facts.Get(f.Name); !ok {
			return f.Name
		}
	}
	return ""
}

// parts is the key in the words of a policy.
func (k *Key[R]) parts(address *Fact[R], ipv6Bits int) []policy.Part {
	parts := make([]policy.Part, len(k.Facts))
	for i, f := range k.Facts {
		parts[i].Entry = f.Name
		if f == address {
			parts[i].Bits6 = ipv6Bits
		}
	}
	return parts
}

// Binding is rules that count by one key.
type Binding[R any] struct {
	Key   Key[R]
	Rules []*headgate.Rule
}

// compiler works out what options mean.
type compiler[R any] struct {
	*Options[R]
	taken   map[string]bool // names of rules
	bound   map[string]bool // names of the bindings' rules
	needed  map[string]bool // entries that the bindings need
	told    map[string]bool // mistakes that concern all bindings, and are told once
	sources []*Fact[R]
	facts   []Fact[R] // all that can be found, the first of each name
}

func newCompiler[R any](o *Options[R]) *compiler[R] {
	c := &compiler[R]{Options: o, taken: make(map[string]bool), bound: make(map[string]bool), needed: make(map[string]bool), told: make(map[string]bool), sources: slices.Clone(o.Facts)}
	if o.Source != nil {
		for _, r := range o.Source.Set().Rules() {
			c.taken[r.Name] = true
		}
	}
	if o.Missing == CountMissingByIP {
		c.needed[o.Address.Name] = true
	}
	return c
}

// compile turns bindings, which the option of that name has made, into a policy of
// their own, so that keys are made in one place. The policy is nil if there is a
// mistake.
func (c *compiler[R]) compile(option string, bindings []Binding[R]) *policy.Set {
	var rules []policy.Rule
	for i := range bindings {
		b := &bindings[i]
		if !b.Key.Made {
			c.Bad(option, "%s %d has an empty Key; make one with a By function, Everyone or Combine", option, i+1)
		}
		if len(b.Rules) == 0 {
			c.Bad(option, "%s %d has no rule", option, i+1)
		}
		c.sources = append(c.sources, b.Key.Facts...)
		for _, f := range b.Key.Facts {
			c.needed[f.Name] = true
		}
		for _, r := range b.Rules {
			switch {
			case r == nil:
				c.Bad(option, "%s %d has a nil rule; make rules with headgate.NewRule", option, i+1)
				continue
			case c.taken[r.Name()]:
				c.Bad(option, "%s %d: the rule %q is there already; counters are kept under the name, so give each rule its own", option, i+1, r.Name())
				continue
			}
			c.taken[r.Name()], c.bound[r.Name()] = true, true
			rules = append(rules, policy.Rule{Limits: r, Per: b.Key.parts(c.Address, c.IPv6Bits)})
		}
	}
	if len(rules) > headgate.MaxChecks {
		c.Bad(option, "there are %d rules in %ss, must be at most %d", len(rules), option, headgate.MaxChecks)
	}
	var options []policy.Option
	if c.HashKey != nil {
		options = append(options, policy.HashKey(c.HashKey))
	}
	if c.Rotates {
		options = append(options, policy.OldHashKey(c.OldHashKey))
	}
	set, err := policy.New(rules, options...)
	var mistaken *policy.Error
	switch {
	case errors.As(err, &mistaken):
		for _, mistake := range mistaken.Mistakes {
			if mistake.Rule != "" {
				c.Bad(option, "rule %q: %s", mistake.Rule, mistake.Text)
			} else if !c.told[mistake.Text] { // Of the hash keys, which all bindings have.
				c.told[mistake.Text] = true
				c.Bad("HashKey", "%s", mistake.Text)
			}
		}
	case err != nil:
		c.Bad(option, "%v", err)
	}
	return set
}

// findFacts collects, once all bindings are compiled, the facts that there are: the first of each
// name, with the functions that find it.
func (c *compiler[R]) findFacts() {
	byName := make(map[string]*Fact[R])
	for _, f := range append(slices.Clip(c.sources), c.Known...) {
		found := c.Found(f)
		if found.Find == nil {
			c.Bad("Fact", "the entry %q needs a function that finds it", f.Name)
		}
		switch first := byName[f.Name]; {
		case first == nil:
			byName[f.Name] = f
			c.facts = append(c.facts, found)
		case first != f && !slices.Contains(c.Known, f):
			c.Bad("Fact", "the entry %q is found in two ways; make its Key or Fact once", f.Name)
		}
	}
}

// inForce is a policy with what follows from it, which changes with it at once.
type inForce[R any] struct {
	rules *policy.Set // nil if there is none
	facts []Fact[R]   // that some rule needs
}

// inForce returns what follows from a set, or from none.
func (c *compiler[R]) inForce(set *policy.Set) *inForce[R] {
	needed := make(map[string]bool)
	if set != nil {
		for _, name := range set.Entries() {
			needed[name] = true
		}
	}
	unneeded := func(f Fact[R]) bool { return !c.needed[f.Name] && !needed[f.Name] && c.Describe == nil }
	return &inForce[R]{set, slices.DeleteFunc(slices.Clone(c.facts), unneeded)}
}

// follow puts the policy of the source in force, and each one that comes after it.
func (c *compiler[R]) follow(now *atomic.Pointer[inForce[R]]) {
	c.check(c.Source.Set(), &c.Problems)
	if len(c.Problems) > 0 {
		return
	}
	err := c.Source.Use(func(set *policy.Set) (func(), error) {
		var problems headgate.Problems
		for _, r := range set.Rules() {
			if c.bound[r.Name] {
				problems.Add("Policy", "the rule %q is one that the program has made as well; counters are kept under the name, so give each rule its own", r.Name)
			}
		}
		c.check(set, &problems)
		next := c.inForce(set)
		return func() {
			// Check has found nothing against it.
			_ = c.Keeper.Use(set)
			now.Store(next)
		}, problems.Err("policy")
	})
	if invalid, ok := errors.AsType[*headgate.InvalidError](err); ok {
		c.Problems = append(c.Problems, invalid.Problems...) // The set has changed meanwhile.
	}
}

// check reports why a policy cannot be kept to. Rules that look at an entry which nothing provides
// would never bind, or always, which is not what they say.
func (c *compiler[R]) check(set *policy.Set, problems *headgate.Problems) {
	if invalid, ok := errors.AsType[*headgate.InvalidError](c.Keeper.Check(set)); ok {
		problems.Add("Policy", "Policy: %s", invalid.Problems)
	}
	if c.Describe != nil {
		return
	}
	var unknown, provided []string
	for i := range c.facts {
		provided = append(provided, c.facts[i].Name)
	}
	tabled := set.Subjects().Names()
	for _, name := range set.Entries() {
		if !slices.Contains(provided, name) && !slices.Contains(tabled, name) {
			unknown = append(unknown, name)
		}
	}
	if len(unknown) == 0 {
		return
	}
	slices.Sort(provided)
	problems.Add("Policy", "the policy's rules need the entries %s, which nothing finds (there are %s); add a Fact for each",
		strings.Join(unknown, ", "), strings.Join(provided, ", "))
}
