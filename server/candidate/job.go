package candidate

import (
	"strings"
	"time"

	"github.com/headgate/headgate"
	"github.com/headgate/headgate/policy"
	"github.com/headgate/headgate/policy/models"
	"github.com/headgate/headgate/policy/nested"
	"github.com/headgate/headgate/server/decide"
)

// job is a copy of what a worker needs of one request. It holds no text of the
// request, which may be a part of a much larger one.
type job struct {
	time int64 // when it was decided, in µs
	live decide.Policy

	op       headgate.Op
	reserve  bool
	settles  bool // It is a settlement, not a request.
	entries  policy.Descriptor
	cost, at int64
	usage    *models.Usage
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

	answer        // of the policy in force
	text   string // all of the above that came with the request
	buf    []byte
}

// answer is what a policy answers to a request: that it is admitted, or what denies it.
type answer struct {
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

// What jobs take, about.
const (
	jobBytes  = 512 // besides its texts
	partBytes = 64  // for each of several descriptors, besides its entries
	entryHead = 32  // for each of their entries, besides its texts
)

func (j *job) size() int64 {
	n := jobBytes + len(j.text)
	if len(j.parts) > 0 {
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

// copy takes from the event what is needed: of a descriptor the wanted entries only, or all if
// wanted is nil. Of several descriptors it takes all, since policies may look at their order and at
// all names.
func (j *job) copy(e *decide.Event, wanted map[string]bool) {
	ask := e.Ask
	j.time, j.live = time.Now().UnixMicro(), ask.Policy
	if ask.Usage != nil {
		used := *ask.Usage
		used.Model = strings.Clone(used.Model)
		j.usage = &used
	}
	j.op, j.cost, j.at, j.terms, j.reserve = ask.Op, ask.Cost, ask.At, ask.Terms, ask.Reserve
	if ask.Reservation.ID != "" {
		// That is what it will be settled by.
		j.terms.ID = ask.Reservation.ID
	}
	j.answer = answerOf(ask, e.Decisions)
	if p := ask.Parts; p != nil {
		j.domain, j.independent = p.Domain, p.Independent
		for i := range p.List {
			of := &p.List[i]
			j.entries = append(j.entries, of.Entries...)
			j.parts = append(j.parts, part{of.Op, of.Cost, of.Brought, of.Nothing, len(j.entries)})
		}
		j.own()
		return
	}
	for _, entry := range ask.Descriptor {
		if wanted == nil || wanted[entry.Name] {
			j.entries = append(j.entries, entry)
		}
	}
	j.named = append(j.named, ask.Named...)
	if j.op == headgate.OpRefund {
		for i := range ask.Checks {
			j.rules = append(j.rules, ask.Checks[i].Rule.Name())
		}
	}
	j.own()
}

// fill has the request asked of a policy. p is used if it has several descriptors.
func (j *job) fill(ask *decide.Ask, p *decide.Parts, by decide.Policy) {
	ask.Policy, ask.Op, ask.Cost, ask.Usage, ask.Terms, ask.Reserve = by, j.op, j.cost, j.usage, j.terms, j.reserve
	if len(j.parts) == 0 {
		ask.Descriptor = j.entries
		return
	}
	ask.Parts, p.Domain, p.Independent = p, j.domain, j.independent
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

// settle makes the job that of a settlement.
func (j *job) settle(r *headgate.Reservation, units []int64) {
	j.settles, j.time, j.terms.ID = true, time.Now().UnixMicro(), r.ID
	for i := range units {
		j.rules = append(j.rules, r.Checks[i].Rule.Name())
		j.costs = append(j.costs, units[i]/max(r.Checks[i].Factor, 1))
	}
	j.own()
}

// answerOf is what came of a request.
func answerOf(ask *decide.Ask, decisions []headgate.Decision) answer {
	v := ask.Verdict(decisions)
	switch {
	case v.Allowed:
		return answer{admitted: true}
	case ask.Parts != nil:
		return answerOfParts(ask.Parts)
	case ask.Denied != nil:
		return answer{list: ask.Denied}
	}
	var a answer
	if d := v.Deciding(); d.Rule != nil {
		a.rule = d.Rule.Name()
		if d.Check < len(ask.Checks) {
			a.key = ask.Checks[d.Check].Key
		}
	}
	return a
}

// answerOfParts is what denied one of several descriptors.
func answerOfParts(p *decide.Parts) answer {
	at, part, d := p.Deciding()
	a := answer{part: at}
	switch {
	case part == nil || d == nil && part.Nothing:
		a.rule = decide.BroughtRule
	case part.Listed != nil && part.Denies:
		a.list = part.Listed
	case part.Leaf != nil && part.Denies:
		a.list = part.Leaf.Listed
	default:
		a.rule = d.Rule.Name()
		a.key = p.Key(part, a.rule)
	}
	return a
}

// facts is the descriptor that the part has for lists and tariffs.
func (j *job) facts(by decide.Policy, part int) policy.Descriptor {
	if len(j.parts) == 0 {
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
