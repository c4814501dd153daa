package envoyrls

import (
	"fmt"
	"net/http"

	"github.com/headgate/headgate"
	"github.com/headgate/headgate/policy"
	"github.com/headgate/headgate/policy/nested"
	"github.com/headgate/headgate/server/decide"
)

// RuleEntry is the name of a first entry whose value names a direct rule; the
// entries that follow are its key.
const RuleEntry = "headgate.rule"

// scratch is what one request needs and the next can use again.
type scratch struct {
	request request
	policy  decide.Policy
	plans   []plan
	facts   policy.Descriptor // of all descriptors
	checks  []headgate.Check  // of all descriptors
	places  []int             // of checks in their batch
	batches [ops]batch
	// decisions are those of each plan, and told are all of them, but for what
	// is there twice and refunds.
	decisions, told []headgate.Decision
	entries         []*policy.ListEntry // of lists, that answer descriptors
	header          http.Header
	names           []string // of the header
}

// ops is the number of operations that a descriptor may ask for.
const ops = headgate.OpRefund + 1

// plan is what is to be done for one descriptor, and what came of it.
type plan struct {
	op   headgate.Op
	cost int64
	// leaf and key are what a policy with nested limits says.
	leaf     *nested.Leaf
	key      string
	replaced bool
	// listed is the entry of a list that answers the descriptor, and unlimited
	// says that it, or something else, lets it pass whatever the limits say.
	// denies says that something admits nothing.
	listed            *policy.ListEntry
	unlimited, denies bool
	named             decide.Named // without a Rule if no rule was named

	facts, checks, places, decisions span
}

// span is a part of one of the scratch's slices.
type span struct{ from, to int }

func of[T any](s span, all []T) []T { return all[s.from:s.to:s.to] }

// reset forgets the request, and keeps the room that it took.
func (q *scratch) reset() {
	q.request.reset()
	q.policy = decide.Policy{}
	clear(q.plans)
	clear(q.facts)
	clear(q.checks)
	clear(q.decisions)
	clear(q.told)
	clear(q.header)
	clear(q.entries)
	q.plans, q.facts, q.checks, q.places = q.plans[:0], q.facts[:0], q.checks[:0], q.places[:0]
	q.decisions, q.told, q.names, q.entries = q.decisions[:0], q.told[:0], q.names[:0], q.entries[:0]
	for op := range q.batches {
		q.batches[op].reset()
	}
}

// resolve finds what binds each descriptor.
func (s *Service) resolve(q *scratch) error {
	r := &q.request
	known := q.policy.Nested == nil || q.policy.Nested.Has(r.domain)
	for i := range r.descriptors {
		d := &r.descriptors[i]
		q.plans = append(q.plans, plan{})
		p := &q.plans[i]
		p.op, p.cost = d.operation(r.hits)
		if !known {
			continue
		}
		var err error
		switch {
		case d.limited:
			err = s.override(q, p, d)
		case q.policy.Nested != nil:
			p.leaf, p.key = q.policy.Nested.Find(r.domain, d.entries)
		default:
			err = q.match(p, d.entries)
		}
		if err != nil {
			return fmt.Errorf("descriptor %d: %w", i+1, err)
		}
	}
	if q.policy.Nested != nil {
		q.follow()
	} else {
		q.dropReplaced()
	}
	return nil
}

// dropReplaced takes off the checks whose rules, and the entries of the deny list
// that, are replaced by others which bind the request, by whichever of its
// descriptors.
func (q *scratch) dropReplaced() {
	bound := q.checks
	for i := range q.plans {
		if p := &q.plans[i]; p.listed != nil && p.denies && q.policy.ReplacedEntry(p.listed, bound, q.entries...) {
			p.listed, p.denies = nil, false
		}
	}
	var kept []headgate.Check // nil as long as all are
	for i := range q.plans {
		p := &q.plans[i]
		from := len(kept)
		for j := p.checks.from; j < p.checks.to; j++ {
			replaced := p.named.Rule == "" && q.policy.Replaced(&bound[j], bound, q.entries...)
			switch {
			case replaced && kept == nil:
				kept = append(make([]headgate.Check, 0, len(bound)), bound[:j]...)
				from = p.checks.from
			case !replaced && kept != nil:
				kept = append(kept, bound[j])
			}
		}
		if kept != nil {
			p.checks = span{from, len(kept)}
		}
	}
	if kept != nil {
		clear(q.checks)
		q.checks = append(q.checks[:0], kept...)
	}
}

// operation is what a descriptor asks for, and of how many units, where the
// request as a whole says so many. More of them than any limit has are as good as
// that many.
func (d *descriptor) operation(hits uint32) (headgate.Op, int64) {
	asked := uint64(max(1, hits))
	if d.hasHits {
		asked = d.hits
	}
	units := int64(min(asked, headgate.MaxCount))
	switch {
	case units == 0:
		return headgate.OpPeek, 1
	case d.negative:
		return headgate.OpRefund, units
	}
	return headgate.OpTake, units
}

// override binds the descriptor by the limit that came with it.
func (s *Service) override(q *scratch, p *plan, d *descriptor) error {
	rule, err := s.overrides.rule(&d.limit)
	switch {
	case err != nil:
		return err
	case rule == nil:
		p.denies = true
		return nil
	}
	q.bind(p, headgate.Check{Rule: rule, Key: overrideKey(q.policy.Set, &rule.Limits()[0], q.request.domain, d.entries), Cost: p.cost})
	return nil
}

// bind gives the descriptor its only check.
func (q *scratch) bind(p *plan, c headgate.Check) {
	p.checks = span{len(q.checks), len(q.checks) + 1}
	q.checks = append(q.checks, c)
}

// match binds the descriptor by rules that match it, or by the one that it names.
func (q *scratch) match(p *plan, entries policy.Descriptor) error {
	if len(entries) > 0 && entries[0].Name == RuleEntry {
		return q.name(p, entries)
	}
	p.facts.from = len(q.facts)
	q.facts = nested.Flatten(q.facts, q.request.domain, entries)
	p.facts.to = len(q.facts)
	p.checks.from = len(q.checks)
	outcome, err := q.policy.Bind(of(p.facts, q.facts), p.cost, q.checks)
	if err != nil {
		return err
	}
	q.checks, p.checks.to = outcome.Checks, len(outcome.Checks)
	switch {
	case outcome.Denied != nil:
		p.denies, p.listed = true, outcome.Denied
	case outcome.Allowed != nil:
		p.unlimited, p.listed = true, outcome.Allowed
	}
	if p.listed != nil {
		q.entries = append(q.entries, p.listed)
	}
	return nil
}

// name binds the descriptor by the rule that it names.
func (q *scratch) name(p *plan, entries policy.Descriptor) error {
	name := entries[0].Value
	if r := q.policy.Rule(name); r != nil && !r.Direct {
		return invalid(fmt.Sprintf("the rule %q matches requests by itself; only direct rules can be named", name))
	}
	p.named = decide.Named{Rule: name, Key: nested.JoinKey(q.policy.Set, entries[1:]), Cost: p.cost}
	c, err := q.policy.Check(name, p.named.Key, p.cost)
	if err != nil {
		return err
	}
	q.bind(p, c)
	return nil
}

// follow binds the descriptors by what nested limits were found, without those
// that others replace.
func (q *scratch) follow() {
	for i := range q.plans {
		// One that is replaced still replaces others, and what has no limit has
		// none to be replaced.
		p := &q.plans[i]
		p.replaced = p.leaf != nil && p.leaf.Replaced && !p.leaf.Unlimited && q.replaced(p.leaf.Name)
	}
	for i := range q.plans {
		p := &q.plans[i]
		switch leaf := p.leaf; {
		case leaf == nil:
		case p.replaced:
			p.leaf = nil // It binds nobody.
		case leaf.Unlimited:
			p.unlimited = true
		case leaf.Denies():
			p.denies = true
		default:
			p.named = decide.Named{Rule: leaf.Rule.Name(), Key: p.key, Cost: p.cost}
			q.bind(p, headgate.Check{Rule: leaf.Rule, Key: p.key, Cost: p.cost, Shadow: leaf.Shadow || leaf.Quota})
		}
	}
}

// replaced reports whether one of the limits that were found replaces those of
// this name.
func (q *scratch) replaced(name string) bool {
	for i := range q.plans {
		if l := q.plans[i].leaf; l != nil {
			for _, other := range l.Replaces {
				if other == name {
					return true
				}
			}
		}
	}
	return false
}
