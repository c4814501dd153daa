package decide

import (
	"fmt"
	"slices"

	"github.com/headgate/headgate"
	"github.com/headgate/headgate/internal/errtext"
	"github.com/headgate/headgate/policy"
	"github.com/headgate/headgate/policy/nested"
)

// The names that requests of several descriptors know.
const (
	// RuleEntry is the name of a first entry whose value names a direct rule; the
	// entries that follow are its key.
	RuleEntry = "headgate.rule"
	// BroughtRule is the name of the rule under which a limit is counted that comes with a
	// descriptor. There is one name for all such limits, since names are labels of metrics.
	BroughtRule = "envoy.limit_override"
)

// Parts are the descriptors of a request that has several ordered ones, as Envoy sends it; see
// [Ask.Parts]. Fill in the fields. After Reset, Parts can be used for another request and keep their
// memory. They are not for concurrent use.
type Parts struct {
	// Domain is the domain of all descriptors.
	Domain string
	// Independent charges each part separately, whatever happens to the others. A cost that does
	// not fit then takes what is left of the limit.
	Independent bool
	// Reports detects reports that were refused; it may be nil. Each says that every part has named its
	// own number of units; see [Reports].
	Reports *Reports
	Each    bool
	// List holds the parts, at most headgate.MaxChecks.
	List []Part

	ask       *Ask                // the request: its checks are those of all parts
	places    []int               // the index of each check in its call
	entries   []*policy.ListEntry // the list entries that answer parts
	decisions []headgate.Decision // of all parts
	best      []headgate.Decision // the deciding decision of each part

	calls  []*call    // of the store; those beyond called are from former requests
	called int        // how many calls this request needed
	byOp   [ops]*call // the calls in preparation
	made   []headgate.Decision
}

// Part is one descriptor, with its operation and its outcome.
type Part struct {
	// Entries are the descriptor's, in their order. They are not changed.
	Entries policy.Descriptor
	// Op is OpTake, OpPeek or OpRefund. Cost is the number of units, 1 to
	// headgate.MaxCount.
	Op   headgate.Op
	Cost int64
	// Brought is a limit that came with the descriptor; its name is [BroughtRule]. Nothing says that a
	// limit of zero came with it, which admits nothing. Either of them replaces all rules for the
	// part.
	Brought *headgate.Rule
	Nothing bool

	// Leaf is the nested limit that was found for the part, or nil. It is set by Resolve, for policies
	// with nested limits only.
	Leaf *nested.Leaf
	// Listed is the list entry that answers the part, or nil. Unlimited says that the part passes
	// whatever its limits say, and Denies that it never passes.
	Listed            *policy.ListEntry
	Unlimited, Denies bool
	// Beyond says that the part is beyond a limit in quota mode, after Take.
	Beyond bool

	spent                            bool // no quota of the request has anything left
	direct                           bool // the descriptor names a rule
	replaced                         bool
	key                              string
	facts, checks, places, decisions span
}

// ops is the number of operations that a part may ask for.
const ops = headgate.OpRefund + 1

// span is a range of one of the request's slices.
type span struct{ from, to int }

func of[T any](s span, all []T) []T { return all[s.from:s.to:s.to] }

// Reset forgets the request.
func (p *Parts) Reset() {
	clear(p.List)
	clear(p.entries)
	clear(p.decisions)
	clear(p.best)
	for _, c := range p.calls[:p.called] {
		c.reset()
	}
	*p = Parts{
		List: p.List[:0], places: p.places[:0], entries: p.entries[:0],
		decisions: p.decisions[:0], best: p.best[:0], calls: p.calls,
	}
}

// Decisions returns the decisions about a part, after Take. Parts that share a counter have
// the same decisions.
func (p *Parts) Decisions(part *Part) []headgate.Decision { return of(part.decisions, p.decisions) }

// TurnsAway reports whether the part is turned away whatever the counters say.
func (part *Part) TurnsAway() bool {
	return part.Denies && part.Op != headgate.OpRefund && (part.Leaf == nil || part.spent || !part.Leaf.Shadow && !part.Leaf.Quota)
}

// Deciding returns the part that decided the request, its index, and its decision. The decision is
// nil if the part is turned away by a list, or by a limit of zero that came with it. The part is
// nil if only limits in shadow bound the request. Both are valid until the next call.
func (p *Parts) Deciding() (at int, part *Part, d *headgate.Decision) {
	p.best = p.best[:0]
	for i := range p.List {
		part := &p.List[i]
		if part.TurnsAway() {
			if decisions := p.Decisions(part); len(decisions) > 0 {
				return i, part, &decisions[0]
			}
			return i, part, nil
		}
		own := headgate.NewVerdict(p.Decisions(part))
		if d := own.Deciding(); d != nil && part.Op != headgate.OpRefund {
			p.best = append(p.best, *d)
			p.best[len(p.best)-1].Check = i
		}
	}
	all := headgate.NewVerdict(p.best)
	if d = all.Deciding(); d == nil {
		return 0, nil, nil
	}
	return d.Check, &p.List[d.Check], d
}

// Key returns the key of a part under the rule of that name, or "" if the rule does not bind
// the part.
func (p *Parts) Key(part *Part, rule string) string {
	for _, c := range of(part.checks, p.ask.Checks) {
		if c.Rule.Name() == rule {
			return c.Key
		}
	}
	return ""
}

// DescriptorError is a mistake in one of several descriptors.
type DescriptorError struct {
	// Number is the number of the descriptor, counted from 1.
	Number int
	Err    error
}

// Error names the descriptor and the mistake.
func (e *DescriptorError) Error() string {
	return fmt.Sprintf("descriptor %d: %s", e.Number, errtext.Text(e.Err))
}

// Unwrap returns the mistake.
func (e *DescriptorError) Unwrap() error { return e.Err }

// resolve finds what binds each part.
func (p *Parts) resolve(a *Ask) error {
	p.ask = a
	a.Descriptor, a.Checks, a.Unenforced = a.Descriptor[:0], a.Checks[:0], a.Unenforced[:0]
	known := a.Policy.Knows(p.Domain)
	for i := range p.List {
		part := &p.List[i]
		var err error
		switch {
		case !known:
		case part.Nothing:
			part.Denies = true
		case part.Brought != nil:
			p.bind(part, headgate.Check{Rule: part.Brought, Key: p.broughtKey(part), Cost: part.Cost})
		case a.Policy.Nested != nil:
			part.Leaf, part.key = a.Policy.Nested.Find(p.Domain, part.Entries)
		default:
			err = p.match(part)
		}
		if err != nil {
			return &DescriptorError{i + 1, err}
		}
	}
	if a.Policy.Nested != nil {
		p.follow()
	} else {
		p.dropReplaced()
	}
	return nil
}

// broughtKey returns the key of a limit that came with a descriptor: its period, the domain and
// all entries. So what was used stays used if the limit's count changes, and limits of
// different periods have counters of their own.
func (p *Parts) broughtKey(part *Part) string {
	values := make(policy.Descriptor, 0, 2+2*len(part.Entries))
	values = append(values, policy.Entry{Value: headgate.FormatPeriod(part.Brought.Limits()[0].Period)}, policy.Entry{Value: p.Domain})
	for _, e := range part.Entries {
		values = append(values, policy.Entry{Value: e.Name}, e)
	}
	return nested.JoinKey(p.ask.Policy.Set, values)
}

// bind sets the only check of the part.
func (p *Parts) bind(part *Part, c headgate.Check) {
	part.checks = span{len(p.ask.Checks), len(p.ask.Checks) + 1}
	p.ask.Checks = append(p.ask.Checks, c)
}

// match binds the part to the rules that match it, or to the one that it names.
func (p *Parts) match(part *Part) error {
	if len(part.Entries) > 0 && part.Entries[0].Name == RuleEntry {
		return p.name(part)
	}
	part.facts.from = len(p.ask.Descriptor)
	p.ask.Descriptor = nested.Flatten(p.ask.Descriptor, p.Domain, part.Entries)
	part.facts.to = len(p.ask.Descriptor)
	part.checks.from = len(p.ask.Checks)
	outcome, err := p.ask.Policy.Bind(of(part.facts, p.ask.Descriptor), part.Cost, p.ask.Checks)
	if err != nil {
		return err
	}
	p.ask.Checks, part.checks.to = outcome.Checks, len(outcome.Checks)
	p.addUnenforced(outcome.Bounds)
	switch {
	case outcome.Denied != nil:
		part.Denies, part.Listed = true, outcome.Denied
	case outcome.Allowed != nil:
		part.Unlimited, part.Listed = true, outcome.Allowed
	}
	if part.Listed != nil {
		p.entries = append(p.entries, part.Listed)
	}
	return nil
}

// addUnenforced records the rules that bound what is in progress, each once for the whole request.
func (p *Parts) addUnenforced(bounds []policy.Bound) {
	n := len(p.ask.Unenforced)
	p.ask.Unenforced = unenforced(p.ask.Unenforced, bounds)
	for _, name := range p.ask.Unenforced[n:] {
		if !slices.Contains(p.ask.Unenforced[:n], name) {
			p.ask.Unenforced[n] = name
			n++
		}
	}
	p.ask.Unenforced = p.ask.Unenforced[:n]
}

// name binds the part to the rule that it names.
func (p *Parts) name(part *Part) error {
	name := part.Entries[0].Value
	if r := p.ask.Policy.Rule(name); r != nil && !r.Direct {
		return headgate.Invalid("descriptor", "rule", "the rule %q matches requests by itself; only direct rules can be named", name)
	}
	c, err := p.ask.Policy.Check(name, nested.JoinKey(p.ask.Policy.Set, part.Entries[1:]), part.Cost)
	if err != nil {
		return err
	}
	part.direct = true
	p.bind(part, c)
	return nil
}

// dropReplaced removes the checks of replaced rules, and replaced entries of the deny list. A rule
// that binds any part can replace rules and entries for all parts.
func (p *Parts) dropReplaced() {
	bound := p.ask.Checks
	for i := range p.List {
		if part := &p.List[i]; part.Listed != nil && part.Denies && p.ask.Policy.ReplacedEntry(part.Listed, bound, p.entries...) {
			part.Listed, part.Denies = nil, false
		}
	}
	var kept []headgate.Check // nil as long as nothing was dropped
	for i := range p.List {
		part := &p.List[i]
		from := len(kept)
		for j := part.checks.from; j < part.checks.to; j++ {
			replaced := !part.direct && p.ask.Policy.Replaced(&bound[j], bound, p.entries...)
			switch {
			case replaced && kept == nil:
				kept = append(make([]headgate.Check, 0, len(bound)), bound[:j]...)
				from = part.checks.from
			case !replaced && kept != nil:
				kept = append(kept, bound[j])
			}
		}
		if kept != nil {
			part.checks = span{from, len(kept)}
		}
	}
	if kept != nil {
		clear(p.ask.Checks)
		p.ask.Checks = append(p.ask.Checks[:0], kept...)
	}
}

// follow binds the parts to the nested limits that were found, except to limits that others
// replace.
func (p *Parts) follow() {
	for i := range p.List {
		// A limit that is replaced still replaces others. A leaf that is unlimited cannot be replaced.
		part := &p.List[i]
		part.replaced = part.Leaf != nil && part.Leaf.Replaced && !part.Leaf.Unlimited && p.replaces(part.Leaf.Name)
	}
	for i := range p.List {
		part := &p.List[i]
		switch leaf := part.Leaf; {
		case leaf == nil:
		case part.replaced:
			part.Leaf = nil // A replaced limit does not bind.
		case leaf.Unlimited:
			part.Unlimited = true
		case leaf.Denies():
			part.Denies = true
		default:
			part.direct = true
			p.bind(part, headgate.Check{Rule: leaf.Rule, Key: part.key, Cost: part.Cost, Shadow: leaf.Shadow || leaf.Quota})
		}
	}
}

// replaces reports whether one of the limits that were found replaces those of this
// name.
func (p *Parts) replaces(name string) bool {
	for i := range p.List {
		if l := p.List[i].Leaf; l != nil && slices.Contains(l.Replaces, name) {
			return true
		}
	}
	return false
}
