// Package share divides one limit among holders that decide for themselves, such as proxies that
// cannot ask for each request. A [Pool] is the state of one limit. Every holder has a grant: a
// token bucket of its own that lasts for a while.
//
// # The bound
//
// In any time T, all holders together admit at most Burst + Rate·T units. Two things hold at every
// moment, whatever holders ask for:
//
//   - The rates of all grants that may be in force are at most Rate.
//   - The bursts of all grants that may be in force, together with the Credit, are at most Burst.
//
// The Credit pays for the burst of each new grant, because a new token bucket begins full. It grows
// at the rate that is not granted. A grant is in force until it ends, even if a later one was sent:
// the holder does not say which one it has received.
//
// A pool knows no clock and no store. It is not safe for concurrent use.
package share

import (
	"encoding/json"
	"fmt"
	"math/big"
	"slices"
	"time"

	"github.com/headgate/headgate"
)

const (
	// MaxHolders is how many holders one pool may have.
	MaxHolders = 1000
	// MaxRate is the largest rate, in units per second times 1e9: some 4.6e9 units a second.
	MaxRate = 1 << 62
	// maxBurst is the largest burst: Credit counts it in millionths, and sums of two have to fit.
	maxBurst = 1 << 42
	// nano is the unit of rates: a rate of 1e9 is one unit a second.
	nano = 1_000_000_000
	// micro is the unit of Credit.
	micro = 1_000_000
	// reserve is the part of the rate that is not granted, so that Credit grows while all want more:
	// one in so many.
	reserve = 64
	// spare is the part of the burst that is kept back: one in so many.
	spare = 8
	// headroom is how much more than its demand a holder is granted: one in so many.
	headroom = 16
	// idle is how many times the number of holders the burst must be for those to get some that want
	// nothing yet.
	idle = 8
	// steady is by how much a rate must differ from the present one to be granted instead: one in
	// so many.
	steady = 8
)

// Limit is what is divided.
type Limit struct {
	// Rate is in units per second, times 1e9, at most MaxRate. Burst is in units, at most 2^42.
	Rate, Burst int64
}

// Of returns a limit whose bound keeps to l. A window of N units becomes a bucket that holds a tenth
// of them and refills the rest within the window, so that no window of that length admits more than
// N. Of a limit that is larger than a Limit can hold, as much as it can hold is divided. The error is a
// [*headgate.InvalidError] if l cannot be divided.
func Of(l *headgate.Limit) (Limit, error) {
	switch l.Algorithm {
	case headgate.TokenBucket:
		return Limit{rate(l.Count, l.Micros()), min(l.Capacity(), maxBurst)}, nil
	case headgate.FixedWindow, headgate.SlidingWindow, headgate.SlidingCounter:
		burst := min(max(1, l.Count/10), maxBurst)
		// Strictly less than one unit above the count is less than the next whole number.
		return Limit{rate(l.Count+1-burst, l.Micros()) - 1, burst}, nil
	}
	return Limit{}, headgate.Invalid(fmt.Sprintf("limit %q", l), "", "a %s cannot be divided among holders; use a token_bucket or a window", l.Algorithm)
}

// rate is count in period microseconds, rounded down.
func rate(count, period int64) int64 {
	n := new(big.Int).Mul(big.NewInt(count), big.NewInt(nano*micro))
	n.Quo(n, big.NewInt(period))
	if !n.IsInt64() {
		return MaxRate
	}
	return min(n.Int64(), MaxRate)
}

// Grant is a token bucket that a holder may use until it ends. The zero Grant admits nothing.
type Grant struct {
	// Rate is in units per second, times 1e9. Burst is in units.
	Rate  int64 `json:"r,omitempty"`
	Burst int64 `json:"b,omitempty"`
	// Until is when the grant ends, in microseconds on the store's clock.
	Until int64 `json:"u,omitempty"`
	// Turn differs from that of the grant before. A grant with another turn is a new bucket, which
	// begins full.
	Turn int64 `json:"t,omitempty"`
	// Tail is the [Loan.Tail] of a loan, in microseconds.
	Tail int64 `json:"a,omitempty"`
	// Since is when a loan began, which was then renewed with more or fewer units, in microseconds.
	Since int64 `json:"s,omitempty"`
}

// Holder is one holder and what it may use.
type Holder struct {
	ID string `json:"i"`
	Grant
	// Old are the grants before this one that may still be in force.
	Old []Grant `json:"o,omitempty"`
	// Demand is how much the holder wants, in units per second times 1e9.
	Demand int64 `json:"d,omitempty"`
}

// live is the rate and burst that the holder may be using at now.
func (h *Holder) live(now int64) (rate, burst int64) {
	for _, g := range append(h.Old, h.Grant) {
		if now < g.Until {
			rate, burst = max(rate, g.Rate), max(burst, g.Burst)
		}
	}
	return rate, burst
}

// Pool is the state of a limit that is divided. The zero Pool is one that nobody has used.
type Pool struct {
	// At is when the pool was last looked at, in microseconds; zero for a new one.
	At int64 `json:"at,omitempty"`
	// Credit is how many units of burst may be granted, in millionths.
	Credit  int64    `json:"c,omitempty"`
	Holders []Holder `json:"h,omitempty"`
}

// Read reads what [Pool.Bytes] has written. Nothing stands for a new pool.
func Read(b []byte) (*Pool, error) {
	p := new(Pool)
	if len(b) == 0 {
		return p, nil
	}
	if err := json.Unmarshal(b, p); err != nil {
		return nil, fmt.Errorf("read the shares of a limit: %w", err)
	}
	return p, nil
}

// Bytes writes the pool.
func (p *Pool) Bytes() []byte {
	b, _ := json.Marshal(p) // Numbers and texts can always be written.
	return b
}

// Look brings the pool to now: credit grows, and what has ended is dropped. The other methods call
// it. No grant lasts longer than most from now on, because the clock may have been set back.
func (p *Pool) Look(l Limit, now int64, most time.Duration) {
	if p.At == 0 {
		p.At, p.Credit = now, l.Burst*micro
	}
	latest := now + most.Microseconds()
	for i := range p.Holders {
		h := &p.Holders[i]
		h.Until = min(h.Until, latest)
		for j := range h.Old {
			h.Old[j].Until = min(h.Old[j].Until, latest)
		}
	}
	p.At = min(p.At, now)
	for {
		// Between two ends of grants, the rate that is not granted is constant.
		next := now
		for i := range p.Holders {
			for _, g := range append(p.Holders[i].Old, p.Holders[i].Grant) {
				if g.Until > p.At {
					next = min(next, g.Until)
				}
			}
		}
		rate, _ := p.live(p.At, "")
		p.Credit += grown(max(0, l.Rate-rate), next-p.At, l.Burst)
		p.At = next
		_, burst := p.live(p.At, "")
		p.Credit = max(0, min(p.Credit, (l.Burst-burst)*micro))
		if next == now {
			break
		}
	}
	for i := range p.Holders {
		p.Holders[i].Old = slices.DeleteFunc(p.Holders[i].Old, func(g Grant) bool { return g.Until <= now })
	}
	p.Holders = slices.DeleteFunc(p.Holders, func(h Holder) bool { return h.Until <= now && len(h.Old) == 0 })
}

// grown is how many millionths of a unit come at a rate in so many microseconds: at most the burst.
func grown(rate, micros, burst int64) int64 {
	n := new(big.Int).Mul(big.NewInt(rate), big.NewInt(micros))
	n.Quo(n, big.NewInt(nano))
	if most := burst * micro; !n.IsInt64() || n.Int64() > most {
		return most
	}
	return n.Int64()
}

// live is the sum of what the holders may be using at now, without one of them.
func (p *Pool) live(now int64, without string) (rate, burst int64) {
	for i := range p.Holders {
		if p.Holders[i].ID != without {
			r, b := p.Holders[i].live(now)
			rate, burst = rate+r, burst+b
		}
	}
	return rate, burst
}

// Ask is what a holder asks for.
type Ask struct {
	ID string
	// Demand is how much the holder wants, in units per second times 1e9. If it is negative, nobody
	// knows yet, and the holder gets what it would get if one more came and all wanted the same.
	Demand int64
	// Cost is how many units one request takes: less makes no burst. Zero means one.
	Cost int64
	// Denied says that the holder has denied requests since its last grant, so that a new bucket
	// would help.
	Denied bool
	// Fresh asks for a new bucket or none, also if the present grant could be kept. It is for a holder
	// that would begin with a full bucket anyway, such as one whose grant may have ended before the
	// same grant reaches it again.
	Fresh bool
	// TTL is how long the holder uses the grant after it has received it. Grace is how long the
	// grant may take to be received.
	TTL, Grace time.Duration
}

// Ask returns the grant of a holder after it has asked. Only this holder's grant changes.
func (p *Pool) Ask(l Limit, a Ask, now int64) Grant {
	lasts := a.TTL + a.Grace
	p.Look(l, now, lasts)
	h := p.holder(a.ID)
	if h == nil {
		return Grant{}
	}
	most := l.Rate
	if a.Demand < 0 {
		// Others may come in the next moment, and know as little of what they want.
		most = l.Rate / int64(len(p.Holders)+1)
		a.Demand = most
	}
	h.Demand = max(a.Demand, 1)
	valid := !a.Fresh && h.Burst > 0 && now < h.Until
	others, bursts := p.live(now, a.ID)
	// Some burst is kept back: there must be credit to change a grant when all is granted.
	free, room := l.Rate-others, l.Burst-bursts
	kept := (l.Burst + spare - 1) / spare
	bursts = max(room-kept, min(room, max(1, h.Burst)))
	if valid {
		free = max(min(free, h.Rate), free-l.Rate/reserve) // The rest is for those that come.
	}
	free, bursts = max(0, free), max(0, bursts)
	rate := min(p.fair(l, h), free, most)
	burst := min(p.wanted(l, rate, a.Cost), p.Credit/micro, bursts)
	burst -= burst % max(1, a.Cost)
	until := now + lasts.Microseconds()
	// A new bucket costs credit, and one with a small burst wastes its rate when requests come
	// unevenly. So it has to be worth it.
	apart := max(h.Rate/steady, l.Rate/64)
	enough := min(p.wanted(l, rate, a.Cost), 1+min(rate, a.Demand)/nano/4, 2*kept)
	less := rate < h.Rate-apart
	change := 2*burst >= enough && (rate > h.Rate+apart || less)
	refill := a.Denied && (burst >= max(h.Burst, enough) || burst > rate/nano*int64(a.TTL/time.Second))
	switch {
	case valid && (burst == 0 && h.Rate > free || less && !change):
		// It is to have less, and there is no credit for a new bucket: it keeps what it has until
		// that ends. Were it renewed, credit might never grow again.
	case valid && h.Rate <= free && (burst == 0 || !change && !refill):
		h.Until = until
	default:
		if now < h.Until && h.Burst > 0 {
			h.Old = append(h.Old, h.Grant)
		}
		if rate == 0 || burst == 0 || a.Demand == 0 && l.Burst < idle*int64(len(p.Holders)) {
			rate, burst = 0, 0 // It waits, and is known by its demand.
		}
		p.Credit -= burst * micro
		h.Grant = Grant{Rate: rate, Burst: burst, Until: until, Turn: h.Turn + 1}
	}
	return h.Grant
}

// Wants reports whether the holder would be granted more if more were free.
func (p *Pool) Wants(l Limit, id string) bool {
	i := p.find(id)
	return i >= 0 && p.fair(l, &p.Holders[i]) > p.Holders[i].Rate+p.Holders[i].Rate/steady
}

// Keep is how long the pool must be kept if nobody asks: until nothing is in force, and the credit
// is what a new pool has.
func (p *Pool) Keep(l Limit) time.Duration {
	last := p.At
	for i := range p.Holders {
		last = max(last, p.Holders[i].Until)
		for _, g := range p.Holders[i].Old {
			last = max(last, g.Until)
		}
	}
	keep := time.Duration(last-p.At) * time.Microsecond
	if l.Rate > 0 {
		fill := new(big.Int).Mul(big.NewInt(l.Burst), big.NewInt(nano))
		fill.Mul(fill, big.NewInt(micro))
		fill.Quo(fill, big.NewInt(l.Rate))
		if fill.IsInt64() && fill.Int64() < int64(headgate.MaxPeriod/time.Microsecond) {
			return keep + time.Duration(fill.Int64())*time.Microsecond + time.Second
		}
	}
	return keep + headgate.MaxPeriod
}

// fair is the rate that the holder is to have by what all want: nobody gets more than it wants
// while another one with less gets less than it wants. Half of what nobody wants is given to those
// who want most, and the other half is kept for those who come.
func (p *Pool) fair(l Limit, of *Holder) int64 {
	total := l.Rate - l.Rate/reserve
	wants := make([]int64, 0, len(p.Holders))
	sum := new(big.Int)
	for i := range p.Holders {
		d := p.Holders[i].Demand
		wants = append(wants, min(d+d/headroom, total))
		sum.Add(sum, big.NewInt(wants[i]))
	}
	least := l.Rate / reserve / 2 / int64(max(1, len(wants)))
	own := min(of.Demand+of.Demand/headroom, total)
	if left := new(big.Int).Sub(big.NewInt(total), sum); left.Sign() > 0 {
		// own + left/2 · own/sum
		more := left.Mul(left, big.NewInt(own))
		more.Quo(more, sum.Lsh(sum, 1))
		return max(least, min(total, own+more.Int64()))
	}
	slices.Sort(wants)
	left := total
	for i, want := range wants {
		level := left / int64(len(wants)-i)
		if want > level {
			return max(least, min(own, level))
		}
		left -= want
	}
	return max(least, own)
}

// wanted is the burst for a rate: the same part of the limit's burst. A holder with a small rate
// gets more, so that it need not deny what comes unevenly.
func (p *Pool) wanted(l Limit, rate, cost int64) int64 {
	if l.Rate == 0 {
		return l.Burst
	}
	n := new(big.Int).Mul(big.NewInt(l.Burst), big.NewInt(rate))
	return min(l.Burst, max(1, cost, l.Burst/4/int64(len(p.Holders)), n.Quo(n, big.NewInt(l.Rate)).Int64()))
}

func (p *Pool) find(id string) int {
	return slices.IndexFunc(p.Holders, func(h Holder) bool { return h.ID == id })
}

// holder returns the holder, which may be new; nil if there are too many.
func (p *Pool) holder(id string) *Holder {
	i := p.find(id)
	if i < 0 {
		if len(p.Holders) == MaxHolders {
			return nil
		}
		p.Holders, i = append(p.Holders, Holder{ID: id}), len(p.Holders)
	}
	return &p.Holders[i]
}
