// Package bindings makes policies of what adapters bind by options: rules, and the
// facts that these count by. A request is of type R, and what an adapter needs to find
// a fact in it besides is of type O.
package bindings

import (
	"errors"
	"slices"
	"strings"

	"github.com/headgate/headgate"
	"github.com/headgate/headgate/policy"
)

// Fact is an entry of the descriptor and how to find it in a request. Facts are
// compared by pointer: two of one name from two places contradict each other.
type Fact[O, R any] struct {
	Name string
	// Find returns the value, or "" if the request has none. It is nil in a
	// mistaken fact only.
	Find func(with O, r R) string
	// Header is the name of the header, in canonical form, if the value is one.
	Header string
}

// Key is what a counter is kept for.
type Key[O, R any] struct {
	Facts []*Fact[O, R]
	Made  bool // by a function of the adapter, not the zero Key
}

// Combine is a key of the values of all keys.
func Combine[O, R any](keys ...Key[O, R]) Key[O, R] {
	k := Key[O, R]{Made: len(keys) > 0}
	for _, part := range keys {
		k.Facts = append(k.Facts, part.Facts...)
		k.Made = k.Made && part.Made
	}
	return k
}

// Lacks returns the name of an entry that the key needs and the request has not, or "".
func (k *Key[O, R]) Lacks(facts policy.Descriptor) string {
	for _, f := range k.Facts {
		if _, ok := facts.Get(f.Name); !ok {
			return f.Name
		}
	}
	return ""
}

// parts is the key in the words of a policy.
func (k *Key[O, R]) parts(address *Fact[O, R], ipv6Bits int) []policy.Part {
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
type Binding[O, R any] struct {
	Key   Key[O, R]
	Rules []*headgate.Rule
}

// Options are what an adapter was told.
type Options[O, R any] struct {
	// Set is the policy that the adapter was given besides; nil for none.
	Set *policy.Set
	// Facts are those that it was given, and Known those that every request has,
	// which the former go before.
	Facts, Known []*Fact[O, R]
	// Address is the fact whose value is the client's address, and IPv6Bits how
	// many bits of it count in the keys of bindings.
	Address  *Fact[O, R]
	IPv6Bits int
	// Described says that a function has the last word on descriptors, so that
	// nobody knows which entries there will be.
	Described bool
	// HashKey is that of bindings, if not nil; OldHashKey the one before it, if
	// OldHashes.
	HashKey, OldHashKey []byte
	OldHashes           bool
	// Bad is told of each mistake.
	Bad func(format string, args ...any)
}

// Compiler works out what options mean.
type Compiler[O, R any] struct {
	options Options[O, R]
	taken   map[string]bool // names of rules
	needed  map[string]bool // entries that some rule looks at
	told    map[string]bool // mistakes that are those of all bindings
	sources []*Fact[O, R]
}

// New returns a compiler that has made nothing yet.
func New[O, R any](o Options[O, R]) *Compiler[O, R] {
	c := &Compiler[O, R]{options: o, taken: make(map[string]bool), needed: make(map[string]bool), told: make(map[string]bool), sources: slices.Clone(o.Facts)}
	if o.Set != nil {
		for _, r := range o.Set.Rules() {
			c.taken[r.Name] = true
		}
		for _, name := range o.Set.Entries() {
			c.needed[name] = true
		}
	}
	return c
}

// Need has the fact found even if no rule looks at it.
func (c *Compiler[O, R]) Need(f *Fact[O, R]) { c.needed[f.Name] = true }

// Compile turns bindings, which the option of that name has made, into a policy of
// their own, so that keys are made in one place. The policy is nil if there is a
// mistake.
func (c *Compiler[O, R]) Compile(option string, bindings []Binding[O, R]) *policy.Set {
	o := &c.options
	var rules []policy.Rule
	for i := range bindings {
		b := &bindings[i]
		if !b.Key.Made {
			o.Bad("%s %d has an empty Key; make one with a By function, Everyone or Combine", option, i+1)
		}
		if len(b.Rules) == 0 {
			o.Bad("%s %d has no rule", option, i+1)
		}
		c.sources = append(c.sources, b.Key.Facts...)
		for _, f := range b.Key.Facts {
			c.needed[f.Name] = true
		}
		for _, r := range b.Rules {
			switch {
			case r == nil:
				o.Bad("%s %d has a nil rule; make rules with headgate.NewRule", option, i+1)
				continue
			case c.taken[r.Name()]:
				o.Bad("%s %d: the rule %q is there already; counters are kept under the name, so give each rule its own", option, i+1, r.Name())
				continue
			}
			c.taken[r.Name()] = true
			rules = append(rules, policy.Rule{Limits: r, Per: b.Key.parts(o.Address, o.IPv6Bits)})
		}
	}
	if len(rules) > headgate.MaxChecks {
		o.Bad("there are %d rules in %ss, must be at most %d", len(rules), option, headgate.MaxChecks)
	}
	var options []policy.Option
	if o.HashKey != nil {
		options = append(options, policy.WithHashKey(o.HashKey))
	}
	if o.OldHashes {
		options = append(options, policy.WithOldHashKey(o.OldHashKey))
	}
	set, err := policy.New(rules, options...)
	var mistaken *policy.Error
	switch {
	case errors.As(err, &mistaken):
		for _, mistake := range mistaken.Mistakes {
			if mistake.Rule != "" {
				o.Bad("rule %q: %s", mistake.Rule, mistake.Text)
			} else if !c.told[mistake.Text] { // Of the hash keys, which all bindings have.
				c.told[mistake.Text] = true
				o.Bad("%s", mistake.Text)
			}
		}
	case err != nil:
		o.Bad("%v", err)
	}
	return set
}

// Facts returns, once all bindings are compiled, the facts that some rule needs, the
// first of each name.
func (c *Compiler[O, R]) Facts() []*Fact[O, R] {
	o := &c.options
	var chosen []*Fact[O, R]
	byName := make(map[string]*Fact[O, R])
	for _, f := range append(slices.Clip(c.sources), o.Known...) {
		if f.Find == nil {
			o.Bad("the entry %q needs a function that finds it", f.Name)
		}
		switch first := byName[f.Name]; {
		case first == nil:
			byName[f.Name] = f
			if c.needed[f.Name] || o.Described {
				chosen = append(chosen, f)
			}
		case first != f && !slices.Contains(o.Known, f):
			o.Bad("the entry %q is found in two ways; make its Key or Fact once", f.Name)
		}
	}
	if !o.Described && o.Set != nil {
		c.unknown(byName)
	}
	return chosen
}

// unknown reports entries that the policy's rules need and nothing provides: such a
// rule would never bind, or always, which is not what it says.
func (c *Compiler[O, R]) unknown(byName map[string]*Fact[O, R]) {
	var unknown, provided []string
	tabled := c.options.Set.Subjects().Names()
	for name := range c.needed {
		if byName[name] == nil && !slices.Contains(tabled, name) {
			unknown = append(unknown, name)
		}
	}
	if len(unknown) == 0 {
		return
	}
	for name := range byName {
		provided = append(provided, name)
	}
	slices.Sort(unknown)
	slices.Sort(provided)
	c.options.Bad("the policy's rules need the entries %s, which nothing finds (there are %s); add a Fact for each",
		strings.Join(unknown, ", "), strings.Join(provided, ", "))
}
