package share

import (
	"slices"
	"time"

	"github.com/headgate/headgate"
	"github.com/headgate/headgate/internal/muldiv"
)

// Loan is what a holder asks for that keeps its counter when its grant changes, such as a region
// whose store goes on counting under the same key. Its grant is a number of whole units of the
// limit's capacity: of a window's count, or of a bucket's burst, with the same part of its rate.
type Loan struct {
	ID string
	// Want is how many units the holder could use.
	Want int64
	// Used is how many units beyond its own were in use in the holder's counter at now, or since.
	Used int64
	// Lasts is how long the grant may be used from now on.
	Lasts time.Duration
	// Tail is how long a unit stays in use: a window's period, or the time in which a bucket fills.
	Tail time.Duration
}

// Lend returns how many of total units a holder may use after it has asked. A pool is used with
// Lend or with [Pool.Ask], not with both.
//
// The bound: the units that all counters hold together are at most total, at every moment. A
// holder's counter holds at most the largest of these, and their sum over the holders is at most
// total whenever one is granted more:
//
//   - its grant,
//   - its grants before, until they have ended, and for a Tail longer if the holder is silent,
//   - what it said was in use when they had ended, for a Tail.
//
// A window admits what its counter holds, and a bucket whose counters drain at most at the limit's
// rate holds no less than one counter for all would. So nothing is lost between two holders, and
// units that were lent and not used can be lent again as soon as that is known.
func (p *Pool) Lend(total int64, a Loan, now int64) int64 {
	tail := max(1, a.Tail.Microseconds())
	others := int64(0)
	for i := range p.Holders {
		h := &p.Holders[i]
		h.settle(now)
		if h.ID != a.ID {
			others += h.held(tail)
		}
	}
	h := p.holder(a.ID)
	if h == nil {
		return 0
	}
	// What it says is in use takes the place of the grants that have ended.
	h.Old = slices.DeleteFunc(h.Old, func(g Grant) bool { return g.Until <= now })
	if a.Used > 0 {
		h.Old = append(h.Old, Grant{Burst: a.Used, Until: now, Tail: tail})
	}
	// Parts of a unit, so that nothing is lost by rounding, unless there are so many units that parts of
	// them are nothing.
	fine := int64(1 << 10)
	if total >= 1<<40 {
		fine = 1
	}
	want := min(max(a.Want, 0), total)
	h.Demand = want * fine
	units := int64(0)
	if h.Demand > 0 {
		all := total * fine * reserve / (reserve - 1) // Nothing is kept for those that come: they have units of their own.
		units = (p.fair(Limit{Rate: all}, h) + fine - 1) / fine
		units = min(units, want+want/headroom+1) // More could not be taken back for a lease.
	}
	same := h.Tail == tail // Otherwise a unit is another part of the rate.
	if same && units < h.Burst && units >= h.Burst-max(1, h.Burst/headroom) {
		units = h.Burst // A little less is not worth the wait for it.
	}
	units = max(0, min(units, total-others))
	if units < h.Burst || h.Burst > 0 && !same {
		h.Old = append(h.Old, h.Grant)
	}
	since := h.Since
	if h.Burst == 0 {
		since = now
	}
	h.Grant = Grant{Burst: units, Until: now + a.Lasts.Microseconds(), Tail: tail, Since: since}
	p.sweep()
	return units
}

// sweep drops holders that have and want nothing.
func (p *Pool) sweep() {
	p.Holders = slices.DeleteFunc(p.Holders, func(h Holder) bool { return h.held(0) == 0 && h.Demand == 0 })
}

// Empty reports whether nothing is lent by now, nor in use any more.
func (p *Pool) Empty(now int64) bool {
	for i := range p.Holders {
		p.Holders[i].settle(now)
	}
	p.sweep()
	return len(p.Holders) == 0
}

// Lent returns how many units are lent to a holder at now. It is done if none are, and none that were
// may still be used: what is in use is known then.
func (p *Pool) Lent(id string, now int64) (units int64, done bool) {
	i := p.find(id)
	if i < 0 {
		return 0, true
	}
	h := &p.Holders[i]
	if now < h.Until {
		units = h.Burst
	}
	return units, units == 0 && !slices.ContainsFunc(h.Old, func(g Grant) bool { return now < g.Until })
}

// Pass lets time pass for a holder's grants, in microseconds.
func (p *Pool) Pass(id string, elapsed int64) {
	if i := p.find(id); i >= 0 {
		h := &p.Holders[i]
		h.Until -= elapsed
		h.Since -= elapsed
		for j := range h.Old {
			h.Old[j].Until -= elapsed
		}
	}
}

// settle turns a grant that has ended into one of before, and drops those of which nothing can be
// in use.
func (h *Holder) settle(now int64) {
	if h.Until <= now {
		if h.Burst > 0 {
			h.Old = append(h.Old, h.Grant)
		}
		h.Grant, h.Demand = Grant{}, 0
	}
	h.Old = slices.DeleteFunc(h.Old, func(g Grant) bool { return g.Until+g.Tail <= now })
}

// held is the most that the holder's counter may hold, in units that stay in use for tail. A grant whose
// units stay for less, because the limit had another burst, has more of the rate.
func (h *Holder) held(tail int64) int64 {
	most := h.Burst
	for _, g := range append(h.Old, h.Grant) {
		most = max(most, g.Burst)
		if g.Tail > 0 && g.Tail < tail {
			most = max(most, muldiv.Up(g.Burst, tail, g.Tail, headgate.MaxCount))
		}
	}
	return most
}
