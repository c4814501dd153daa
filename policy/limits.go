package policy

import (
	"fmt"
	"maps"
	"net/netip"
	"slices"
	"sync"
	"time"

	"github.com/headgate/headgate"
)

// MaxTiers is how many tiers one [Tariff] may have.
const MaxTiers = 1000

// Tariff has limits by the value of one entry. All of them are made for the rule's name, so that a
// client who changes tiers keeps what it has used.
type Tariff struct {
	// Entry is the entry's name, such as "tier". Required.
	Entry string
	// Tiers are the values that have limits of their own: 1 to MaxTiers, or none
	// if there is Other.
	Tiers []Tier
	// Other are the limits for every other value and for requests without the entry. If it is nil,
	// the rule does not bind such requests.
	Other *headgate.Rule
}

// Tier is one value of a tariff's entry, and its limits.
type Tier struct {
	Value  string
	Limits *headgate.Rule
}

func (t *Tariff) clone() *Tariff {
	if t == nil {
		return nil
	}
	c := *t
	c.Tiers = append([]Tier(nil), t.Tiers...)
	return &c
}

// first returns some limits of the tariff: Other, if there is one.
func (t *Tariff) first() *headgate.Rule {
	if t.Other != nil || len(t.Tiers) == 0 {
		return t.Other
	}
	return t.Tiers[0].Limits
}

// Tier returns the tier by which the named rule binds a request, whether or not an override
// applies. It is "*" if the limits for all other values apply, and "" if the rule has no tariff or
// is not in the set. For a secret entry it is a hash.
func (s *Set) Tier(rule string, d Descriptor) string {
	i, ok := s.names[rule]
	if !ok || s.rules[i].Tariff == nil {
		return ""
	}
	return s.tier(&s.compiled[i], s.known(d))
}

// tier is Tier for a rule with a tariff, and a descriptor that has the table's entries.
func (s *Set) tier(r *compiled, d Descriptor) string {
	value, _ := d.Get(r.Tariff.Entry)
	switch {
	case r.more.tiers[value] == nil:
		return "*"
	case s.Secret(r.Tariff.Entry):
		return s.Hash(r.Tariff.Entry, value)
	}
	return value
}

func (t *Tariff) check(name string, bad func(field, format string, args ...any)) {
	if p := checkEntryName(t.Entry); p != "" {
		bad("tariff", "%s", p)
	}
	if n := len(t.Tiers); n > MaxTiers || n == 0 && t.Other == nil {
		bad("tariff", "the tariff has %d tiers, must have 1 to %d", n, MaxTiers)
	}
	if t.Other != nil && t.Other.Name() != name {
		bad("tariff", "the name is %q but the other limits were made for %q; counters can be kept under one name only", name, t.Other.Name())
	}
	seen := make(map[string]bool, len(t.Tiers))
	for i := range t.Tiers {
		tier, field := &t.Tiers[i], fmt.Sprintf("tariff.%d", i)
		switch {
		case tier.Value == "" || len(tier.Value) > MaxValue:
			bad(field, "the tier %s has %d bytes, must have 1 to %d", Quote(tier.Value), len(tier.Value), MaxValue)
		case seen[tier.Value]:
			bad(field, "the tier %s is set twice; keep one", Quote(tier.Value))
		}
		seen[tier.Value] = true
		switch {
		case tier.Limits == nil:
			bad(field, "the tier %s has no limits; make them with headgate.NewRule", Quote(tier.Value))
		case tier.Limits.Name() != name:
			bad(field, "the name is %q but the limits of the tier %s were made for %q; counters can be kept under one name only", name, Quote(tier.Value), tier.Limits.Name())
		}
	}
}

// MaxOverrides is how many overrides one rule may have.
const MaxOverrides = 10_000

// Override gives other limits to some of a rule's requests, whatever the rule and its tariff say.
// If several overrides match, the first counts.
type Override struct {
	// Match has the conditions that must all hold: at least one.
	Match []Condition
	// Limits are made for the rule's name, so that what was used stays used when the override
	// begins and ends. If nil, the rule's limits apply. Required, unless there is InProgress.
	Limits *headgate.Rule
	// InProgress is how much may be in progress under each key, 1 to headgate.MaxPermits. If zero,
	// the rule's bound applies.
	InProgress int64
	// Until is when the override ends. The zero time is never.
	Until time.Time
	// Pos is where the override was written, for messages.
	Pos Position
}

func cloneOverrides(overrides []Override) []Override {
	all := append([]Override(nil), overrides...)
	for i := range all {
		all[i].Match = cloneConditions(all[i].Match)
	}
	return all
}

func (o *Override) check(field string, r *Rule, bad func(field, format string, args ...any)) {
	if len(o.Match) == 0 {
		bad(field, "the override has no conditions and would replace the rule's limits for all; write them as the rule's")
	}
	checkConditions(field+".match", o.Match, bad)
	switch {
	case o.Limits == nil && o.InProgress == 0:
		bad(field, "the override has no limits; make them with headgate.NewRule")
	case o.Limits != nil && o.Limits.Name() != r.Name:
		bad(field, "the name is %q but the limits of the override were made for %q; counters can be kept under one name only", r.Name, o.Limits.Name())
	}
	switch {
	case o.InProgress == 0:
	case r.InProgress == nil:
		bad(field+".in_progress", "the override lets %d be in progress, but the rule does not bound that; give the rule in_progress", o.InProgress)
	default:
		r.InProgress.checkPermits(field+".in_progress", "the limit", o.InProgress, bad)
	}
}

// checkConditions checks a list of conditions, and each of them under its place.
func checkConditions(field string, conditions []Condition, bad func(field, format string, args ...any)) {
	if len(conditions) > MaxConditions {
		bad(field, "there are %d conditions, must be at most %d", len(conditions), MaxConditions)
	}
	for i := range conditions {
		if p := conditions[i].check(); p != "" {
			bad(fmt.Sprintf("%s.%d", field, i), "%s", p)
		}
	}
}

// dated is a list of demands that may end.
type dated struct {
	demands []demand
	until   time.Time
}

// lists is many dated lists of demands, indexed.
type lists struct {
	lists []dated
	index index
}

// newLists compiles n lists of conditions. It returns nil if there are none.
func newLists(n int, at func(i int) ([]Condition, time.Time), h *hasher) *lists {
	if n == 0 {
		return nil
	}
	l := &lists{lists: make([]dated, n)}
	demands := make([]*[]demand, n)
	for i := range l.lists {
		conditions, until := at(i)
		l.lists[i] = dated{compileConditions(conditions, h), until}
		demands[i] = &l.lists[i].demands
	}
	l.index = newIndex(demands)
	return l
}

// find returns the first list whose conditions hold and that has not ended. The clock is read only
// for a list that has an end and whose conditions hold.
func (l *lists) find(d Descriptor, now func() time.Time) (int, bool) {
	if l == nil {
		return 0, false
	}
	var space [room]int32
	for _, i := range l.index.find(d, space[:0]) {
		if one := &l.lists[i]; holdAll(one.demands, d) && (one.until.IsZero() || now().Before(one.until)) {
			return int(i), true
		}
	}
	return 0, false
}

// MaxSubjects is how many subjects a table may have.
const MaxSubjects = 1_000_000

// Subjects is a table of clients and of what is known about them, such as their tier or their
// tenant. The table's entries replace those of the request, so that no request chooses its own
// tier.
type Subjects struct {
	// By is the entry by which clients are looked up; "api_key" if left out.
	By string
	// Table has the clients. Each may appear once.
	Table []Subject
	// Other are the entries for requests of clients that are not in the table, and for requests
	// without the entry By. If Other is empty, such requests keep the entries that they have.
	Other []Entry
	// OtherPos is where Other was written, for messages.
	OtherPos Position
	// File is the file from which the table was read, as the policy names it. It is empty if the
	// table is in the policy itself.
	File string
}

// Subject is one client.
type Subject struct {
	// Key is the client's value of the entry By. For a secret that should not be readable here, it
	// is "hash:" followed by what [Set.Hash] returns.
	Key string
	// Entries are what is known of the client.
	Entries []Entry
	// Pos is where the subject was written, for messages.
	Pos Position
}

// HashMark precedes the hash of a secret in [Subject.Key].
const HashMark = "hash:"

// defaultBy is the entry by which clients are looked up if Subjects.By is left out.
const defaultBy = "api_key"

// Names are the names of all entries that the table may add to a request, sorted. A nil table adds
// none.
func (t *Subjects) Names() []string {
	if t == nil {
		return nil
	}
	names := make(map[string]bool)
	for _, e := range t.Other {
		names[e.Name] = true
	}
	for i := range t.Table {
		for _, e := range t.Table[i].Entries {
			names[e.Name] = true
		}
	}
	return slices.Sorted(maps.Keys(names))
}

func (t *Subjects) clone() *Subjects {
	c := *t
	c.Table, c.Other = slices.Clone(t.Table), slices.Clone(t.Other)
	if c.By == "" {
		c.By = defaultBy
	}
	for i := range c.Table {
		c.Table[i].Entries = slices.Clone(c.Table[i].Entries)
	}
	return &c
}

// check reports what is wrong with the table. Secret names the secret entries.
func (t *Subjects) check(secret []string, bad func(field string, pos Position, format string, args ...any)) {
	if p := checkEntryName(t.By); p != "" {
		bad("subjects.by", Position{}, "%s", p)
	}
	if len(t.Table) > MaxSubjects {
		bad("subjects", Position{}, "there are %d subjects, must be at most %d", len(t.Table), MaxSubjects)
		return
	}
	t.checkEntries(t.Other, func(format string, args ...any) { bad("subjects.*", t.OtherPos, format, args...) })
	hidden := slices.Contains(secret, t.By)
	seen := make(map[string]int32, len(t.Table))
	for i := range t.Table {
		s := &t.Table[i]
		// A table may have a million rows, and hardly any of them is wrong, so the position is made
		// only for those.
		row := func(format string, args ...any) { bad(fmt.Sprintf("subjects.%d", i), s.Pos, format, args...) }
		name := func() string { return displayed(s.Key, hidden) }
		if s.Key == "" || len(s.Key) > MaxValue {
			row("the subject %s has %d bytes, must have 1 to %d", name(), len(s.Key), MaxValue)
		}
		if hash, ok := hashOf(s.Key); ok && hidden {
			if p := checkHash(hash); p != "" {
				row("the subject %s: %s", name(), p)
			}
		}
		key := s.Key
		if t.By == AddressEntry {
			key = spelled(key)
		}
		if first, twice := seen[key]; twice {
			row("the subject %s is in the table twice, first at %v; keep one", name(), t.Table[first].Pos)
		}
		seen[key] = int32(i)
		if len(s.Entries) == 0 {
			row("the subject %s has no entries; say what is known of it, such as { tier: pro }", name())
		}
		t.checkEntries(s.Entries, row)
	}
}

func (t *Subjects) checkEntries(entries []Entry, bad func(format string, args ...any)) {
	if len(entries) > MaxEntries {
		bad("there are %d entries, must be at most %d", len(entries), MaxEntries)
	}
	for i, e := range entries {
		if p := checkEntryName(e.Name); p != "" {
			bad("%s", p)
		}
		if e.Value == "" || len(e.Value) > MaxValue {
			bad("entry %s: the value has %d bytes, must have 1 to %d", Quote(e.Name), len(e.Value), MaxValue)
		}
		if e.Name == t.By {
			bad("entry %s is what the table is looked up by, and cannot be set in it", Quote(e.Name))
		}
		if slices.ContainsFunc(entries[:i], func(o Entry) bool { return o.Name == e.Name }) {
			bad("entry %s is set twice; keep one", Quote(e.Name))
		}
	}
}

// displayed is a value as messages show it: a secret is not shown.
func displayed(value string, secret bool) string {
	if _, hash := hashOf(value); !secret || hash {
		return Quote(value)
	}
	return "(a secret)"
}

// hashOf cuts the mark off the hash of a secret.
func hashOf(key string) (hash string, ok bool) {
	if len(key) > len(HashMark) && key[:len(HashMark)] == HashMark {
		return key[len(HashMark):], true
	}
	return "", false
}

// compiledSubjects finds the entries of a request's client.
type compiledSubjects struct {
	by      string
	address bool
	clear   map[string][]Entry
	hashes  map[string][]Entry
	other   []Entry
	hasher  *hasher
	// byHash returns what is in clear by the hashes of the clients. It is made when somebody first
	// looks at clients, and is nil for a table that is too large for it.
	byHash func() map[string][]Entry
}

// maxByHash is the maximum number of clients whose hashes are made to look at clients.
const maxByHash = 100_000

func (t *Subjects) compile(secret []string, h *hasher) *compiledSubjects {
	hidden := slices.Contains(secret, t.By)
	hashes := 0
	for i := range t.Table {
		if _, hashed := hashOf(t.Table[i].Key); hashed && hidden {
			hashes++
		}
	}
	c := &compiledSubjects{
		by: t.By, address: t.By == AddressEntry, other: t.Other, hasher: h,
		clear: make(map[string][]Entry, len(t.Table)-hashes), hashes: make(map[string][]Entry, hashes),
	}
	for i := range t.Table {
		s := &t.Table[i]
		hash, hashed := hashOf(s.Key)
		switch {
		case hashed && hidden:
			c.hashes[hash] = s.Entries
		case c.address:
			c.clear[spelled(s.Key)] = s.Entries
		default:
			c.clear[s.Key] = s.Entries
		}
	}
	c.byHash = sync.OnceValue(func() map[string][]Entry {
		if len(c.clear) > maxByHash || !hidden {
			return nil
		}
		hashes := make(map[string][]Entry, len(c.clear))
		for value, entries := range c.clear {
			hashes[string(h.append(nil, c.by, value))] = entries
		}
		return hashes
	})
	return c
}

// row returns the table's entries for a client, and whether the table knows the client. Hashed are
// entries whose hash is known and whose value is not.
func (c *compiledSubjects) row(d Descriptor, hashed []Entry) (entries []Entry, known bool) {
	for _, e := range hashed {
		if entries, known = c.hashes[e.Value]; known && e.Name == c.by {
			return entries, true
		}
	}
	value, ok := d.Get(c.by)
	if !ok {
		return c.other, false
	}
	if c.address {
		value = spelled(value)
	}
	if entries, known = c.clear[value]; known {
		return entries, true
	}
	if len(c.hashes) > 0 {
		for h := c.hasher; h != nil; h = h.next {
			var space [32]byte
			if entries, known = c.hashes[string(h.append(space[:0], c.by, value))]; known {
				return entries, true
			}
		}
	}
	return c.other, false
}

// limits returns the limits that the rule has for the request, or nil if it has none: those of the
// first override that matches, or else those of the tariff, or else its own.
func (s *Set) limits(r *compiled, d Descriptor) *headgate.Rule {
	if r.more == nil {
		return r.Limits
	}
	i, found := r.more.overrides.find(d, s.now)
	return r.limitsOf(d, i, found)
}

// limitsOf is limits if it is known which override matches, if any.
func (r *compiled) limitsOf(d Descriptor, override int, found bool) *headgate.Rule {
	switch {
	case found && r.Overrides[override].Limits != nil:
		return r.Overrides[override].Limits
	case r.Tariff == nil:
		return r.Limits
	}
	value, _ := d.Get(r.Tariff.Entry)
	if limits := r.more.tiers[value]; limits != nil {
		return limits
	}
	return r.Tariff.Other
}

// Limits returns the limits that the named rule has for a descriptor, after overrides and tariff,
// and the number of the override, from 1, or zero. It does not look at the conditions of the rule.
// The limits are nil if the tariff has none for the tier, if the rule only bounds what is in
// progress, or if the set has no such rule.
//
// The descriptor may have only some of the entries that a request has. The row of the table of
// subjects for unknown clients then adds only entries that are missing.
//
// Hashed are secret entries whose hash is known and whose value is not: each has what [Set.Hash]
// returned, under the hash key in use. Overrides find them by hash and by value. The table of
// subjects finds them by hash only. Neither finds hashes that were made with a former hash key.
func (s *Set) Limits(rule string, d Descriptor, hashed ...Entry) (limits *headgate.Rule, override int) {
	i, ok := s.names[rule]
	if !ok {
		return nil, 0
	}
	r := &s.compiled[i]
	if r.more == nil {
		return r.Limits, 0
	}
	d = s.knownOf(d, hashed)
	j, found := s.overrideOf(r, d, hashed)
	if found && r.Overrides[j].Limits != nil {
		override = j + 1
	}
	return r.limitsOf(d, j, found), override
}

// PermitLimit is how many permits there are for what the named rule counts by these entries,
// as Limits has its limits. It is zero if the rule does not bound what is in progress, or
// has no limit for the entries.
func (s *Set) PermitLimit(rule string, d Descriptor, hashed ...Entry) int64 {
	i, ok := s.names[rule]
	if !ok || s.rules[i].InProgress == nil {
		return 0
	}
	d = s.knownOf(d, hashed)
	r := &s.compiled[i]
	j, found := s.overrideOf(r, d, hashed)
	return r.permitsOf(d, j, found)
}

// knownOf is known for a part of the entries of a request.
func (s *Set) knownOf(d Descriptor, hashed []Entry) Descriptor {
	if s.subjects == nil {
		return d
	}
	row, found := s.subjects.row(d, hashed)
	if !found {
		return append(d[:len(d):len(d)], row...)
	}
	return append(row[:len(row):len(row)], d...)
}

// overrideOf finds the first override of the rule that holds. The index needs values, so it looks at
// all of them, which people do now and then.
func (s *Set) overrideOf(r *compiled, d Descriptor, hashed []Entry) (int, bool) {
	j := slices.IndexFunc(r.Overrides, func(o Override) bool {
		fails := func(c Condition) bool { return !s.holds(&c, d, hashed) }
		return !slices.ContainsFunc(o.Match, fails) && !s.Ended(o.Until)
	})
	return j, j >= 0
}

// holds reports whether a condition holds. Beginnings of a hashed value are not known.
func (s *Set) holds(c *Condition, d Descriptor, hashed []Entry) bool {
	for _, e := range hashed {
		if e.Name == c.Entry {
			is := func(value string) bool { return s.Hash(e.Name, value) == e.Value }
			return (c.Size() == 0 || slices.Contains(c.Hashes, e.Value) || slices.ContainsFunc(c.Equals, is)) != c.Not
		}
	}
	one := c.compiled(s.hasher)
	return one.holds(d)
}

// KeyMatch returns conditions that hold for exactly those requests that the named rule counts under
// the key: for each entry of its Per the value, the network or the hash. It reports false if the
// key does not tell: the rule has one counter for all, or takes any key; the key is not one of the
// rule; or the key was too long for a store and was replaced by a hash.
func (s *Set) KeyMatch(rule, key string) ([]Condition, bool) {
	i, ok := s.names[rule]
	if !ok || key == "" || key[0] == shortened {
		return nil, false
	}
	r := &s.compiled[i]
	values := []string{key}
	if len(r.parts) != 1 {
		if values, ok = split(key, len(r.parts)); !ok || len(r.parts) == 0 {
			return nil, false
		}
	}
	all := make([]Condition, len(values))
	for j, value := range values {
		p := &r.parts[j]
		network, err := netip.ParsePrefix(value)
		switch {
		case value == "":
			return nil, false
		case p.secret && (p.Bits4 != 0 || p.Bits6 != 0):
			return nil, false // A hash of the network, which conditions do not know.
		case p.secret:
			all[j] = Hashed(p.Entry, value)
		case p.address && err == nil:
			all[j] = Network(p.Entry, network)
		default:
			all[j] = Condition{Entry: p.Entry, Equals: []string{value}}
		}
	}
	return all, true
}

// KeyEntries returns the entries of a request that the key of a rule reveals. Secret entries are in
// hashed, with the hash that the key has of them, as [Set.Limits] takes them.
func (s *Set) KeyEntries(rule, key string) (d Descriptor, hashed []Entry) {
	conditions, _ := s.KeyMatch(rule, key)
	for _, c := range conditions {
		switch {
		case len(c.Equals) > 0:
			d = append(d, Entry{Name: c.Entry, Value: c.Equals[0]})
		case len(c.Networks) > 0:
			d = append(d, Entry{Name: c.Entry, Value: c.Networks[0].Addr().String()})
		case len(c.Hashes) > 0:
			hashed = append(hashed, Entry{Name: c.Entry, Value: c.Hashes[0]})
		}
	}
	return d, hashed
}

// Client returns the entries that the table of subjects has for the client whose requests the named
// rule counts under the key, or nil if the table does not know the client or the key does not tell.
// Clients whose keys are secrets are known in tables of up to a hundred thousand.
func (s *Set) Client(rule, key string) []Entry {
	if s.subjects == nil {
		return nil
	}
	d, hashed := s.KeyEntries(rule, key)
	if entries, known := s.subjects.row(d, hashed); known {
		return entries
	}
	for _, e := range hashed {
		if e.Name == s.subjects.by {
			return s.subjects.byHash()[e.Value]
		}
	}
	return nil
}
