package httpapi

import (
	"strings"
	"unicode/utf8"

	"github.com/headgate/headgate"
	"github.com/headgate/headgate/policy"
	"github.com/headgate/headgate/policy/models"
	"github.com/headgate/headgate/server/decide"
)

// message is the content of a body. Its strings share memory with the text of the body.
type message struct {
	decide.Request
	settlement decide.Settlement
	usage      models.Usage
	permit     decide.PermitCall
}

// reset clears the message. It keeps the memory of its slices.
func (m *message) reset() {
	m.Request.Reset()
	m.settlement, m.usage = decide.Settlement{}, models.Usage{}
	m.permit = decide.PermitCall{}
}

// decoder parses a body into a message. A mistake in the syntax ends it. All other mistakes are
// recorded, and decoding goes on.
type decoder struct {
	scanner
	*message
	form form
}

// form says which fields a body may have.
type form uint8

const (
	formCheck  form = iota // descriptor, checks, cost, usage
	formTake               // and id, lifetime_ms
	formRefund             // and at
	formSettle             // reservation, cost, usage, status
	formCancel             // reservation

	// All of these have rule, key and holder.
	formAcquire // and cost, ttl_ms, wait_ms, keep_ms
	formRenew   // and epoch, ttl_ms
	formRelease // and epoch
	formRevoke

	forms // the number of forms
)

// known names the fields of each form.
var known = [forms]string{
	formCheck:  "descriptor, checks, cost and usage",
	formTake:   "descriptor, checks, cost, usage, id and lifetime_ms",
	formRefund: "descriptor, checks, cost, usage and at",
	formSettle: "reservation, cost, usage and status",
	formCancel: "reservation",

	formAcquire: "rule, key, holder, cost, ttl_ms, wait_ms and keep_ms",
	formRenew:   "rule, key, holder, epoch and ttl_ms",
	formRelease: "rule, key, holder and epoch",
	formRevoke:  "rule, key and holder",
}

// formOf returns the form of the body of a request for op.
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

// permits reports whether a body is about a permit, and nothing else.
func (f form) permits() bool { return f >= formAcquire && f <= formRevoke }

// decode parses body into m. All mistakes become faults of m.
func decode(body string, f form, m *message) {
	d := decoder{scanner: scanner{src: body}, message: m, form: f}
	switch {
	case body == "" && f.settles():
		m.Faults.Add(decide.Malformed, decide.Place{}, `the body is empty; send an object with "reservation"`)
		return
	case body == "" && f.permits():
		m.Faults.Add(decide.Malformed, decide.Place{}, `the body is empty; send an object with "rule", "key" and "holder"`)
		return
	case body == "":
		m.Faults.Add(decide.Malformed, decide.Place{}, `the body is empty; send an object with "descriptor" or "checks"`)
		return
	case !utf8.ValidString(body):
		m.Faults.Add(decide.Malformed, decide.Place{}, "the body is not UTF-8; keys of other bytes must be encoded by the caller, as base64 for instance")
		return
	case !d.object():
		m.Faults.Add(decide.Malformed, decide.Place{}, "the body is not JSON: %s", d.wrong)
	}
}

// object reads the outermost value of the body.
func (d *decoder) object() bool {
	if c := d.peek(); c != '{' {
		kind, ok := d.skip(0)
		if ok && d.end() {
			d.Faults.Add(decide.Malformed, decide.Place{}, "the body must be an object, not %s", kind)
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
	p, s := decide.Place{Name: name}, &d.settlement
	switch {
	case d.form.permits():
		return d.permitMember(name, p)
	case name == "cost" && d.form == formSettle:
		return d.once(&s.Given, decide.GivenCost, p) && d.readInteger(p, &s.Cost)
	case name == "usage" && d.form == formSettle:
		return d.once(&s.Given, decide.GivenUsage, p) && d.readUsage(&s.Usage)
	case name == "reservation" && d.form.settles():
		return d.once(&s.Given, decide.GivenReservation, p) && d.readString(p, &s.Reservation)
	case name == "status" && d.form == formSettle:
		return d.once(&s.Given, decide.GivenStatus, p) && d.readInteger(p, &s.Status)
	case d.form.settles():
	case name == "cost":
		return d.once(&d.Given, decide.GivenCost, p) && d.readInteger(p, &d.Cost)
	case name == "usage":
		d.Usage = &d.usage
		return d.once(&d.Given, decide.GivenUsage, p) && d.readUsage(&d.usage)
	case name == "descriptor":
		return d.once(&d.Given, decide.GivenDescriptor, p) && d.entries()
	case name == "checks":
		return d.once(&d.Given, decide.GivenChecks, p) && d.list()
	case name == "at" && d.form == formRefund:
		return d.once(&d.Given, decide.GivenAt, p) && d.readInteger(p, &d.At)
	case name == "id" && d.form == formTake:
		return d.once(&d.Given, decide.GivenID, p) && d.readString(p, &d.ID)
	case name == "lifetime_ms" && d.form == formTake:
		return d.once(&d.Given, decide.GivenLifetime, p) && d.readInteger(p, &d.LifetimeMS)
	}
	return d.unknown(p, known[d.form])
}

// permitMember reads the value of one field of a body about a permit.
func (d *decoder) permitMember(name string, p decide.Place) bool {
	c := &d.permit
	switch {
	case name == "rule":
		return d.once(&c.Given, decide.GivenRule, p) && d.readString(p, &c.Rule)
	case name == "key":
		return d.once(&c.Given, decide.GivenKey, p) && d.readString(p, &c.Key)
	case name == "holder":
		return d.once(&c.Given, decide.GivenHolder, p) && d.readString(p, &c.Holder)
	case name == "cost" && d.form == formAcquire:
		return d.once(&c.Given, decide.GivenCost, p) && d.readInteger(p, &c.Cost)
	case name == "ttl_ms" && (d.form == formAcquire || d.form == formRenew):
		return d.once(&c.Given, decide.GivenTTL, p) && d.readInteger(p, &c.TTLMS)
	case name == "wait_ms" && d.form == formAcquire:
		return d.once(&c.Given, decide.GivenWait, p) && d.readInteger(p, &c.WaitMS)
	case name == "keep_ms" && d.form == formAcquire:
		return d.once(&c.Given, decide.GivenKeep, p) && d.readInteger(p, &c.KeepMS)
	case name == "epoch" && (d.form == formRenew || d.form == formRelease):
		return d.once(&c.Given, decide.GivenEpoch, p) && d.readInteger(p, &c.Epoch)
	}
	return d.unknown(p, known[d.form])
}

// once records that field f was given. A field that is given twice is a mistake; its later value is
// then parsed as usual.
func (d *decoder) once(seen *decide.Given, f decide.Given, p decide.Place) bool {
	if *seen&f != 0 {
		d.Faults.Add(decide.Malformed, p, "is given twice")
	}
	*seen |= f
	return true
}

func (d *decoder) unknown(p decide.Place, known string) bool {
	fields := "the fields are"
	if !strings.Contains(known, " ") {
		fields = "the only field is"
	}
	d.Faults.Add(decide.Malformed, p, "is not a field here; %s %s", fields, known)
	_, ok := d.skip(1)
	return ok
}

// wrongType skips a value of the wrong type, and adds the fault.
func (d *decoder) wrongType(p decide.Place, want string) bool {
	kind, ok := d.skip(1)
	if ok {
		d.Faults.Add(decide.Malformed, p, "must be %s, not %s", want, kind)
	}
	return ok
}

func (d *decoder) readInteger(p decide.Place, to *int64) bool {
	if c := d.peek(); c != '-' && (c < '0' || c > '9') {
		return d.wrongType(p, "a whole number")
	}
	n, ok := d.number()
	if ok && !n.whole {
		d.Faults.Add(decide.Malformed, p, "must be a whole number, written without a fraction or an exponent")
	}
	*to = n.value
	return ok
}

func (d *decoder) readString(p decide.Place, to *string) bool {
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
		return d.wrongType(decide.Place{Name: "descriptor"}, "an object of strings")
	}
	d.pos++
	d.Descriptor = d.Descriptor[:0]
	for first := true; ; first = false {
		more, ok := d.next('}', first)
		if !ok || !more {
			return ok
		}
		var e policy.Entry
		if e.Name, ok = d.name(); !ok {
			return false
		}
		p := decide.Place{List: "descriptor", Name: e.Name}
		if !d.readString(p, &e.Value) {
			return false
		}
		if d.Entry(e.Name) != nil {
			d.Faults.Add(decide.Malformed, p, "is given twice")
		}
		d.AddEntry(e)
	}
}

// readUsage reads what a call to a language model uses.
func (d *decoder) readUsage(to *models.Usage) bool {
	if d.peek() != '{' {
		return d.wrongType(decide.Place{Name: "usage"}, "an object")
	}
	d.pos++
	var seen decide.Given // of these fields
	for first := true; ; first = false {
		more, ok := d.next('}', first)
		if !ok || !more {
			return ok
		}
		name, ok := d.name()
		if !ok {
			return false
		}
		p := decide.Place{List: "usage", Name: name}
		switch name {
		case "model":
			ok = d.once(&seen, 1, p) && d.readString(p, &to.Model)
		case "input_tokens":
			ok = d.once(&seen, 2, p) && d.readInteger(p, &to.Input)
		case "cached_input_tokens":
			ok = d.once(&seen, 4, p) && d.readInteger(p, &to.CachedInput)
		case "cache_write_tokens":
			ok = d.once(&seen, 8, p) && d.readInteger(p, &to.CacheWrite)
		case "output_tokens":
			ok = d.once(&seen, 16, p) && d.readInteger(p, &to.Output)
		default:
			ok = d.unknown(p, "model, input_tokens, cached_input_tokens, cache_write_tokens and output_tokens")
		}
		if !ok {
			return false
		}
	}
}

// list reads the checks.
func (d *decoder) list() bool {
	if d.peek() != '[' {
		return d.wrongType(decide.Place{Name: "checks"}, "an array of objects")
	}
	d.pos++
	d.Named = d.Named[:0]
	for n := 1; ; n++ {
		more, ok := d.next(']', n == 1)
		if !ok || !more {
			return ok
		}
		if n > headgate.MaxChecks {
			d.Beyond++
			_, ok = d.skip(2)
		} else {
			ok = d.namedCheck(n)
		}
		if !ok {
			return false
		}
	}
}

// namedCheck reads the n-th check, counted from 1.
func (d *decoder) namedCheck(n int) bool {
	if d.peek() != '{' {
		return d.wrongType(decide.Place{List: "checks", Index: n}, "an object")
	}
	d.pos++
	var c decide.Named
	for first := true; ; first = false {
		more, ok := d.next('}', first)
		if !ok {
			return false
		}
		if !more {
			d.AddCheck(c)
			return true
		}
		name, ok := d.name()
		if !ok {
			return false
		}
		p := decide.Place{List: "checks", Index: n, Name: name}
		switch name {
		case "rule":
			ok = d.once(&c.Given, decide.GivenRule, p) && d.readString(p, &c.Rule)
		case "key":
			ok = d.once(&c.Given, decide.GivenKey, p) && d.readString(p, &c.Key)
		case "cost":
			ok = d.once(&c.Given, decide.GivenCost, p) && d.readInteger(p, &c.Cost)
		default:
			ok = d.unknown(p, "rule, key and cost")
		}
		if !ok {
			return false
		}
	}
}
