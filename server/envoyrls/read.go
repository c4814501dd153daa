package envoyrls

import (
	"google.golang.org/protobuf/encoding/protowire"

	"github.com/headgate/headgate/policy"
	"github.com/headgate/headgate/server/wire"
)

// request is an envoy.service.ratelimit.v3.RateLimitRequest. Its texts may be any bytes, not only
// UTF-8.
type request struct {
	domain      string
	descriptors []descriptor // at most MaxDescriptors
	sent        int          // the number of descriptors in the message
	hits        uint32
}

// descriptor is an envoy.extensions.common.ratelimit.v3.RateLimitDescriptor.
type descriptor struct {
	entries  policy.Descriptor // at most MaxEntries
	sent     int               // the number of entries in the message
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

// reset clears the request, and keeps its memory.
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

// next adds a descriptor, and reuses the memory of an earlier one if there is any.
func (r *request) next() *descriptor {
	if n := len(r.descriptors); n < cap(r.descriptors) {
		r.descriptors = r.descriptors[:n+1]
	} else {
		r.descriptors = append(r.descriptors, descriptor{})
	}
	return &r.descriptors[len(r.descriptors)-1]
}

// ReadWire implements [wire.Message]. The request must be empty or have been reset.
func (r *request) ReadWire(message []byte) error {
	in := wire.Read(string(message))
	for {
		field, kind, more := in.Field()
		switch {
		case !more:
			return in.Err()
		case field == 1 && kind == protowire.BytesType:
			r.domain = in.Bytes()
		case field == 2 && kind == protowire.BytesType:
			inner := in.Message()
			// Descriptors beyond the bound are only counted.
			if r.sent++; r.sent <= MaxDescriptors {
				r.next().read(&inner)
				in.Leave(&inner)
			}
		case field == 3 && kind == protowire.VarintType:
			r.hits = uint32(in.Varint())
		default:
			in.Skip(field, kind)
		}
	}
}

func (d *descriptor) read(in *wire.Reader) {
	for {
		field, kind, more := in.Field()
		switch {
		case !more:
			return
		case field == 1 && kind == protowire.BytesType:
			inner := in.Message()
			if d.sent++; d.sent <= MaxEntries {
				d.entries = append(d.entries, readEntry(&inner))
				in.Leave(&inner)
			}
		case field == 2 && kind == protowire.BytesType:
			d.limited = true
			inner := in.Message()
			d.limit.read(&inner)
			in.Leave(&inner)
		case field == 3 && kind == protowire.BytesType:
			d.hasHits = true
			inner := in.Message()
			d.hits = readWrapped(&inner, d.hits)
			in.Leave(&inner)
		case field == 4 && kind == protowire.VarintType:
			d.negative = in.Varint() != 0
		default:
			in.Skip(field, kind)
		}
	}
}

func readEntry(in *wire.Reader) (e policy.Entry) {
	for {
		field, kind, more := in.Field()
		switch {
		case !more:
			return e
		case field == 1 && kind == protowire.BytesType:
			e.Name = in.Bytes()
		case field == 2 && kind == protowire.BytesType:
			e.Value = in.Bytes()
		default:
			in.Skip(field, kind)
		}
	}
}

func (o *override) read(in *wire.Reader) {
	for {
		field, kind, more := in.Field()
		switch {
		case !more:
			return
		case field == 1 && kind == protowire.VarintType:
			o.count = uint32(in.Varint())
		case field == 2 && kind == protowire.VarintType:
			o.unit = int32(in.Varint())
		case field == 3 && kind == protowire.BytesType:
			o.hasMultiplier = true
			inner := in.Message()
			o.multiplier = uint32(readWrapped(&inner, uint64(o.multiplier)))
			in.Leave(&inner)
		default:
			in.Skip(field, kind)
		}
	}
}

// readWrapped reads a google.protobuf.UInt64Value or UInt32Value. It returns n if the message has
// no value.
func readWrapped(in *wire.Reader, n uint64) uint64 {
	for {
		field, kind, more := in.Field()
		switch {
		case !more:
			return n
		case field == 1 && kind == protowire.VarintType:
			n = in.Varint()
		default:
			in.Skip(field, kind)
		}
	}
}
