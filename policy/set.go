package policy

import (
	"bytes"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/headgate/headgate"
	"github.com/headgate/headgate/internal/spelling"
	"github.com/headgate/headgate/policy/models"
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
	counts   bool // some rule counts what models use
	byModel  bool // a list or the table of subjects goes by the model, so that nothing is known ahead of it
	models   *models.Table
	// deniedBy has, by name, what replaces entries of the deny list.
	deniedBy map[string]*replacers
}

// compiled is a rule, and what Decide needs besides.
type compiled struct {
	*Rule
	// conditions are the conditions that the index has not answered already.
	conditions []demand
	parts      []compiledPart
	secret     bool       // some part is
	replacedBy *replacers // nil if nothing replaces the rule
	ahead      bool       // it binds a call whatever its model and usage
	// more is nil for a plain rule, which thus pays nothing for features that it does not use.
	more *extra
}

// extra has the features that many rules do not use.
type extra struct {
	tiers     map[string]*headgate.Rule // of the tariff
	overrides *lists
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
	o := options{clock: time.Now, moneyUnit: 1}
	for _, opt := range opts {
		opt(&o)
	}
	o.check()
	if len(rules) > MaxRules {
		o.bad("", Position{}, "there are %d rules, must be at most %d", len(rules), MaxRules)
		return nil, &Error{o.mistakes}
	}
	table := o.tableOf()
	o.secrets = append(o.secrets, secrets...)
	o.allow, o.deny = cloneList(o.allow), cloneList(o.deny)
	if o.subjects != nil {
		o.subjects.check(o.secrets, o.bad)
	}
	s := &Set{
		options:  o,
		rules:    make([]Rule, len(rules)),
		compiled: make([]compiled, len(rules)),
		names:    make(map[string]int32, len(rules)),
		hasher:   newHasher(o.hashKey),
		now:      o.clock,
		models:   table,
	}
	for i := range rules {
		r := rules[i].clone()
		bad := s.badRule(i, &r)
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
	s.checkReplaces()
	s.checkDeclared()
	if s.options.mistakes != nil {
		return nil, &Error{s.options.mistakes}
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
		s.counts = s.counts || r.Counts != models.Requests
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
	s.compileAhead()
	s.index = newIndex(demands)
	s.allow, s.deny = compileList(s.options.allow, s.hasher), compileList(s.options.deny, s.hasher)
	if s.options.subjects != nil {
		s.subjects = s.options.subjects.compile(s.options.secrets, s.hasher)
	}
}

func (s *Set) compileRule(r *Rule) compiled {
	c := compiled{Rule: r, conditions: compileConditions(r.Match, s.hasher)}
	for _, p := range r.Per {
		part := compiledPart{Part: p, secret: s.Secret(p.Entry), address: p.Address()}
		part.plain = !part.secret && !part.address
		c.secret = c.secret || part.secret
		c.parts = append(c.parts, part)
	}
	if r.Tariff != nil || len(r.Overrides) > 0 || r.Costs != nil || r.Enforced() < 100 {
		c.more = &extra{
			tiers: make(map[string]*headgate.Rule),
			overrides: newLists(len(r.Overrides), func(i int) ([]Condition, time.Time) {
				return r.Overrides[i].Match, r.Overrides[i].Until
			}, s.hasher),
			percent: r.Enforced(),
		}
		if r.Tariff != nil {
			for i := range r.Tariff.Tiers {
				c.more.tiers[r.Tariff.Tiers[i].Value] = r.Tariff.Tiers[i].Limits
			}
		}
	}
	return c
}

// Keyed reports whether secret values are hashed with a key.
func (s *Set) Keyed() bool { return s.hasher.keyed }

// Ended reports whether something with this Until has ended, by the set's clock. The zero time
// never ends.
func (s *Set) Ended(until time.Time) bool { return !until.IsZero() && !s.now().Before(until) }

// Secret reports whether the entry is secret, so that its values appear only as hashes.
func (s *Set) Secret(entry string) bool { return slices.Contains(s.options.secrets, entry) }

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
	if entry == AddressEntry {
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

type options struct {
	hashKey     []byte
	oldHashKey  []byte
	oldHashes   bool // there is an old hash key, even if it is empty
	unkeyed     bool
	secrets     []string
	clock       func() time.Time
	subjects    *Subjects
	allow, deny []ListEntry
	ignore      []Ignore
	declared    []string
	behind      []string
	models      []models.Model
	moneyUnit   int64
	// mistakes are those that were found in rules and options.
	mistakes []Mistake
}

// bad adds a mistake in the options.
func (o *options) bad(field string, pos Position, format string, args ...any) {
	o.mistakes = append(o.mistakes, Mistake{Index: -1, Field: field, Pos: pos, Text: fmt.Sprintf(format, args...)})
}

// badRule returns a function that adds a mistake in a rule.
func (s *Set) badRule(i int, r *Rule) func(field, format string, args ...any) {
	return func(field, format string, args ...any) {
		s.options.mistakes = append(s.options.mistakes, Mistake{i, r.Name, field, r.Pos, fmt.Sprintf(format, args...)})
	}
}

// eachListed calls f for each entry of the deny list and the allow list, with its place.
func (o *options) eachListed(f func(field string, e *ListEntry)) {
	for i := range o.deny {
		f(fmt.Sprintf("deny.%d", i), &o.deny[i])
	}
	for i := range o.allow {
		f(fmt.Sprintf("allow.%d", i), &o.allow[i])
	}
}

// Option changes how [New] makes a set.
type Option func(*options)

// HashKey sets the key with which secret values are hashed (HMAC-SHA256), of MinHashKey to
// MaxHashKey bytes. All nodes that share counters must have the same key. With another key, every
// counter of a secret starts afresh.
func HashKey(key []byte) Option {
	return func(o *options) { o.hashKey = slices.Clone(key) }
}

// OldHashKey sets the key with which secret values were hashed before the one of [HashKey]. An
// empty key says that they were hashed without a key. Set it while the key is being changed on one
// node after the other:
//
//   - Hashes in conditions and in the table of subjects may be made with either key.
//   - A rule that counts by a secret binds a request twice, under the new key and under the old
//     one. So a client has one allowance, however many nodes have changed.
//
// Remove it when every node has the new key and the longest period of the limits has passed.
func OldHashKey(key []byte) Option {
	return func(o *options) { o.oldHashKey, o.oldHashes = slices.Clone(key), true }
}

// UnkeyedHashes also accepts, in conditions and in the table of subjects, hashes that were made
// without a hash key. It is for a process that has made up a hash key, with which nobody can have
// written them. The keys of counters do not change.
func UnkeyedHashes() Option {
	return func(o *options) { o.unkeyed = true }
}

// Secrets names further entries whose values are secret, in addition to api_key, token and
// authorization.
func Secrets(entries ...string) Option {
	return func(o *options) { o.secrets = append(o.secrets, entries...) }
}

// Clock sets the clock that tells whether overrides and entries of lists have ended. If left out or
// nil, it is time.Now. It is read only for a request that matches one with an end, and must be safe
// for concurrent use.
func Clock(now func() time.Time) Option {
	return func(o *options) {
		if o.clock = now; now == nil {
			o.clock = time.Now
		}
	}
}

// SubjectTable sets the table of clients.
func SubjectTable(table Subjects) Option {
	return func(o *options) { o.subjects = table.clone() }
}

// Allowed adds entries to the allow list: requests that no rule binds.
func Allowed(entries ...ListEntry) Option {
	return func(o *options) { o.allow = append(o.allow, entries...) }
}

// Denied adds entries to the deny list: requests that are denied without asking the store. The deny
// list is searched before the allow list.
func Denied(entries ...ListEntry) Option {
	return func(o *options) { o.deny = append(o.deny, entries...) }
}

// Ignored silences warnings of package lint in the whole set.
func Ignored(ignore ...Ignore) Option {
	return func(o *options) { o.ignore = append(o.ignore, ignore...) }
}

// Behind names the servers that read the paths of requests behind a door, such as "express", or
// "any"; docs/gateway.md lists them. The doors that read paths count those that these servers take
// for one as one, and refuse those that they may read in different ways.
func Behind(servers ...string) Option {
	return func(o *options) { o.behind = append(o.behind, servers...) }
}

// Behind returns the servers of [Behind], in the order given.
func (s *Set) Behind() []string { return slices.Clone(s.options.behind) }

func (o *options) check() {
	// one adds the problem of the i-th element of a list of texts, if it has one.
	one := func(list string, i int, problem string) {
		if problem != "" {
			o.bad(fmt.Sprintf("%s.%d", list, i), Position{}, "%s", problem)
		}
	}
	for i, name := range o.behind {
		_, problem := spelling.Behind(name)
		one("behind", i, problem)
	}
	if n := len(o.hashKey); o.hashKey != nil && (n < MinHashKey || n > MaxHashKey) {
		o.bad("", Position{}, "the hash key has %d bytes, must have %d to %d", n, MinHashKey, MaxHashKey)
	}
	if n := len(o.oldHashKey); n != 0 && (n < MinHashKey || n > MaxHashKey) {
		o.bad("", Position{}, "the old hash key has %d bytes, must have %d to %d, or none", n, MinHashKey, MaxHashKey)
	}
	if o.oldHashes && bytes.Equal(o.oldHashKey, o.hashKey) {
		o.bad("", Position{}, "the old hash key is the hash key; leave it out, or set the new one")
	}
	for _, entry := range o.secrets {
		if p := checkEntryName(entry); p != "" {
			o.bad("", Position{}, "secret %s", p)
		}
	}
	if len(o.declared) > MaxDeclared {
		o.bad("entries", Position{}, "there are %d entries, must be at most %d", len(o.declared), MaxDeclared)
	}
	for i, entry := range o.declared {
		one("entries", i, checkEntryName(entry))
	}
	for i := range o.ignore {
		one("ignore", i, o.ignore[i].check())
	}
	o.checkLists()
}

// ErrUnknownRule is what errors.Is finds in an [*UnknownRuleError].
var ErrUnknownRule = errors.New("headgate: unknown rule")

// UnknownRuleError says that a set has no rule of that name.
type UnknownRuleError struct {
	// Name is the name that was asked for.
	Name string
	// Known are the names of the first few rules of the set.
	Known []string
	// More is how many other rules the set has.
	More int
}

// Error names the unknown rule, and the Known ones.
func (e *UnknownRuleError) Error() string {
	text := fmt.Sprintf("headgate: there is no rule %s; ", Quote(e.Name))
	switch {
	case len(e.Known) == 0:
		return text + "the policy has no rules"
	case e.More > 0:
		return fmt.Sprintf("%sthere are %s and %d more", text, strings.Join(e.Known, ", "), e.More)
	}
	return text + "there are " + strings.Join(e.Known, ", ")
}

// Is makes errors.Is(err, ErrUnknownRule) true.
func (e *UnknownRuleError) Is(target error) bool { return target == ErrUnknownRule }

// Position is a place in a file. A rule that was written in Go has the zero Position.
type Position struct {
	File string `json:"file"`
	// Line and Column count from 1; a column is a character.
	Line   int `json:"line"`
	Column int `json:"column"`
}

// String writes the position as file:line:column.
func (p Position) String() string {
	if p.Line == 0 {
		return p.File
	}
	return fmt.Sprintf("%s:%d:%d", p.File, p.Line, p.Column)
}

// Mistake is one mistake in the rules or the options given to [New].
type Mistake struct {
	// Index is the rule's place in the list, from 0. It is -1 if the mistake is not in a rule.
	Index int
	// Rule is the rule's name, if it has one.
	Rule string
	// Field is where in the rule the mistake lies: "name", "match", "per",
	// "limits", "tariff", "overrides", "cost", "soft", "mode", "enforce" or
	// "ignore"; where it lies in the options, "deny", "allow", "subjects", "entries"
	// or "ignore". Numbers count from 0: "match.0" is the first condition,
	// "overrides.1.match.0" that of the second override.
	Field string
	// Pos is the position of the rule, or of the entry of a list or table.
	Pos Position
	// Text says what is wrong, with the numbers, and what to do about it.
	Text string
}

// String writes the mistake with its position or, without one, its place in the
// list.
func (m Mistake) String() string {
	var b strings.Builder
	if m.Pos != (Position{}) {
		b.WriteString(m.Pos.String())
		b.WriteString(": ")
	}
	switch {
	case m.Rule != "":
		fmt.Fprintf(&b, "rule %q: ", m.Rule)
	case m.Index >= 0:
		fmt.Fprintf(&b, "rule %d: ", m.Index+1)
	}
	b.WriteString(m.Text)
	return b.String()
}

// Error lists every mistake in the rules given to [New].
type Error struct{ Mistakes []Mistake }

// Error writes one mistake per line.
func (e *Error) Error() string {
	var b strings.Builder
	b.WriteString("headgate: policy: ")
	for i, m := range e.Mistakes {
		if i > 0 {
			b.WriteString("\n")
		}
		b.WriteString(m.String())
	}
	return b.String()
}

// Is makes errors.Is(err, headgate.ErrInvalid) true.
func (e *Error) Is(target error) bool { return target == headgate.ErrInvalid }
