package candidate

import (
	"slices"
	"time"

	"github.com/headgate/headgate"
	"github.com/headgate/headgate/policy"
	"github.com/headgate/headgate/policy/nested"
	"github.com/headgate/headgate/server/decide"
)

// job is a copy of what a worker needs of one request. It holds no text of the
// request, which may be a part of a much larger one.
type job struct {
	kind kind
	time int64 // when it was decided, in µs
	live decide.Policy

	entries  policy.Descriptor
	cost, at int64
	named    []decide.Named
	terms    headgate.Terms
	// rules are those of a refund or a settlement, by name, and costs what a
	// request costs each of them in the end, before its rule multiplies that.
	rules []string
	costs []int64

	// Of a request of several descriptors: the entries of all of them, one descriptor
	// after the other, are in entries.
	domain      string
	independent bool
	parts       []part

	said        // by the policy in force
	text string // all of the above that came with the request
	buf  []byte
}

// said is what a policy has said of a request: that it is admitted, or what denies it.
type said struct {
	admitted bool
	rule     string            // that denies
	key      string            // that it counts under
	list     *policy.ListEntry // instead of a rule
	part     int               // of several descriptors, the one that is denied
}

// part is one of several descriptors.
type part struct {
	op      headgate.Op
	cost    int64
	brought *headgate.Rule
	nothing bool
	end     int // of its entries
}

// kind is what is done to the candidate's counters.
type kind uint8

const (
	take kind = iota
	takeOnce
	reserve
	refund
	reset
	settle
	together // several descriptors
)

// What jobs take, about.
const (
	jobBytes  = 512 // besides its texts
	partBytes = 64  // for each of several descriptors, besides its entries
	entryHead = 32  // for each of their entries, besides its texts
)

func (j *job) size() int64 {
	n := jobBytes + len(j.text)
	if j.kind == together {
		n += len(j.parts)*partBytes + len(j.entries)*entryHead
	}
	return int64(n)
}

// large reports whether the job has room for much more than most requests need.
func (j *job) large() bool { return cap(j.entries) > 2*policy.MaxEntries || cap(j.buf) > 64<<10 }

func (j *job) reset() {
	clear(j.entries)
	clear(j.named)
	clear(j.rules)
	clear(j.buf) // There may be secrets in it.
	clear(j.parts)
	*j = job{entries: j.entries[:0], named: j.named[:0], rules: j.rules[:0], costs: j.costs[:0], parts: j.parts[:0], buf: j.buf[:0]}
}

// copy takes from the event what is needed, of the descriptor the wanted entries
// only; nil wants all.
func (j *job) copy(e *decide.Event, wanted map[string]bool) {
	ask := e.Ask
	j.kind, j.time, j.live = kindOf(e), time.Now().UnixMicro(), ask.Policy
	j.cost, j.at, j.terms = ask.Cost, ask.At, e.Terms
	if e.Reservation.ID != "" {
		// That is what it will be settled by.
		j.terms.ID = e.Reservation.ID
	}
	j.said = saidOf(e.Ask.Denied, e.Ask.Checks, e.Decisions)
	for _, entry := range ask.Descriptor {
		if wanted == nil || wanted[entry.Name] {
			j.entries = append(j.entries, entry)
		}
	}
	j.named = append(j.named, ask.Named...)
	if j.kind == refund {
		for i := range ask.Checks {
			j.rules = append(j.rules, ask.Checks[i].Rule.Name())
		}
	}
	j.own()
}

func kindOf(e *decide.Event) kind {
	switch {
	case e.Ask.Op == headgate.OpRefund:
		return refund
	case e.Ask.Op == headgate.OpReset:
		return reset
	case e.Reserved:
		return reserve
	case e.Terms.ID != "":
		return takeOnce
	}
	return take
}

// copyParts takes from a request of several descriptors all that was asked: what
// policies look at may be their order, and the names of all.
func (j *job) copyParts(p *decide.Parts) {
	j.kind, j.time, j.live = together, time.Now().UnixMicro(), p.Policy
	j.domain, j.independent = p.Domain, p.Independent
	for i := range p.List {
		of := &p.List[i]
		j.entries = append(j.entries, of.Entries...)
		j.parts = append(j.parts, part{of.Op, of.Cost, of.Brought, of.Nothing, len(j.entries)})
	}
	j.said = saidOfParts(p)
	j.own()
}

// fill has the request of several descriptors asked of the policy.
func (j *job) fill(p *decide.Parts, by decide.Policy) {
	p.Reset()
	p.Policy, p.Domain, p.Independent = by, j.domain, j.independent
	begin := 0
	for i := range j.parts {
		of := &j.parts[i]
		p.List = append(p.List, decide.Part{
			Entries: j.entries[begin:of.end:of.end], Op: of.op, Cost: of.cost,
			Brought: of.brought, Nothing: of.nothing,
		})
		begin = of.end
	}
}

// takes reports whether the request asks for anything to be taken: it is compared only
// then.
func (j *job) takes() bool {
	return slices.ContainsFunc(j.parts, func(p part) bool { return p.op == headgate.OpTake })
}

// settle makes the job that of a settlement.
func (j *job) settle(r *headgate.Reservation, units []int64) {
	j.kind, j.time, j.terms.ID = settle, time.Now().UnixMicro(), r.ID
	for i := range units {
		j.rules = append(j.rules, r.Checks[i].Rule.Name())
		j.costs = append(j.costs, units[i]/max(r.Checks[i].Factor, 1))
	}
	j.own()
}

// saidOf is what came of checks, unless an entry of the deny list has answered.
func saidOf(list *policy.ListEntry, checks []headgate.Check, decisions []headgate.Decision) said {
	if list != nil {
		return said{list: list}
	}
	v := headgate.NewVerdict(decisions)
	if v.Allowed {
		return said{admitted: true}
	}
	var s said
	if d := v.Deciding(); d.Rule != nil {
		s.rule = d.Rule.Name()
		if d.Check < len(checks) {
			s.key = checks[d.Check].Key
		}
	}
	return s
}

// saidOfParts is what came of several descriptors.
func saidOfParts(p *decide.Parts) said {
	if p.Verdict().Allowed {
		return said{admitted: true}
	}
	at, part, d := p.Deciding()
	s := said{part: at}
	switch {
	case part == nil || d == nil && part.Nothing:
		s.rule = decide.BroughtRule
	case part.Listed != nil && part.Denies:
		s.list = part.Listed
	case part.Leaf != nil && part.Denies:
		s.list = part.Leaf.Listed
	default:
		s.rule = d.Rule.Name()
		s.key = p.Key(part, s.rule)
	}
	return s
}

// facts is the descriptor that the part has for lists and tariffs.
func (j *job) facts(by decide.Policy, part int) policy.Descriptor {
	if j.kind != together {
		return j.entries
	}
	begin := 0
	if part > 0 {
		begin = j.parts[part-1].end
	}
	entries := j.entries[begin:j.parts[part].end]
	if by.Nested != nil {
		return entries
	}
	return nested.Flatten(nil, j.domain, entries)
}

// own has all texts copied, in one piece.
func (j *job) own() {
	j.buf = j.buf[:0]
	j.texts(func(s *string) { j.buf = append(j.buf, *s...) })
	rest := string(j.buf)
	j.text = rest
	j.texts(func(s *string) { *s, rest = rest[:len(*s)], rest[len(*s):] })
}

// texts visits every text that came with the request.
func (j *job) texts(visit func(s *string)) {
	for i := range j.entries {
		visit(&j.entries[i].Name)
		visit(&j.entries[i].Value)
	}
	for i := range j.named {
		visit(&j.named[i].Rule)
		visit(&j.named[i].Key)
	}
	visit(&j.domain)
	visit(&j.key)
	visit(&j.terms.ID)
}
