package admission

import (
	"context"
	"errors"
	"slices"
	"strings"
	"sync/atomic"
	"time"

	"github.com/headgate/headgate"
	"github.com/headgate/headgate/flow"
	"github.com/headgate/headgate/policy"
	"github.com/headgate/headgate/policy/inprogress"
)

// The defaults of options, which are the same for all adapters.
const (
	// DefaultMaxDelay is how long a request is held for a leaky bucket.
	DefaultMaxDelay = 30 * time.Second
	// DefaultIPv6Prefix is how many bits of an IPv6 address count.
	DefaultIPv6Prefix = 64
	// UnavailableFor is when a request may be repeated that was turned away because
	// the store did not answer: late enough not to add to the store's trouble.
	UnavailableFor = 5 * time.Second
)

// Missing says what happens to a request that lacks an entry which a binding counts by.
type Missing uint8

const (
	// DenyMissing turns the request away.
	DenyMissing Missing = iota
	// CountMissingByIP counts the request by its address, apart from all other keys.
	CountMissingByIP
	// PassMissing lets the request past the binding.
	PassMissing

	missings // the number of choices
)

// Failure says what happens to a request when the store cannot decide.
type Failure uint8

const (
	// FailOpen lets the request in, unless one of its rules says deny.
	FailOpen Failure = iota
	// FailClosed turns the request away.
	FailClosed

	failures // the number of choices
)

// admits reports whether a request with these checks is let in without a decision. A
// rule that says deny for itself ([headgate.OnErrorDeny]) has its way, but for shadows.
func (f Failure) admits(checks []headgate.Check) bool {
	if f != FailOpen {
		return false
	}
	for i := range checks {
		if checks[i].OnError == headgate.OnErrorDeny && !checks[i].Shadow {
			return false
		}
	}
	return true
}

// Options are what an adapter was told by its user, and what it brings along itself. They
// must not be changed after [New].
type Options[R any] struct {
	Store headgate.Store
	// Source has rules that bind by the facts; nil for none.
	Source *policy.Source
	// Keeper has the permits of the policy's bounds on what is in progress; nil for one
	// that nobody else uses.
	Keeper *inprogress.Keeper
	// Facts are those that the user has added. They take the place of Known.
	Facts []*Fact[R]
	// Describe has the last word on the facts, if it is not nil. Nobody knows then
	// which entries there will be.
	Describe func(r R, facts policy.Descriptor) policy.Descriptor
	// HashKey is that of the bindings, if it is not nil. OldHashKey is the one before
	// it, if Rotates; an empty one says that there was none.
	HashKey, OldHashKey []byte
	Rotates             bool
	// IPv6Bits is how many bits of an IPv6 address count in the keys of bindings.
	IPv6Bits int
	Missing  Missing
	Failure  Failure
	// MaxDelay is how long at most a leaky bucket may hold a request.
	MaxDelay time.Duration
	// OneWait has the time for that come out of the time which [Gate.Try] is given.
	OneWait bool
	Hooks   Hooks[R]

	// Known are the facts that each request has, and Address is the one with the client's
	// address.
	Known   []*Fact[R]
	Address *Fact[R]
	// Finders have the functions of those known facts that depend on options.
	Finders map[*Fact[R]]Fact[R]
	// Unclear is that of [Fact] for what matters whatever rules need; nil for nothing.
	Unclear func(R) string
	// Sleep is [Sleep], or a test's.
	Sleep func(context.Context, time.Duration) error

	// Problems is what is wrong with the options.
	Problems headgate.Problems
}

// Hooks are told what gates do. Any of them may be nil. They must not keep the verdict's
// decisions, which are used again.
type Hooks[R any] struct {
	// Denied is called for each denied request.
	Denied func(R, headgate.Verdict)
	// Shed is called for each request that the gate for the work in progress refused.
	Shed func(R, *flow.Rejection)
	// Busy is called for each request that gets no permit.
	Busy func(R, *inprogress.Refusal)
	// Soft is called for each limit that an admitted request has brought to the
	// percentage from which its rule in the policy warns.
	Soft func(R, headgate.Decision)
	// Missing is called for each request that lacks an entry which a binding counts by.
	Missing func(R, string)
	// Failed is called for each error.
	Failed func(R, error)
	// Waited is called for each request that was held, with how long.
	Waited func(R, time.Duration)
}

// Bad adds a mistake in an option. The arguments after its name are those of fmt.Sprintf.
func (o *Options[R]) Bad(option, format string, args ...any) {
	o.Problems.Add(option, format, args...)
}

// Needs adds a mistake if the option was not given the function that it needs.
func (o *Options[R]) Needs(option string, given bool) {
	if !given {
		o.Bad(option, "%s needs a function", option)
	}
}

// AddPolicy sets a policy that does not change.
func (o *Options[R]) AddPolicy(set *policy.Set) {
	if set == nil {
		o.Bad("Policy", "Policy: the set is nil")
		return
	}
	o.AddSource("Policy", policy.NewSource(set))
}

// AddSource sets where the policy comes from, which can be done once. The option is the one that
// says it.
func (o *Options[R]) AddSource(option string, source *policy.Source) {
	switch {
	case source == nil:
		o.Bad(option, "%s: the source is nil; make one with policy.NewSource", option)
	case o.Source != nil:
		o.Bad(option, "%s: a policy is given already; put all rules into one set", option)
	}
	o.Source = source
}

// SetHashKey sets the hash key of the bindings.
func (o *Options[R]) SetHashKey(key []byte) {
	if len(key) == 0 {
		o.Bad("HashKey", "HashKey is empty; leave the option out to hash without a key")
		return
	}
	o.HashKey = slices.Clone(key)
}

// Found returns the fact with its functions. Find is nil if it cannot be found.
func (o *Options[R]) Found(f *Fact[R]) Fact[R] {
	found := *f
	if f.Find == nil {
		found = o.Finders[f]
		found.Name = f.Name
	}
	return found
}

// check reports values that are out of bounds. The names are those of the adapters'
// options.
func (o *Options[R]) check() {
	if o.IPv6Bits < 1 || o.IPv6Bits > 128 {
		o.Bad("IPv6Prefix", "IPv6Prefix is %d, must be 1 to 128", o.IPv6Bits)
	}
	if o.Missing >= missings {
		o.Bad("OnMissing", "OnMissing: choice %d is unknown", o.Missing)
	}
	if o.Failure >= failures {
		o.Bad("OnStoreError", "OnStoreError: choice %d is unknown", o.Failure)
	}
	if o.MaxDelay < 0 {
		o.Bad("MaxDelay", "MaxDelay is %v, must not be negative", o.MaxDelay)
	}
}

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
	taken    map[string]bool // names of rules
	bound    map[string]bool // names of the bindings' rules
	needed   map[string]bool // entries that the bindings need
	reported map[string]bool // mistakes that concern all bindings, and are reported once
	sources  []*Fact[R]
	facts    []Fact[R] // all that can be found, the first of each name
}

func newCompiler[R any](o *Options[R]) *compiler[R] {
	c := &compiler[R]{Options: o, taken: make(map[string]bool), bound: make(map[string]bool), needed: make(map[string]bool), reported: make(map[string]bool), sources: slices.Clone(o.Facts)}
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
			} else if !c.reported[mistake.Text] { // Of the hash keys, which all bindings have.
				c.reported[mistake.Text] = true
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
