package envoyrls

import (
	"google.golang.org/protobuf/encoding/protowire"

	"github.com/headgate/headgate/policy"
)

// request is an envoy.service.ratelimit.v3.RateLimitRequest. Its texts are any
// bytes.
type request struct {
	domain      string
	descriptors []descriptor // MaxDescriptors at most
	sent        int          // how many descriptors there are
	hits        uint32
}

// descriptor is an envoy.extensions.common.ratelimit.v3.RateLimitDescriptor.
type descriptor struct {
	entries  policy.Descriptor // MaxEntries at most
	sent     int               // how many entries there are
	limited  bool
	limit    override
	hasHits  bool
	hits     uint64
	negative bool
}

// override is the limit that comes with a descriptor.
type override struct {
	count         uint32
	unit          int32
	hasMultiplier bool
	multiplier    uint32
}

// reset forgets the request, and keeps the room that it took.
func (r *request) reset() {
	for i := range r.descriptors {
		r.descriptors[i].reset()
	}
	*r = request{descriptors: r.descriptors[:0]}
}

func (d *descriptor) reset() {
	clear(d.entries)
	*d = descriptor{entries: d.entries[:0]}
}

// next adds a descriptor, in the room of an earlier one if there is any.
func (r *request) next() *descriptor {
	if n := len(r.descriptors); n < cap(r.descriptors) {
		r.descriptors = r.descriptors[:n+1]
	} else {
		r.descriptors = append(r.descriptors, descriptor{})
	}
	return &r.descriptors[len(r.descriptors)-1]
}

// read reads a message. The request is one that was reset.
func (r *request) read(wire []byte) error {
	f := fields{wire: wire, text: string(wire)}
	for f.next() {
		switch {
		case f.isText(1):
			r.domain = f.value
		case f.isText(2):
			// What goes beyond the bound is counted, and costs nothing else.
			if r.sent++; r.sent > MaxDescriptors {
				continue
			}
			if err := r.next().read(f.message()); err != nil {
				return err
			}
		case f.isNumber(3):
			r.hits = uint32(f.n)
		}
	}
	return f.err
}

func (d *descriptor) read(f fields) error {
	for f.next() {
		var err error
		switch {
		case f.isText(1):
			if d.sent++; d.sent > MaxEntries {
				continue
			}
			err = d.readEntry(f.message())
		case f.isText(2):
			d.limited = true
			err = d.limit.read(f.message())
		case f.isText(3):
			d.hasHits = true
			d.hits, err = readWrapped(f.message(), d.hits)
		case f.isNumber(4):
			d.negative = f.n != 0
		}
		if err != nil {
			return err
		}
	}
	return f.err
}

func (d *descriptor) readEntry(f fields) error {
	var e policy.Entry
	for f.next() {
		switch {
		case f.isText(1):
			e.Name = f.value
		case f.isText(2):
			e.Value = f.value
		}
	}
	d.entries = append(d.entries, e)
	return f.err
}

func (o *override) read(f fields) error {
	for f.next() {
		switch {
		case f.isNumber(1):
			o.count = uint32(f.n)
		case f.isNumber(2):
			o.unit = int32(f.n)
		case f.isText(3):
			o.hasMultiplier = true
			n, err := readWrapped(f.message(), uint64(o.multiplier))
			if o.multiplier = uint32(n); err != nil {
				return err
			}
		}
	}
	return f.err
}

// readWrapped reads a google.protobuf.UInt64Value or UInt32Value, which has the
// given value until it says another one.
func readWrapped(f fields, n uint64) (uint64, error) {
	for f.next() {
		if f.isNumber(1) {
			n = f.n
		}
	}
	return n, f.err
}

// fields walks through the fields of a message. Of its two forms, what is read
// is taken from the bytes, and what is kept from the text, which needs no copy
// then.
type fields struct {
	wire []byte
	text string
	err  error

	// What the field has: for a varint n, for a text or a message value, which is
	// inner in bytes.
	number protowire.Number
	kind   protowire.Type
	n      uint64
	value  string
	inner  []byte
}

// next goes to the next field. It reports false at the end, and where the message
// is none.
func (f *fields) next() bool {
	if len(f.wire) == 0 || f.err != nil {
		return false
	}
	var size int
	if f.number, f.kind, size = protowire.ConsumeTag(f.wire); size < 0 {
		f.err = protowire.ParseError(size)
		return false
	}
	f.skip(size)
	switch f.kind {
	case protowire.VarintType:
		f.n, size = protowire.ConsumeVarint(f.wire)
	case protowire.BytesType:
		f.inner, size = protowire.ConsumeBytes(f.wire)
		if size >= 0 {
			f.value = f.text[size-len(f.inner) : size]
		}
	default:
		size = protowire.ConsumeFieldValue(f.number, f.kind, f.wire)
	}
	if size < 0 {
		f.err = protowire.ParseError(size)
		return false
	}
	f.skip(size)
	return true
}

func (f *fields) skip(n int) { f.wire, f.text = f.wire[n:], f.text[n:] }

func (f *fields) isText(number protowire.Number) bool {
	return f.number == number && f.kind == protowire.BytesType
}

func (f *fields) isNumber(number protowire.Number) bool {
	return f.number == number && f.kind == protowire.VarintType
}

// message is the field as a message of its own.
func (f *fields) message() fields { return fields{wire: f.inner, text: f.value} }
