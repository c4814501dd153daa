package candidate

import (
	"time"

	"github.com/headgate/headgate"
	"github.com/headgate/headgate/policy"
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

	// What the policy in force said of it.
	admitted bool
	by       Denier
	list     *policy.ListEntry // instead of by
	key      string            // that by counts under

	text string // all of the above that came with the request
	buf  []byte
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
)

// jobBytes is about what a job takes besides its texts.
const jobBytes = 512

func (j *job) size() int64 { return int64(jobBytes + len(j.text)) }

func (j *job) reset() {
	clear(j.entries)
	clear(j.named)
	clear(j.rules)
	clear(j.buf) // There may be secrets in it.
	*j = job{entries: j.entries[:0], named: j.named[:0], rules: j.rules[:0], costs: j.costs[:0], buf: j.buf[:0]}
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
	j.judge(e)
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

// settle makes the job that of a settlement.
func (j *job) settle(r *headgate.Reservation, units []int64) {
	j.kind, j.time, j.terms.ID = settle, time.Now().UnixMicro(), r.ID
	for i := range units {
		j.rules = append(j.rules, r.Checks[i].Rule.Name())
		j.costs = append(j.costs, units[i]/max(r.Checks[i].Factor, 1))
	}
	j.own()
}

// judge keeps what the policy in force said.
func (j *job) judge(e *decide.Event) {
	if j.list = e.Ask.Denied; j.list != nil {
		return
	}
	v := headgate.NewVerdict(e.Decisions)
	if j.admitted = v.Allowed; j.admitted {
		return
	}
	if d := v.Deciding(); d.Rule != nil {
		j.by.Rule = d.Rule.Name()
		if d.Check < len(e.Ask.Checks) {
			j.key = e.Ask.Checks[d.Check].Key
		}
	}
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
	visit(&j.key)
	visit(&j.terms.ID)
}
