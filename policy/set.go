package policy

import (
	"fmt"
	"slices"
	"sync"
	"time"

	"github.com/headgate/headgate"
)

// Set holds a policy: its rules, its allow and deny lists and its table of subjects, compiled. It
// is immutable and safe for concurrent use. Make one with [New].
type Set struct {
	options  options
	rules    []Rule
	compiled []compiled
	names    map[string]int32
	index    index
	hasher   *hasher
	old      *hasher // while the hash key is being changed
	now      func() time.Time
	// demands are the conditions of all rules, including those that the index answers, for Inspect.
	// They are compiled when they are first needed.
	demands  func() [][]demand
	subjects *compiledSubjects // nil if there is no table
	allow    *lists
	deny     *lists
	warns    bool // some rule has Soft
	awaits   bool // some rule has GiveBackOn or ChargeOn
	replaces bool // some rule or entry of a list has Replaces
	bounds   bool // some rule has InProgress
	// deniedBy has, by name, what replaces entries of the deny list.
	deniedBy map[string]*replacers
}

// compiled is what Decide needs of a rule.
type compiled struct {
	name       string
	limits     *headgate.Rule // nil if there is only inProgress
	inProgress *InProgress    // or nil
	factor     int64
	giveBack   bool
	onError    headgate.OnError

	consistency headgate.Consistency
	denyCache   headgate.DenyCache
	// conditions are the conditions that the index has not answered already.
	conditions []demand
	parts      []compiledPart
	secret     bool       // some part is
	replacedBy *replacers // nil if nothing replaces the rule
	// more is nil for a plain rule, which thus pays nothing for features that it does not use.
	more *extra
}

// extra has the features that many rules do not use.
type extra struct {
	tariff    *compiledTariff
	overrides *lists
	limits    []*headgate.Rule // of each override, or nil
	permits   []int64          // of each override, or zero
	costs     *Costs
	percent   int
}

type compiledPart struct {
	Part
	secret, address bool
	// plain says that the part is neither an address nor secret: its key is the value itself.
	plain bool
}

// New compiles rules to a set. If there are mistakes in the rules or the options, it returns an
// [*Error] that lists all of them. It does not keep the slices that it is given.
func New(rules []Rule, opts ...Option) (*Set, error) {
	o := options{clock: time.Now}
	for _, opt := range opts {
		opt(&o)
	}
	mistakes := o.check()
	if len(rules) > MaxRules {
		mistakes = append(mistakes, Mistake{Index: -1, Text: fmt.Sprintf("there are %d rules, must be at most %d", len(rules), MaxRules)})
		return nil, &Error{mistakes}
	}
	o.secrets = append(o.secrets, secrets...)
	o.allow, o.deny = cloneList(o.allow), cloneList(o.deny)
	if o.subjects != nil {
		mistakes = append(mistakes, o.subjects.check(o.secrets)...)
	}
	s := &Set{
		options:  o,
		rules:    make([]Rule, len(rules)),
		compiled: make([]compiled, len(rules)),
		names:    make(map[string]int32, len(rules)),
		hasher:   newHasher(o.hashKey),
		now:      o.clock,
	}
	for i := range rules {
		r := rules[i].clone()
		bad := func(field, format string, args ...any) {
			mistakes = append(mistakes, Mistake{i, r.Name, field, r.Pos, fmt.Sprintf(format, args...)})
		}
		r.check(bad)
		if first, taken := s.names[r.Name]; taken && r.Name != "" {
			if place := s.rules[first].Pos; place != (Position{}) {
				bad("name", "the name %q is taken by the rule at %v; give each rule its own", r.Name, place)
			} else {
				bad("name", "the name %q is taken by rule %d; give each rule its own", r.Name, first+1)
			}
		} else {
			s.names[r.Name] = int32(i)
		}
		s.rules[i] = r
	}
	mistakes = append(mistakes, s.checkReplaces()...)
	mistakes = append(mistakes, o.undeclared(s.rules)...)
	if mistakes != nil {
		return nil, &Error{mistakes}
	}
	known := s.hasher
	if o.oldHashes {
		s.old = newHasher(o.oldHashKey)
		known.next, known = s.old, s.old
	}
	if o.unkeyed {
		known.next = newHasher(nil)
	}
	s.options.hashKey, s.options.oldHashKey = nil, nil // The hashers have them.
	s.compile()
	return s, nil
}

// compile prepares what Decide needs. The rules are known to have no mistakes.
func (s *Set) compile() {
	demands := make([]*[]demand, len(s.rules))
	for i := range s.rules {
		r := &s.rules[i]
		s.compiled[i] = s.compileRule(r)
		s.warns = s.warns || r.Soft > 0
		s.awaits = s.awaits || len(r.GiveBackOn)+len(r.ChargeOn) > 0
		s.bounds = s.bounds || r.InProgress != nil
		if !r.Direct {
			demands[i] = &s.compiled[i].conditions
		}
	}
	s.demands = sync.OnceValue(func() [][]demand {
		all := make([][]demand, len(s.rules))
		for i := range all {
			all[i] = compileConditions(s.rules[i].Match, s.hasher)
		}
		return all
	})
	s.compileReplaces()
	s.index = newIndex(demands)
	s.allow, s.deny = compileList(s.options.allow, s.hasher), compileList(s.options.deny, s.hasher)
	if s.options.subjects != nil {
		s.subjects = s.options.subjects.compile(s.options.secrets, s.hasher)
	}
}

func (s *Set) compileRule(r *Rule) compiled {
	c := compiled{name: r.Name, limits: r.Limits, inProgress: r.InProgress, factor: r.Factor(), giveBack: r.Reservation.GiveBack, onError: r.OnError, consistency: r.Consistency, denyCache: r.DenyCache, conditions: compileConditions(r.Match, s.hasher)}
	for _, p := range r.Per {
		part := compiledPart{Part: p, secret: s.secret(p.Entry), address: p.Address()}
		part.plain = !part.secret && !part.address
		c.secret = c.secret || part.secret
		c.parts = append(c.parts, part)
	}
	if r.Tariff != nil || len(r.Overrides) > 0 || r.Costs != nil || r.Enforced() < 100 {
		c.more = &extra{
			tariff: r.Tariff.compile(),
			overrides: newLists(len(r.Overrides), func(i int) ([]Condition, time.Time) {
				return r.Overrides[i].Match, r.Overrides[i].Until
			}, s.hasher),
			costs:   r.Costs,
			percent: r.Enforced(),
		}
		for i := range r.Overrides {
			c.more.limits = append(c.more.limits, r.Overrides[i].Limits)
			c.more.permits = append(c.more.permits, r.Overrides[i].InProgress)
		}
	}
	return c
}

// Keyed reports whether secret values are hashed with a key.
func (s *Set) Keyed() bool { return s.hasher.keyed }

// Ended reports whether something with this Until has ended, by the set's clock. The zero time
// never ends.
func (s *Set) Ended(until time.Time) bool { return ended(until, s.now) }

// Secret reports whether the entry is secret, so that its values appear only as hashes.
func (s *Set) Secret(entry string) bool { return s.secret(entry) }

func (s *Set) secret(entry string) bool { return slices.Contains(s.options.secrets, entry) }

// Rules are the set's rules, in the order given. The slice and what it holds are
// shared and must not be changed.
func (s *Set) Rules() []Rule { return s.rules }

// Rule returns the rule of that name, or nil. It is shared and must not be
// changed.
func (s *Set) Rule(name string) *Rule {
	if i, ok := s.names[name]; ok {
		return &s.rules[i]
	}
	return nil
}

// Allowed is the allow list, in the order given. It is shared and must not be
// changed.
func (s *Set) Allowed() []ListEntry { return s.options.allow }

// Denied is the deny list, in the order given. It is shared and must not be
// changed.
func (s *Set) Denied() []ListEntry { return s.options.deny }

// Subjects is the table of clients, or nil if there is none. It is shared and
// must not be changed.
func (s *Set) Subjects() *Subjects { return s.options.subjects }

// Ignored are the warnings that are silenced in the whole set. They are shared
// and must not be changed.
func (s *Set) Ignored() []Ignore { return s.options.ignore }

// Hash returns the hash that replaces a value of a secret entry: in keys, in [Hashed] and, after
// [HashMark], in [Subject.Key]. It depends on the hash key. For the entry "ip" it is the hash of
// the address, in whatever spelling the address is given. A key that has the address's network
// contains the hash of the network instead.
func (s *Set) Hash(entry, value string) string {
	if entry == addressEntry {
		value = spelled(value)
	}
	return string(s.hasher.append(nil, entry, value))
}

// unknown returns the error for an unknown rule. It names only a few of the rules that there are,
// because anyone may ask.
func (s *Set) unknown(name string) error {
	const few = 5
	e := &UnknownRuleError{Name: name}
	for i := range s.rules[:min(few, len(s.rules))] {
		e.Known = append(e.Known, s.rules[i].Name)
	}
	e.More = len(s.rules) - len(e.Known)
	return e
}
