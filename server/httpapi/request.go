package httpapi

import (
	"fmt"
	"math"
	"net/http"
	"strconv"
	"strings"
	"unicode/utf8"

	"github.com/headgate/headgate"
	"github.com/headgate/headgate/policy"
)

// request is what a body says, with its defaults applied. The strings share
// memory with the text that they were read from.
type request struct {
	seen       fields
	descriptor policy.Descriptor
	named      []namedCheck
	cost       int64
	at         int64
	id         string // of a request that may be repeated
	lifetime   int64  // in milliseconds; 0 if left out

	// Of a settlement only.
	reservation string
	status      int64 // 0 if left out
}

// namedCheck is an element of "checks".
type namedCheck struct {
	seen fields
	rule string
	key  string
	cost int64
}

// fields is the set of those that were there, so that one given twice or left
// out is noticed.
type fields uint16

const (
	hasDescriptor fields = 1 << iota
	hasChecks
	hasCost
	hasAt
	hasRule
	hasKey
	hasID
	hasLifetime
	hasReservation
	hasStatus
)

// has adds f and reports whether it was there before.
func (s *fields) has(f fields) bool {
	before := *s&f != 0
	*s |= f
	return before
}

// reset empties the request and keeps its memory, but not what it points to.
func (r *request) reset() {
	clear(r.descriptor)
	clear(r.named)
	*r = request{descriptor: r.descriptor[:0], named: r.named[:0]}
}

// maxAt bounds "at" to what any language's numbers hold exactly.
const maxAt = 1 << 53

// decoder reads a body into a request. Mistakes in the syntax end it; all
// others are noted, and reading goes on.
type decoder struct {
	scanner
	req    *request
	faults *faults
	form   form
}

// form is which fields a body may have.
type form uint8

const (
	formCheck  form = iota // descriptor, checks, cost
	formTake               // and id, lifetime_ms
	formRefund             // and at
	formSettle             // reservation, cost, status
	formCancel             // reservation

	forms // the number of forms
)

// known names the fields of each form.
var known = [forms]string{
	formCheck:  "descriptor, checks and cost",
	formTake:   "descriptor, checks, cost, id and lifetime_ms",
	formRefund: "descriptor, checks, cost and at",
	formSettle: "reservation, cost and status",
	formCancel: "reservation",
}

// formOf is the form of the body of a request for op.
func formOf(op headgate.Op) form {
	switch op {
	case headgate.OpTake:
		return formTake
	case headgate.OpRefund:
		return formRefund
	}
	return formCheck
}

// settles reports whether a body is about a reservation, and nothing else.
func (f form) settles() bool { return f == formSettle || f == formCancel }

// decode reads body, the text of a request.
func decode(body string, f form, req *request, list *faults) {
	req.reset()
	d := decoder{scanner: scanner{src: body}, req: req, faults: list, form: f}
	switch {
	case body == "" && f.settles():
		list.add(http.StatusBadRequest, place{}, `the body is empty; send an object with "reservation"`)
		return
	case body == "":
		list.add(http.StatusBadRequest, place{}, `the body is empty; send an object with "descriptor" or "checks"`)
		return
	case !utf8.ValidString(body):
		list.add(http.StatusBadRequest, place{}, "the body is not UTF-8; keys of other bytes must be encoded by the caller, as base64 for instance")
		return
	case !d.object():
		list.add(http.StatusBadRequest, place{}, "the body is not JSON: %s", d.wrong)
		return
	}
	if f.settles() {
		d.checkSettlement()
	} else {
		d.check()
	}
}

// object reads the body's outermost value.
func (d *decoder) object() bool {
	if c := d.peek(); c != '{' {
		kind, ok := d.skip(0)
		if ok && d.end() {
			d.faults.add(http.StatusBadRequest, place{}, "the body must be an object, not %s", kind)
		}
		return d.wrong == ""
	}
	d.pos++
	for first := true; ; first = false {
		more, ok := d.next('}', first)
		if !ok {
			return false
		}
		if !more {
			return d.end()
		}
		name, ok := d.name()
		if !ok || !d.member(name) {
			return false
		}
	}
}

// member reads the value of one field of the body.
func (d *decoder) member(name string) bool {
	p := place{name: name}
	switch {
	case name == "cost" && d.form != formCancel:
		return d.once(&d.req.seen, hasCost, p) && d.readInteger(p, &d.req.cost)
	case name == "reservation" && d.form.settles():
		return d.once(&d.req.seen, hasReservation, p) && d.readString(p, &d.req.reservation)
	case name == "status" && d.form == formSettle:
		return d.once(&d.req.seen, hasStatus, p) && d.readInteger(p, &d.req.status)
	case d.form.settles():
	case name == "descriptor":
		return d.once(&d.req.seen, hasDescriptor, p) && d.entries()
	case name == "checks":
		return d.once(&d.req.seen, hasChecks, p) && d.list()
	case name == "at" && d.form == formRefund:
		return d.once(&d.req.seen, hasAt, p) && d.readInteger(p, &d.req.at)
	case name == "id" && d.form == formTake:
		return d.once(&d.req.seen, hasID, p) && d.readString(p, &d.req.id)
	case name == "lifetime_ms" && d.form == formTake:
		return d.once(&d.req.seen, hasLifetime, p) && d.readInteger(p, &d.req.lifetime)
	}
	return d.unknown(p, known[d.form])
}

// once notes that field f is there. A field that is there twice is a mistake,
// and its later value is read as if it were the only one.
func (d *decoder) once(seen *fields, f fields, p place) bool {
	if seen.has(f) {
		d.faults.add(http.StatusBadRequest, p, "is given twice")
	}
	return true
}

func (d *decoder) unknown(p place, known string) bool {
	fields := "the fields are"
	if !strings.Contains(known, " ") {
		fields = "the only field is"
	}
	d.faults.add(http.StatusBadRequest, p, "is not a field here; %s %s", fields, known)
	_, ok := d.skip(1)
	return ok
}

// wrongType passes over a value that is not what its field must be.
func (d *decoder) wrongType(p place, want string) bool {
	kind, ok := d.skip(1)
	if ok {
		d.faults.add(http.StatusBadRequest, p, "must be %s, not %s", want, kind)
	}
	return ok
}

func (d *decoder) readInteger(p place, to *int64) bool {
	if c := d.peek(); c != '-' && (c < '0' || c > '9') {
		return d.wrongType(p, "a whole number")
	}
	n, ok := d.number()
	if ok && !n.whole {
		d.faults.add(http.StatusBadRequest, p, "must be a whole number, written without a fraction or an exponent")
	}
	*to = n.value
	return ok
}

func (d *decoder) readString(p place, to *string) bool {
	if d.peek() != '"' {
		return d.wrongType(p, "a string")
	}
	var ok bool
	*to, ok = d.text()
	return ok
}

// entries reads the descriptor.
func (d *decoder) entries() bool {
	if d.peek() != '{' {
		return d.wrongType(place{name: "descriptor"}, "an object of strings")
	}
	d.pos++
	d.req.descriptor = d.req.descriptor[:0]
	for n := 0; ; n++ {
		more, ok := d.next('}', n == 0)
		if !ok {
			return false
		}
		if !more {
			if n > policy.MaxEntries {
				d.faults.add(http.StatusUnprocessableEntity, place{name: "descriptor"}, "has %d entries, may have %d", n, policy.MaxEntries)
			}
			return true
		}
		var e policy.Entry
		if e.Name, ok = d.name(); !ok {
			return false
		}
		if !d.readString(place{in: "descriptor", name: e.Name}, &e.Value) {
			return false
		}
		if n < policy.MaxEntries {
			d.entry(e)
		}
	}
}

// entry adds an entry to the descriptor, if it may be there.
func (d *decoder) entry(e policy.Entry) {
	p := place{in: "descriptor", name: e.Name}
	if len(e.Name) == 0 || len(e.Name) > policy.MaxName {
		d.faults.add(http.StatusUnprocessableEntity, p, "the name has %d bytes, must have 1 to %d", len(e.Name), policy.MaxName)
	}
	if len(e.Value) > policy.MaxValue {
		d.faults.add(http.StatusUnprocessableEntity, p, "has %d bytes, may have %d", len(e.Value), policy.MaxValue)
	}
	for i := range d.req.descriptor {
		if d.req.descriptor[i].Name == e.Name {
			d.faults.add(http.StatusBadRequest, p, "is given twice")
			break
		}
	}
	d.req.descriptor = append(d.req.descriptor, e)
}

// list reads the checks.
func (d *decoder) list() bool {
	if d.peek() != '[' {
		return d.wrongType(place{name: "checks"}, "an array of objects")
	}
	d.pos++
	d.req.named = d.req.named[:0]
	for n := 0; ; n++ {
		more, ok := d.next(']', n == 0)
		if !ok {
			return false
		}
		if !more {
			if n == 0 || n > headgate.MaxChecks {
				d.faults.add(http.StatusUnprocessableEntity, place{name: "checks"}, "has %d checks, must have 1 to %d", n, headgate.MaxChecks)
			}
			return true
		}
		if n >= headgate.MaxChecks {
			_, ok = d.skip(2)
		} else {
			ok = d.namedCheck(n)
		}
		if !ok {
			return false
		}
	}
}

// namedCheck reads the n-th of the checks.
func (d *decoder) namedCheck(n int) bool {
	if d.peek() != '{' {
		return d.wrongType(place{in: "checks", index: n + 1}, "an object")
	}
	d.pos++
	var c namedCheck
	for first := true; ; first = false {
		more, ok := d.next('}', first)
		if !ok {
			return false
		}
		if !more {
			d.req.named = append(d.req.named, c)
			return true
		}
		name, ok := d.name()
		if !ok {
			return false
		}
		p := place{in: "checks", index: n + 1, name: name}
		switch name {
		case "rule":
			ok = d.once(&c.seen, hasRule, p) && d.readString(p, &c.rule)
		case "key":
			ok = d.once(&c.seen, hasKey, p) && d.readString(p, &c.key)
		case "cost":
			ok = d.once(&c.seen, hasCost, p) && d.readInteger(p, &c.cost)
		default:
			ok = d.unknown(p, "rule, key and cost")
		}
		if !ok {
			return false
		}
	}
}

// check finds what is wrong with the request as a whole and with its numbers,
// and applies the defaults. It says nothing of a request whose fields were
// wrong already: half of what it would find, followed from that.
func (d *decoder) check() {
	if len(*d.faults) != 0 && d.faults.status() == http.StatusBadRequest {
		return
	}
	r := d.req
	bad := func(p place, format string, args ...any) {
		d.faults.add(http.StatusUnprocessableEntity, p, format, args...)
	}
	switch r.seen & (hasDescriptor | hasChecks) {
	case 0:
		bad(place{name: "descriptor"}, `is missing; send "descriptor" or "checks"`)
	case hasDescriptor | hasChecks:
		bad(place{name: "checks"}, `cannot be with "descriptor"; send one of them`)
	}
	switch {
	case r.seen&hasCost == 0:
		r.cost = 1
	case r.seen&hasChecks != 0:
		bad(place{name: "cost"}, "goes with a descriptor; here each of the checks has its own")
	default:
		d.checkCost(place{name: "cost"}, r.cost)
	}
	if r.seen&hasAt != 0 && (r.at < 1 || r.at > maxAt) {
		bad(place{name: "at"}, "is %s, must be 1 to %d: microseconds since 1970, as the answer to the check gave them", said(r.at), int64(maxAt))
	}
	d.checkID(bad)
	for i := range r.named {
		c := &r.named[i]
		p := place{in: "checks", index: i + 1}
		if c.seen&hasRule == 0 {
			p.name = "rule"
			bad(p, "is missing")
		}
		if c.seen&hasKey == 0 {
			p.name = "key"
			bad(p, `is missing; a rule with one counter for all has the key ""`)
		}
		if c.seen&hasCost == 0 {
			c.cost = 1
		} else {
			p.name = "cost"
			d.checkCost(p, c.cost)
		}
	}
}

func (d *decoder) checkID(bad func(p place, format string, args ...any)) {
	r := d.req
	if n := len(r.id); r.seen&hasID != 0 && (n == 0 || n > headgate.MaxID) {
		bad(place{name: "id"}, "has %d bytes, must have 1 to %d", n, headgate.MaxID)
	}
	if most := headgate.MaxTerm.Milliseconds(); r.seen&hasLifetime != 0 && (r.lifetime < 1 || r.lifetime > most) {
		bad(place{name: "lifetime_ms"}, "is %s, must be 1 to %d", said(r.lifetime), most)
	}
}

// checkSettlement is check for the forms that are about a reservation.
func (d *decoder) checkSettlement() {
	if len(*d.faults) != 0 && d.faults.status() == http.StatusBadRequest {
		return
	}
	r := d.req
	bad := func(name, format string, args ...any) {
		d.faults.add(http.StatusUnprocessableEntity, place{name: name}, format, args...)
	}
	switch n := len(r.reservation); {
	case r.seen&hasReservation == 0:
		bad("reservation", "is missing; send the id that the answer to /v1/reserve gave")
	case n == 0 || n > 2*headgate.MaxID:
		bad("reservation", "has %d bytes, which no id of a reservation has", n)
	}
	if r.seen&hasCost != 0 && r.cost != 0 && !validCost(r.cost) {
		bad("cost", "is %s, must be 0 to %d", said(r.cost), int64(headgate.MaxCount))
	}
	if r.seen&hasStatus != 0 && (r.status < 100 || r.status > 599) {
		bad("status", "is %s, must be 100 to 599", said(r.status))
	}
	if d.form == formSettle && r.seen&(hasCost|hasStatus) == 0 {
		bad("cost", `is missing; send the real cost, or the "status" that the request ended with, or both`)
	}
}

func (d *decoder) checkCost(p place, cost int64) {
	if !validCost(cost) {
		d.faults.add(http.StatusUnprocessableEntity, p, "is %s, must be 1 to %d", said(cost), int64(headgate.MaxCount))
	}
}

func validCost(cost int64) bool { return cost >= 1 && cost <= headgate.MaxCount }

// said is a number for a message. Those that the scanner holds at the bounds of
// an int64 were written otherwise.
func said(n int64) string {
	switch n {
	case math.MaxInt64:
		return "too large"
	case math.MinInt64:
		return "too small"
	}
	return strconv.FormatInt(n, 10)
}

// place is where in a body a value stands. It becomes text only for a message.
type place struct {
	in    string // "descriptor", "checks", or "" for the body itself
	index int    // in "checks", from 1; 0 elsewhere
	name  string
}

// maxPlace bounds what of a name that the caller made up is said back.
const maxPlace = 64

// String is such as "cost", "descriptor.ip" or "checks[0].key", and "body" for
// the body as a whole.
func (p place) String() string {
	var b strings.Builder
	b.WriteString(p.in)
	if p.index > 0 {
		b.WriteString("[" + strconv.Itoa(p.index-1) + "]")
	}
	if p.name != "" {
		if b.Len() > 0 {
			b.WriteByte('.')
		}
		if name := p.name; len(name) <= maxPlace {
			b.WriteString(name)
		} else {
			b.WriteString(strings.ToValidUTF8(name[:maxPlace], "") + "…")
		}
	}
	if b.Len() == 0 {
		return "body"
	}
	return b.String()
}

// fault is one mistake in a request.
type fault struct {
	status int // what the answer is if this is the gravest
	Field  string
	Detail string
}

// faults are the mistakes of one request.
type faults []fault

// maxFaults bounds what one hostile body can make the answer hold.
const maxFaults = 32

func (f *faults) add(status int, p place, format string, args ...any) {
	if len(*f) < maxFaults {
		*f = append(*f, fault{status, p.String(), fmt.Sprintf(format, args...)})
	}
}

// status is that of the gravest: a body that is not understood (400) comes
// before values out of range (422), and those before a rule that is not there
// (404), which may well be there once the rest is right.
func (f faults) status() int {
	worst := 0
	for i := range f {
		if rank(f[i].status) > rank(worst) {
			worst = f[i].status
		}
	}
	return worst
}

func rank(status int) int {
	switch status {
	case http.StatusBadRequest:
		return 3
	case http.StatusUnprocessableEntity:
		return 2
	case http.StatusNotFound:
		return 1
	}
	return 0
}
