package grpcapi

import (
	"errors"
	"fmt"
	"strings"
	"time"

	"google.golang.org/grpc/codes"

	"github.com/headgate/headgate"
	headgatev1 "github.com/headgate/headgate/api/headgate/v1"
	"github.com/headgate/headgate/policy"
	"github.com/headgate/headgate/server/decide"
)

// request is what a message asks, as it stands there.
type request struct {
	entries    policy.Descriptor
	beyond     int // how many entries there are beyond policy.MaxEntries
	named      []named
	unread     int // how many checks there are beyond headgate.MaxChecks
	cost       units
	at         int64
	id         string
	lifetimeMS int64
}

// named is a check that names rule and key.
type named struct {
	rule, key string
	cost      units
}

// units is a cost, and whether there is one.
type units struct {
	n     int64
	given bool
}

func readUnits(n *int64) units {
	if n == nil {
		return units{}
	}
	return units{*n, true}
}

// valid reports whether the cost is in its range.
func (u units) valid() bool { return !u.given || u.n >= 1 && u.n <= headgate.MaxCount }

// or1 is the cost with its default applied. One that is not valid is noted
// elsewhere, and counts as none here.
func (u units) or1() int64 {
	if !u.given || !u.valid() {
		return 1
	}
	return u.n
}

// reset empties the request and keeps its memory, but not what it points to.
func (r *request) reset() {
	clear(r.entries)
	clear(r.named)
	*r = request{entries: r.entries[:0], named: r.named[:0]}
}

// read reads what all requests have.
func (r *request) read(entries map[string]string, checks []*headgatev1.Check, cost *int64) {
	for name, value := range entries {
		r.addEntry(name, value)
	}
	for _, c := range checks {
		r.addCheck(named{c.GetRule(), c.GetKey(), readUnits(c.Cost)})
	}
	r.cost = readUnits(cost)
}

func (r *request) readCheck(m *headgatev1.CheckRequest) {
	r.read(m.GetEntries(), m.GetChecks(), m.Cost)
	r.id, r.lifetimeMS = m.GetId(), m.GetLifetimeMs()
}

// addEntry adds an entry of the descriptor. Of two with one name the later counts,
// as in any map of protobuf.
func (r *request) addEntry(name, value string) {
	for i := range r.entries {
		if r.entries[i].Name == name {
			r.entries[i].Value = value
			return
		}
	}
	if len(r.entries) == policy.MaxEntries {
		r.beyond++
		return
	}
	r.entries = append(r.entries, policy.Entry{Name: name, Value: value})
}

func (r *request) addCheck(c named) {
	if len(r.named) == headgate.MaxChecks {
		r.unread++
		return
	}
	r.named = append(r.named, c)
}

// maxAt bounds "at" to what any language's numbers hold exactly.
const maxAt = 1 << 53

// check notes what is wrong with the request by itself.
func (r *request) check(op headgate.Op, list *faults) {
	if len(r.entries) > 0 && len(r.named) > 0 {
		list.add("checks", "cannot be with entries; send one of them")
	}
	if r.beyond > 0 {
		list.add("entries", "has %d entries, may have %d", len(r.entries)+r.beyond, policy.MaxEntries)
	}
	for i := range r.entries {
		e := &r.entries[i]
		if len(e.Name) == 0 || len(e.Name) > policy.MaxName {
			list.add(entryField(e.Name), "the name has %d bytes, must have 1 to %d", len(e.Name), policy.MaxName)
		}
		if len(e.Value) > policy.MaxValue {
			list.add(entryField(e.Name), "has %d bytes, may have %d", len(e.Value), policy.MaxValue)
		}
	}
	if r.unread > 0 {
		list.add("checks", "has %d checks, must have at most %d", len(r.named)+r.unread, headgate.MaxChecks)
	}
	switch {
	case r.cost.given && len(r.named) > 0:
		list.add("cost", "goes with entries; here each of the checks has its own")
	case !r.cost.valid():
		list.add("cost", "is %d, must be 1 to %d", r.cost.n, int64(headgate.MaxCount))
	}
	for i := range r.named {
		c := &r.named[i]
		if c.rule == "" {
			list.add(checkField(i, "rule"), "is missing")
		}
		if !c.cost.valid() {
			list.add(checkField(i, "cost"), "is %d, must be 1 to %d", c.cost.n, int64(headgate.MaxCount))
		}
	}
	if op == headgate.OpRefund && (r.at < 0 || r.at > maxAt) {
		list.add("at", "is %d, must be 1 to %d: microseconds since 1970, as the answer to the check gave them", r.at, int64(maxAt))
	}
	if len(r.id) > headgate.MaxID {
		list.add("id", "has %d bytes, must have at most %d", len(r.id), headgate.MaxID)
	}
	if most := headgate.MaxTerm.Milliseconds(); r.lifetimeMS < 0 || r.lifetimeMS > most {
		list.add("lifetime_ms", "is %d, must be 1 to %d", r.lifetimeMS, most)
	}
}

// terms are those of the request, which has been checked.
func (r *request) terms() headgate.Terms {
	return headgate.Terms{ID: r.id, For: time.Duration(r.lifetimeMS) * time.Millisecond}
}

// checkOrder reports entries that a policy wants to know the order of.
func (r *request) checkOrder(p decide.Policy, list *faults) {
	if p.Nested != nil && len(r.entries) > 2 {
		list.add("entries", "have no order here, which the policy asks for, a configuration of envoyproxy/ratelimit; send rule and key in checks")
	}
}

// resolve finds the checks that the request means. The error is a status.
func (s *Service) resolve(op headgate.Op, sc *scratch) error {
	r, list := &sc.request, &sc.faults
	sc.ask.Op, sc.ask.Policy, sc.ask.At = op, s.decider.Policy(), r.at
	r.check(op, list)
	if len(r.named) > 0 {
		sc.resolveNamed()
	} else {
		r.checkOrder(sc.ask.Policy, list)
	}
	if len(*list) > 0 {
		return list.status()
	}
	if len(r.named) == 0 {
		sc.ask.Descriptor, sc.ask.Cost = r.entries, r.cost.or1()
		outcome, err := sc.ask.Policy.Decide(sc.ask.Descriptor, sc.ask.Cost, sc.ask.Checks)
		if err != nil {
			list.refuse("entries", false, err)
		}
		sc.ask.Checks, sc.ask.Denied, sc.ask.Allowed = outcome.Checks, outcome.Denied, outcome.Allowed
	}
	for i := range sc.ask.Checks {
		sc.ask.Checks[i].At = r.at
	}
	// The store would refuse the same, but does not know the field.
	if len(sc.ask.Checks) > 1 && len(*list) == 0 {
		if err := headgate.Validate(headgate.OpTake, sc.ask.Checks); err != nil {
			list.refuse("checks", false, err)
		}
	}
	if len(*list) > 0 {
		return list.status()
	}
	return nil
}

// resolveNamed finds the checks that the caller names itself.
func (sc *scratch) resolveNamed() {
	for i := range sc.request.named {
		c := &sc.request.named[i]
		if c.rule == "" {
			continue // noted already
		}
		checks, err := sc.ask.Policy.AppendCheck(sc.ask.Checks, c.rule, c.key, c.cost.or1())
		if err != nil {
			sc.faults.refuse(checkField(i, ""), true, err)
			continue
		}
		sc.ask.Checks = checks
		sc.ask.Named = append(sc.ask.Named, decide.Named{Rule: c.rule, Key: c.key, Cost: c.cost.or1()})
	}
}

// refuse notes why the policy will not have the field, which may be a message whose own
// fields the error names.
func (f *faults) refuse(field string, message bool, err error) {
	var invalid *headgate.InvalidError
	switch {
	case errors.Is(err, policy.ErrUnknownRule):
		f.addAs(codes.NotFound, join(field, "rule"), headgate.Text(err))
	case errors.As(err, &invalid):
		for _, problem := range invalid.Problems {
			at := field
			if message {
				at = join(field, problem.Field)
			}
			f.addAs(codes.InvalidArgument, at, problem.Text)
		}
	default:
		f.addAs(codes.InvalidArgument, field, headgate.Text(err))
	}
}

// maxField bounds what of a name that the caller made up is said back.
const maxField = 64

func entryField(name string) string {
	if len(name) > maxField {
		name = strings.ToValidUTF8(name[:maxField], "") + "…"
	}
	return join("entries", name)
}

func checkField(i int, name string) string { return join(fmt.Sprintf("checks[%d]", i), name) }

func join(field, name string) string {
	if name == "" {
		return field
	}
	return field + "." + name
}
