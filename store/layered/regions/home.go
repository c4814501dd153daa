package regions

import (
	"crypto/rand"
	"encoding/json"
	"fmt"
	"maps"
	"math/bits"
	mathrand "math/rand/v2"
	"time"

	"github.com/headgate/headgate"
	"github.com/headgate/headgate/store"
	"github.com/headgate/headgate/store/share"
)

// home is a document of the home: how the units of some keys are lent. Times in it are durations, as
// whoever wrote it knew them: no clock of the home is read.
type home struct {
	// Born names this document. A home that has lost its data has another one.
	Born string `json:"b"`
	// Joined are the regions that know this document, and whether they had nothing lent when they
	// came. Age is how long ago the last one came, at least.
	Joined map[string]bool `json:"j"`
	Age    time.Duration   `json:"a"`
	// Came names when regions came from other settings last.
	Came map[string]string `json:"c,omitempty"`
	// Beats name what a region has written last: what it holds is as old. See [nextBeat].
	Beats map[string]int64 `json:"n"`
	// Ages say how long ago that was, at least.
	Ages map[string]time.Duration `json:"o"`
	// Pools are the limits of which something is lent, or in use beyond a region's own units.
	Pools map[string]*share.Pool `json:"p,omitempty"`
}

// maxHolders bounds the grants of one document, so that it fits into a store.
const maxHolders = 2000

// readHome reads a document of the home. One that is not there is new.
func readHome(d *store.Document) (*home, error) {
	h := &home{Born: rand.Text(), Joined: map[string]bool{}, Came: map[string]string{}, Beats: map[string]int64{}, Ages: map[string]time.Duration{}, Pools: map[string]*share.Pool{}}
	if len(d.Value) == 0 {
		return h, nil
	}
	if err := json.Unmarshal(d.Value, h); err != nil {
		return nil, fmt.Errorf("%w: the shares of regions cannot be read: %w", headgate.ErrUnavailable, err)
	}
	return h, nil
}

func (h *home) bytes() []byte {
	b, _ := json.Marshal(h) // Numbers and texts can always be written.
	return b
}

// seen is what a process saw of the home last.
type seen struct {
	born  string
	count int // of regions that had joined
	age   time.Duration
	beats map[string]int64
	ages  map[string]time.Duration
}

func (h *home) seen() *seen {
	return &seen{born: h.Born, count: len(h.Joined), age: h.Age, beats: maps.Clone(h.Beats), ages: maps.Clone(h.Ages)}
}

// pass ages what has not changed since it was seen, that long ago, and brings what the regions have to
// now. So each process waits on its own clock until somebody else's units must be free, and no two
// clocks are compared. All say how old something is at least, so the largest is right.
func (h *home) pass(s *seen, elapsed time.Duration) {
	elapsed -= elapsed / drift
	if s != nil && s.born == h.Born && elapsed > 0 {
		if s.count == len(h.Joined) {
			h.Age = max(h.Age, s.age+elapsed)
		}
		for region, beat := range h.Beats {
			if s.beats[region] == beat {
				h.Ages[region] = max(h.Ages[region], s.ages[region]+elapsed)
			}
		}
	}
	for region, age := range h.Ages {
		h.shift(region, age)
	}
}

// settled has what this region has begin now, and what others have when they have written it.
func (h *home) settled(here string) {
	h.Ages[here] = 0
	for region, age := range h.Ages {
		h.shift(region, -age)
	}
}

func (h *home) shift(region string, age time.Duration) {
	for _, p := range h.Pools {
		p.Pass(region, age.Microseconds())
	}
}

// nextBeat names a write after another one. The names count, and are never met again, also if the
// home forgets its last writes.
func nextBeat(last int64) int64 { return (count(last)+1)<<31 | mathrand.Int64N(1<<31) }

func count(beat int64) int64 { return beat >> 31 }

// wentBack reports whether the home has forgotten more than its last writes, as one does that was
// restored from a backup: it lacks a write that this region has read there since, or several that
// this process has seen of another one.
func (h *home) wentBack(here string, sure int64, s *seen) bool {
	if _, came := h.Joined[here]; came && count(h.Beats[here]) < count(sure) {
		return true
	}
	if s == nil || s.born != h.Born {
		return false
	}
	for region, beat := range s.beats {
		if region != here && count(h.Beats[region])+2 < count(beat) {
			return true
		}
	}
	return false
}

// lends reports whether units may be lent that stay in use for that long: what was lent by a home
// that has lost its data must be over.
func (h *home) lends(o *Options, full time.Duration) bool {
	fresh := true
	for _, region := range o.Regions {
		fresh = fresh && h.Joined[region]
	}
	return fresh || h.all(o) && h.Age > o.counted()+full
}

// all reports whether all regions have come.
func (h *home) all(o *Options) bool {
	for _, region := range o.Regions {
		if _, here := h.Joined[region]; !here {
			return false
		}
	}
	return true
}

// lent is how many units of a pool a region has; see [share.Pool.Lent].
func (h *home) lent(pool, region string) (units int64, done bool) {
	if p := h.Pools[pool]; p != nil {
		return p.Lent(region, 0)
	}
	return 0, true
}

// share is what all regions have of a pool.
func (h *home) share(o *Options, pool string) (lent map[string]int64, since time.Duration) {
	lent = make(map[string]int64, len(o.Regions))
	for _, region := range o.Regions {
		lent[region], _ = h.lent(pool, region)
	}
	if p := h.Pools[pool]; p != nil {
		for i := range p.Holders {
			if p.Holders[i].ID == o.Region {
				since = -time.Duration(p.Holders[i].Since) * time.Microsecond
			}
		}
	}
	return lent, since
}

// ask asks for units of one pool.
func (h *home) ask(o *Options, pool string, total int64, l share.Loan) int64 {
	p := h.Pools[pool]
	if p == nil {
		if l.Want == 0 && l.Used == 0 || len(h.Pools) >= maxHolders/len(o.Regions) {
			return 0
		}
		p = new(share.Pool)
		h.Pools[pool] = p
	}
	if !h.lends(o, l.Tail) {
		total = 0
	}
	return p.Lend(total, l, 0)
}

// terms are what a region has of a pool, and wants, as far as others care.
type terms struct {
	lent, before int64
	tail         int64
	wants        int
}

// alike reports whether what a region has of all pools is nearly the same: so that not each change is
// written, which would be in the way of regions that are farther from the home.
func alike(a, b map[string]terms) bool {
	near := func(x, y int64) bool { return max(x, y)-min(x, y) <= max(x, y)/32 }
	return maps.EqualFunc(a, b, func(x, y terms) bool {
		return x.wants == y.wants && x.tail == y.tail && near(x.lent, y.lent) && near(max(x.lent, x.before), max(y.lent, y.before))
	})
}

// of returns what a region has of all pools.
func (h *home) of(region string) map[string]terms {
	all := map[string]terms{}
	for name, p := range h.Pools {
		for i := range p.Holders {
			if g := &p.Holders[i]; g.ID == region {
				t := terms{lent: g.Burst, tail: g.Tail, wants: bits.Len64(uint64(max(g.Demand, 0)))}
				for _, o := range g.Old {
					if o.Until > 0 {
						t.before = max(t.before, o.Burst)
					}
				}
				all[name] = t
			}
		}
	}
	return all
}

// sweep drops the pools of which nothing is lent or in use.
func (h *home) sweep() {
	maps.DeleteFunc(h.Pools, func(_ string, p *share.Pool) bool { return p.Empty(0) })
}
