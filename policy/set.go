package policy

import (
	"fmt"
	"slices"

	"github.com/headgate/headgate"
)

// Set holds all rules of a policy, compiled. It is immutable and safe for
// concurrent use; make one with [New].
type Set struct {
	rules    []Rule
	compiled []compiled
	names    map[string]int32
	index    index
	hasher   *hasher
}

// compiled is what Match needs of a rule.
type compiled struct {
	limits *headgate.Rule
	factor int64
	// conditions are those that the index has not answered already.
	conditions []Condition
	parts      []compiledPart
}

type compiledPart struct {
	Part
	secret, address bool
	// plain parts are neither: the value itself is counted under.
	plain bool
}

type options struct {
	hashKey []byte
	secrets []string
}

// Option changes how [New] makes a set.
type Option func(*options)

// WithHashKey sets the key, MinHashKey to MaxHashKey bytes, under which secret
// values are hashed (HMAC-SHA256). All nodes that share counters must have the
// same key; with another key every counter of a secret starts afresh.
func WithHashKey(key []byte) Option {
	return func(o *options) { o.hashKey = slices.Clone(key) }
}

// WithSecrets names entries whose values are secret besides api_key, token and
// authorization.
func WithSecrets(entries ...string) Option {
	return func(o *options) { o.secrets = append(o.secrets, entries...) }
}

// New compiles rules to a set, or returns an [*Error] that lists every mistake
// in them. It keeps none of the slices that it is given.
func New(rules []Rule, opts ...Option) (*Set, error) {
	var o options
	for _, opt := range opts {
		opt(&o)
	}
	mistakes := o.check()
	if len(rules) > MaxRules {
		mistakes = append(mistakes, Mistake{Index: -1, Text: fmt.Sprintf("there are %d rules, must be at most %d", len(rules), MaxRules)})
		return nil, &Error{mistakes}
	}
	o.secrets = append(o.secrets, secrets...)
	s := &Set{
		rules:    make([]Rule, len(rules)),
		compiled: make([]compiled, len(rules)),
		names:    make(map[string]int32, len(rules)),
		hasher:   newHasher(o.hashKey),
	}
	for i := range rules {
		r := rules[i].clone()
		if r.Name == "" && r.Limits != nil {
			r.Name = r.Limits.Name()
		}
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
		s.compiled[i] = compile(&r, o.secrets)
	}
	if mistakes != nil {
		return nil, &Error{mistakes}
	}
	s.index = newIndex(s.rules, s.compiled)
	return s, nil
}

func (o *options) check() []Mistake {
	var mistakes []Mistake
	if n := len(o.hashKey); o.hashKey != nil && (n < MinHashKey || n > MaxHashKey) {
		mistakes = append(mistakes, Mistake{Index: -1, Text: fmt.Sprintf("the hash key has %d bytes, must have %d to %d", n, MinHashKey, MaxHashKey)})
	}
	for _, entry := range o.secrets {
		if p := checkEntryName(entry); p != "" {
			mistakes = append(mistakes, Mistake{Index: -1, Text: "secret " + p})
		}
	}
	return mistakes
}

func compile(r *Rule, secret []string) compiled {
	c := compiled{limits: r.Limits, factor: r.factor()}
	for i := range r.Match {
		c.conditions = append(c.conditions, r.Match[i].compiled())
	}
	for _, p := range r.Per {
		part := compiledPart{Part: p, secret: slices.Contains(secret, p.Entry), address: p.address()}
		part.plain = !part.secret && !part.address
		c.parts = append(c.parts, part)
	}
	return c
}

// Rules are the set's rules, in the order given. The slice and what it holds are
// shared and must not be changed.
func (s *Set) Rules() []Rule { return s.rules }

// Match appends to dst a check for each rule that binds the request, in the
// order of the rules, and returns the extended slice: none if no rule does. Cost
// is the request's own, 1 to headgate.MaxCount; zero means one.
//
// The error is a [*headgate.InvalidError], and dst is then returned as it came:
// the cost is out of bounds, or more than headgate.MaxChecks rules bind.
//
// Match allocates for keys only: joined ones, hashed ones, and addresses that
// are cut or spelled otherwise.
func (s *Set) Match(d Descriptor, cost int64, dst []headgate.Check) ([]headgate.Check, error) {
	if cost < 0 || cost > headgate.MaxCount {
		return dst, costError("request", cost)
	}
	before := len(dst)
	rules := s.index.candidates(d)
	for i, more := rules.next(); more; i, more = rules.next() {
		r := &s.compiled[i]
		if !r.holds(d) {
			continue
		}
		key, ok := s.key(r, d)
		if !ok {
			continue
		}
		units, err := r.units(cost)
		if err != nil {
			return dst[:before], err
		}
		if len(dst)-before == headgate.MaxChecks {
			return dst[:before], &headgate.InvalidError{
				Subject:  "request",
				Problems: []string{fmt.Sprintf("more than %d rules bind it; narrow what they match", headgate.MaxChecks)},
			}
		}
		dst = append(dst, headgate.Check{Rule: r.limits, Key: key, Cost: units})
	}
	return dst, nil
}

// Check returns the check for the named rule, whatever it matches. The key has
// what Match would read from the descriptor, and is treated alike: for a rule
// that counts by one entry, the entry's value; by several, their values joined
// by "|", with "|" and "\" in them escaped by "\"; for a rule with one counter
// for all, "". For a direct rule the key is used as it is.
//
// The error is an [*UnknownRuleError], or a [*headgate.InvalidError] if the key
// or the cost cannot be the rule's.
func (s *Set) Check(name, key string, cost int64) (headgate.Check, error) {
	i, ok := s.names[name]
	if !ok {
		return headgate.Check{}, s.unknown(name)
	}
	r := &s.compiled[i]
	invalid := func(format string, args ...any) (headgate.Check, error) {
		return headgate.Check{}, &headgate.InvalidError{Subject: fmt.Sprintf("rule %q", name), Problems: []string{fmt.Sprintf(format, args...)}}
	}
	if cost < 0 || cost > headgate.MaxCount {
		return headgate.Check{}, costError(fmt.Sprintf("rule %q", name), cost)
	}
	units, err := r.units(cost)
	if err != nil {
		return headgate.Check{}, err
	}
	c := headgate.Check{Rule: r.limits, Key: key, Cost: units}
	switch {
	case s.rules[i].Direct:
		if len(key) > headgate.MaxKey {
			return invalid("the key has %d bytes, must have at most %d", len(key), headgate.MaxKey)
		}
		return c, nil
	case len(r.parts) == 0 && key != "":
		return invalid("the key is %s, must be empty: the rule has one counter for all", quote(key))
	case len(r.parts) == 0:
		return c, nil
	}
	values := []string{key}
	if len(r.parts) > 1 {
		if values, ok = split(key, len(r.parts)); !ok {
			return invalid(`the key has %d parts, must have %d joined by "|": %s`, len(values), len(r.parts), r.partNames())
		}
	}
	d := make(Descriptor, len(r.parts))
	for j := range r.parts {
		if len(values[j]) > MaxValue {
			return invalid("the key's %s has %d bytes, must have at most %d", r.parts[j].Entry, len(values[j]), MaxValue)
		}
		d[j] = Entry{r.parts[j].Entry, values[j]}
	}
	if c.Key, ok = s.key(r, d); !ok {
		return invalid("the key is %s, but the rule binds no request without %s", quote(key), r.partNames())
	}
	return c, nil
}

// unknown says which rules there are; only a few, since anyone may ask.
func (s *Set) unknown(name string) error {
	const few = 5
	e := &UnknownRuleError{Name: name}
	for i := range s.rules[:min(few, len(s.rules))] {
		e.Known = append(e.Known, s.rules[i].Name)
	}
	e.More = len(s.rules) - len(e.Known)
	return e
}

func costError(subject string, cost int64) error {
	return &headgate.InvalidError{Subject: subject, Problems: []string{fmt.Sprintf("the cost is %d, must be 1 to %d", cost, headgate.MaxCount)}}
}
