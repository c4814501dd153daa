package regions

import (
	"slices"
	"time"

	"github.com/headgate/headgate"
	"github.com/headgate/headgate/algorithm"
	"github.com/headgate/headgate/internal/muldiv"
	"github.com/headgate/headgate/store/layered/internal/layer"
)

// fine is how many times longer the period of a bucket's share is, with as many times the units, so
// that a part of its rate is a whole number of them. Above fineCount there are enough units without.
const (
	fine      = 1000
	fineCount = 1_000_000
)

// division says how many units of a limit are always a region's own.
type division struct {
	Percent int `json:"p"`
	Regions int `json:"r"`
	// Place is the region's number among all.
	Place int `json:"n,omitempty"`
	// Over is how long ago all regions had begun with other settings, at least.
	Over time.Duration `json:"o,omitempty"`
}

// all returns the units that are the regions' own together. A limit that has a unit for each region
// leaves it one, because otherwise the first request of every key would be denied. From there on, a
// limit that is larger by a unit has at most one more: so what is left to lend is never less, and what
// was lent by the smaller limit may be used beside the own units of the larger one.
func (d division) all(l *headgate.Limit) int64 {
	n, regions := muldiv.Down(l.Capacity(), int64(d.Percent*d.Regions), 100, l.Capacity()), int64(d.Regions)
	if d.Percent > 0 && l.Capacity() >= regions {
		n = max(n, regions)
	}
	return n
}

// of returns the region's own units. What remains of all of them is the first regions'.
func (d division) of(l *headgate.Limit) int64 {
	return (d.all(l) + int64(d.Regions-1-d.Place)) / int64(d.Regions)
}

func (o *Options) division() division {
	place := slices.Index(slices.Sorted(slices.Values(o.Regions)), o.Region)
	return division{Percent: o.Floor, Regions: len(o.Regions), Place: place}
}

// floors are a region's own units by the settings in force. While units that were divided by others
// may be in use, it has the least by any of them.
type floors struct {
	now    division
	before []division
	over   time.Duration // how long the units of other settings may be used, before they stay in use
	rules  *layer.Derived[*local]
}

func newFloors(o *Options, now division, before []division) *floors {
	f := &floors{now: now, before: before, over: o.counted()}
	f.rules = layer.NewDerived(func(r *headgate.Rule) *local { return f.localRule(r, nil, nil) })
	return f
}

func (f *floors) equal(o *floors) bool { return f.now == o.now && slices.Equal(f.before, o.before) }

// of returns the units of a limit that are this region's own.
func (f *floors) of(l *headgate.Limit) int64 {
	n := f.now.of(l)
	for _, d := range f.before {
		if d.Over <= f.over+full(l) {
			n = min(n, d.of(l))
		}
	}
	return n
}

// lendable is how many units of a limit are not a region's own.
func (o *Options) lendable(l *headgate.Limit) int64 {
	return l.Capacity() - division{Percent: o.Floor, Regions: len(o.Regions)}.all(l)
}

// part is a limit of so many units of l's capacity, at least one, and its counter is the same for any
// number. A part of a bucket has the same part of its rate; ok is false if that is none.
func part(l *headgate.Limit, units int64) (p headgate.Limit, ok bool) {
	ok, units = units > 0, min(max(units, 1), l.Capacity())
	p = headgate.Limit{Algorithm: l.Algorithm, Count: units, Period: l.Period, Align: l.Align, Location: l.Location}
	if l.Algorithm == headgate.TokenBucket {
		// The counter's slot has the period: so the count must not decide more than this.
		times := min(fine, int64(headgate.MaxPeriod/l.Period))
		if l.Count > fineCount {
			times = 1
		}
		p.Burst, p.Period = units, l.Period*time.Duration(times)
		if p.Count = muldiv.Down(l.Count*times, units, l.Capacity(), l.Count*times); p.Count == 0 {
			p.Count, ok = 1, false
		}
	}
	return p, ok
}

// counter is a limit by which the counter of a part is read. It holds more than any limit that it was
// counted by, and drains as the part does.
func counter(l *headgate.Limit, units int64) headgate.Limit {
	p, _ := part(l, units)
	switch l.Algorithm {
	case headgate.TokenBucket:
		most := float64(headgate.MaxRefill) / 2 / float64(p.Period) * float64(p.Count)
		p.Burst = max(p.Burst, int64(min(most, float64(algorithm.MaxUsed(l)))))
	case headgate.SlidingWindow:
		p.Count = headgate.MaxLog
	default:
		p.Count = algorithm.MaxUsed(l)
	}
	return p
}

// full is how long a unit of the limit stays in use at most: a window's period, or the time in which
// a bucket fills.
func full(l *headgate.Limit) time.Duration {
	period := time.Duration(l.Micros()) * time.Microsecond
	switch l.Algorithm {
	case headgate.TokenBucket:
		return time.Duration(min(float64(period)/float64(l.Count)*float64(l.Capacity()), float64(headgate.MaxRefill)))
	case headgate.SlidingCounter:
		return 2 * period // A window counts for as long as the one after it.
	}
	return period
}

// local is a rule as it is enforced in this region.
type local struct {
	of, rule *headgate.Rule
	// none says that a limit has no unit here: nothing is admitted.
	none bool
	// until is when the units end that the region has beyond its own; zero if it has none.
	until time.Duration
}

// localRule returns a rule with this region's own units and those that are lent to it, and with the
// counts of its buckets, by the slots of their limits.
func (f *floors) localRule(of *headgate.Rule, lent, rates map[uint64]int64) *local {
	limits := of.Limits()
	parts := make([]headgate.Limit, len(limits))
	loc := &local{of: of}
	for i := range limits {
		var ok bool
		parts[i], ok = part(&limits[i], f.of(&limits[i])+lent[limits[i].Slot()])
		loc.none = loc.none || !ok
		if n := rates[limits[i].Slot()]; n > 0 {
			parts[i].Count = n
		}
	}
	loc.rule = like(of, parts)
	if loc.rule == nil { // A bucket that takes longer than a century to fill.
		loc.none, loc.rule = true, like(of, []headgate.Limit{headgate.Per(1, time.Hour)})
	}
	return loc
}

// like returns a rule with other limits, whose counters are kept where those of r are; nil if no rule
// can have them.
func like(r *headgate.Rule, limits []headgate.Limit) *headgate.Rule {
	n, err := headgate.NewRule(r.Name(), limits...)
	if err == nil {
		n, err = n.WithTag(r.Tag())
	}
	if err != nil {
		return nil
	}
	return n
}
