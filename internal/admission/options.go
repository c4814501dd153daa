package admission

import (
	"context"
	"slices"
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
