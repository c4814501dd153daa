package headgate

// Check is a rule that binds one request: which counter, and how many units.
type Check struct {
	// Rule holds the limits. Required.
	Rule *Rule
	// Key is the value that the counter is kept for: up to MaxKey bytes, of any
	// kind. The empty key is a key like any other.
	Key string
	// Cost is the number of units, 1 to MaxCount. Zero means one; a request that
	// costs nothing needs no check.
	Cost int64
	// At is, for OpRefund, the At of the decision that charged the units. They are
	// given back where they were charged, so a fixed window that has ended since
	// then gets nothing back. Zero means "just now".
	At Instant
	// Shadow makes the check count and never deny: its limits have no say in the
	// verdict. It is charged if they and the enforced checks of the request admit
	// it, so that its counters are what enforcement would have made of them.
	Shadow bool
	// GiveBack has the units given back when a reservation expires that nobody has
	// settled; see [Ledger]. Without it they stay charged as estimated.
	GiveBack bool
	// Factor is what one unit of the request's own cost costs under the rule, for
	// [Reservation.Units]. Zero means one.
	Factor int64

	// Hints are for the layers around a store. A store itself ignores them.
	Hints
}

// Hints say how the layers around a store may treat a check. The zero Hints ask for
// nothing: the store decides each request, and its errors are returned. Layers are in
// the packages below store/layered.
type Hints struct {
	// OnError is what to do with the check while the store does not answer.
	OnError OnError
	// Consistency is how the check is counted.
	Consistency Consistency
	// DenyCache is whether denials of the check are remembered in this process.
	DenyCache DenyCache
	// Scope is where the check's limits hold.
	Scope Scope
}

// Units is the cost with its default applied.
func (c *Check) Units() int64 {
	if c.Cost == 0 {
		return 1
	}
	return c.Cost
}

// OnError is what is done with a check while the store does not answer: by the
// layers that deal with it, for a store itself only returns the error. The zero
// OnError leaves it to the caller.
type OnError uint8

const (
	// OnErrorReturn returns the store's error to the caller.
	OnErrorReturn OnError = iota
	// OnErrorAllow lets the request in: fail open.
	OnErrorAllow
	// OnErrorDeny turns it away, with the store's error: fail closed.
	OnErrorDeny
	// OnErrorLocal counts in this process, by this node's share of the limit.
	OnErrorLocal

	onErrors // the number of them
)

var onErrorNames = [onErrors]string{"", "allow", "deny", "local"}

// String returns "allow", "deny" or "local", as it is written in rules, or "" for
// OnErrorReturn.
func (o OnError) String() string { return nameOf(onErrorNames[:], "on_error", uint8(o)) }

// Consistency is how closely a check's decisions follow the store: what is given up
// for fewer calls to it.
type Consistency uint8

const (
	// Strict has every decision made by the store.
	Strict Consistency = iota
	// Leased has keys that are asked for often decided from units that this process
	// has taken in advance. Never too many are admitted; some may be denied early.
	Leased
	// Async has requests decided from what this process knows, and tells the store
	// afterwards. Too many may be admitted, and count against what comes next.
	Async

	consistencies // the number of them
)

var consistencyNames = [consistencies]string{"strict", "leased", "async"}

// String returns "strict", "leased" or "async", as it is written in rules.
func (c Consistency) String() string { return nameOf(consistencyNames[:], "consistency", uint8(c)) }

// Counts says whether a limit of the algorithm can be counted so: one that delays
// requests or counts denials needs the store's answer to each.
func (c Consistency) Counts(a Algorithm) bool {
	return c == Strict || c < consistencies && a != LeakyBucket && a != Penalty
}

// DenyCache is whether a denial is remembered in this process, so that the store is
// not asked again before the time that it named.
type DenyCache uint8

const (
	// DenyCacheDefault leaves it to the layer that remembers.
	DenyCacheDefault DenyCache = iota
	// DenyCacheOn has denials remembered.
	DenyCacheOn
	// DenyCacheOff has the store asked every time.
	DenyCacheOff

	denyCaches // the number of them
)

var denyCacheNames = [denyCaches]string{"", "on", "off"}

// String returns "on" or "off", or "" for DenyCacheDefault.
func (d DenyCache) String() string { return nameOf(denyCacheNames[:], "deny_cache", uint8(d)) }

// Scope is where limits hold that several regions enforce, each with a store of its own.
type Scope uint8

const (
	// Regional limits hold in each region on its own.
	Regional Scope = iota
	// Global limits hold for all regions together: each has a share.
	Global

	scopes // the number of them
)

var scopeNames = [scopes]string{"regional", "global"}

// String returns "regional" or "global", as it is written in rules.
func (s Scope) String() string { return nameOf(scopeNames[:], "scope", uint8(s)) }

// Undivided says why a limit cannot be divided into shares that are counted apart; "" if it can.
func (l *Limit) Undivided() string {
	switch {
	case l.Algorithm == LeakyBucket:
		return "a leaky_bucket has one queue, and several queues would let several requests leave at once"
	case l.Algorithm == Penalty:
		return "a penalty counts denials, which are not known to other regions"
	case l.Algorithm == FixedWindow && l.Align == AlignFirst:
		return "its windows begin with the first request, which is another one in each region"
	}
	return ""
}
