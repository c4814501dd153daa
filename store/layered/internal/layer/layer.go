// Package layer has what the layers around a store have in common: how a counter is named, what
// decisions say about a request, where a request's parts are kept, how rules are derived from rules,
// and how calls are made for which no request waits.
package layer

import (
	"errors"
	"strings"
	"sync"
	"time"

	"github.com/headgate/headgate"
)

// Counter names a counter of the store: a rule, in whichever version, and a key.
type Counter struct {
	Rule uint64 // [headgate.Rule.ID]
	Key  string
}

// CounterOf names the counter of a check.
func CounterOf(c *headgate.Check) Counter { return Counter{c.Rule.ID(), c.Key} }

// Own returns the counter with a copy of its key. The caller's key may be part of the body of a
// request, which would otherwise stay in memory with it.
func (c Counter) Own() Counter { return Counter{c.Rule, strings.Clone(c.Key)} }

// Hash is the 64-bit FNV-1a hash of the rule's name, a space and the key, the same in every
// process.
func (c Counter) Hash() uint64 {
	const prime = 1099511628211
	h := (c.Rule ^ ' ') * prime // The ID is the hash of the name.
	for i := range len(c.Key) {
		h = (h ^ uint64(c.Key[i])) * prime
	}
	return h
}

// Charged returns which checks a take has charged, a bit for each, and whether it has
// admitted the request.
func Charged(decisions []headgate.Decision) (checks uint64, admitted bool) {
	refused := uint64(0)
	admitted = true
	for i := range decisions {
		d := &decisions[i]
		checks |= 1 << d.Check
		if !d.Allowed {
			refused |= 1 << d.Check
			admitted = admitted && d.Shadow
		}
	}
	if !admitted {
		return 0, false
	}
	return checks &^ refused, true
}

// Of returns the leading decisions, which are about one check, and the others.
func Of(check int, decisions []headgate.Decision) (own, others []headgate.Decision) {
	n := 0
	for n < len(decisions) && decisions[n].Check == check {
		n++
	}
	return decisions[:n], decisions[n:]
}

// Scratch is memory for one request that later requests reuse.
type Scratch[P any] struct {
	Parts     []P                 // what the layer notes of checks
	Checks    []headgate.Check    // what a store is asked
	Decisions []headgate.Decision // what that store has decided
	Local     []headgate.Decision // what was decided without it
}

// Scratches keeps memory for later requests.
type Scratches[P any] struct{ pool sync.Pool }

// Get returns empty memory.
func (p *Scratches[P]) Get() *Scratch[P] {
	if s, ok := p.pool.Get().(*Scratch[P]); ok {
		return s
	}
	return new(Scratch[P])
}

// Put keeps the memory, without the request's keys, which it must not keep alive.
func (p *Scratches[P]) Put(s *Scratch[P]) {
	clear(s.Checks)
	clear(s.Parts)
	s.Parts, s.Checks, s.Decisions, s.Local = s.Parts[:0], s.Checks[:0], s.Decisions[:0], s.Local[:0]
	p.pool.Put(s)
}

// Penalizes reports whether a rule has a penalty, which has to count each denial.
func Penalizes(r *headgate.Rule) bool {
	limits := r.Limits()
	for i := range limits {
		if limits[i].Algorithm == headgate.Penalty {
			return true
		}
	}
	return false
}

// ErrNotAsked is in the error of a request that was not sent to the store. So the store has charged
// nothing for it.
var ErrNotAsked = errors.New("the store is not asked for now")

// CallWithin bounds each call for which no request waits, in case the store has a longer deadline
// or none.
const CallWithin = time.Second
