package replay

import (
	"hash/maphash"
	"slices"
	"strings"
	"time"

	"github.com/headgate/headgate"
	"github.com/headgate/headgate/policy"
)

// binding is what a policy says about all requests with one descriptor.
type binding struct {
	descriptor policy.Descriptor
	known      bool // the place is in use
	refused    bool // no door could decide such a request
	awaits     bool // what is charged depends on the status of the response
	checks     []headgate.Check
	denied     *policy.ListEntry
	// client has the counts of the client called name, the first with this descriptor; nil if it is
	// not known yet. Mostly it is the only one.
	client *client
	name   string
}

// bindings remembers the bindings of recent descriptors, because matching a descriptor against the
// rules costs about as much as deciding the checks. A descriptor has one place, and the newest one
// keeps it.
type bindings struct {
	set    *policy.Set
	seed   maphash.Seed
	places []binding
	other  binding     // of the last descriptor that is too long to be remembered
	ends   []time.Time // when overrides and list entries end that have not ended yet
}

// The bounds of what is remembered: some megabytes, whatever clients send.
const (
	maxBindings     = 1 << 13 // a power of two
	maxBindingBytes = 512
)

func newBindings(set *policy.Set) *bindings {
	b := &bindings{set: set, seed: maphash.MakeSeed(), places: make([]binding, maxBindings)}
	end := func(until time.Time) {
		if !until.IsZero() {
			b.ends = append(b.ends, until)
		}
	}
	for _, list := range [][]policy.ListEntry{set.Denied(), set.Allowed()} {
		for i := range list {
			end(list[i].Until)
		}
	}
	for i := range set.Rules() {
		for _, o := range set.Rules()[i].Overrides {
			end(o.Until)
		}
	}
	slices.SortFunc(b.ends, time.Time.Compare)
	return b
}

// of returns the binding of a descriptor. It is valid until the next call.
func (b *bindings) of(d policy.Descriptor) *binding {
	// Between two ends, the binding depends on the descriptor alone.
	for len(b.ends) > 0 && b.set.Ended(b.ends[0]) {
		b.ends = b.ends[1:]
		clear(b.places)
	}
	hash, size := uint64(0), 0
	for i := range d {
		hash = hash*0x9e3779b97f4a7c15 ^ maphash.String(b.seed, d[i].Value)
		size += len(d[i].Value)
	}
	place := &b.other
	if size <= maxBindingBytes {
		place = &b.places[hash%maxBindings]
		if place.known && slices.Equal(place.descriptor, d) {
			return place
		}
	}
	b.fill(place, d)
	return place
}

// fill makes the binding of a descriptor.
func (b *bindings) fill(p *binding, d policy.Descriptor) {
	// Keys may share memory with the values, so the values must be as lasting as the binding.
	p.descriptor = append(p.descriptor[:0], d...)
	for i := range p.descriptor {
		p.descriptor[i].Value = strings.Clone(p.descriptor[i].Value)
	}
	found, err := b.set.Decide(p.descriptor, 1, p.checks[:0])
	p.checks, p.denied, p.refused = found.Checks, found.Denied, err != nil
	p.known, p.awaits = true, b.set.Awaits(p.checks)
	p.client, p.name = nil, ""
}
