package outbound

import (
	"math/rand/v2"
	"sync"
	"time"

	"github.com/headgate/headgate"
	"github.com/headgate/headgate/flow"
	"github.com/headgate/headgate/flow/retry"
)

// partner is what is known of one partner. It is safe for concurrent use.
type partner struct {
	*retry.Budget
	retry.Throttle

	gate flow.Gate // nil for none

	mu    sync.Mutex // guards what follows
	until time.Time  // nothing is sent before
	next  time.Time  // when the next call may be sent, if gap
	gap   time.Duration
	ends  time.Time // up to when gap holds
	pace  pace
	seen  run
	read  time.Time      // when the pace was read last
	shape string         // the version of the document that pace is from
	rule  *headgate.Rule // by which all processes keep to the pace
	used  time.Time      // when it was last asked about
}

const (
	// near is the share of a limit below which calls are spread over the rest of its time,
	// and few is that for a limit whose size is not known.
	near, few = 0.2, 10
)

// pause returns how long the partner wants no call, from now, and up to a twentieth more: not all
// who wait are to come back in one moment. Who has waited asks again, because another answer may
// have asked for more.
func (p *partner) pause(now time.Time) time.Duration {
	p.mu.Lock()
	defer p.mu.Unlock()
	left := p.until.Sub(now)
	if left <= 0 {
		return 0
	}
	return left + rand.N(left/20+1)
}

// hold has calls wait until then, if they do not wait for longer already, and reports whether no
// pause was known before.
func (p *partner) hold(now, until time.Time) bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	news := !now.Before(p.until)
	if until.After(p.until) {
		p.until = until
	}
	return news
}

// slot takes the next time at which a call may be sent while calls are spread, and returns how
// long that is from now. If that is more than most, it takes nothing. If taken is false, the call
// is to ask again after the wait.
func (p *partner) slot(now time.Time, most time.Duration) (wait time.Duration, taken, ok bool) {
	p.mu.Lock()
	defer p.mu.Unlock()
	var gap time.Duration
	if now.Before(p.ends) {
		gap = p.gap
	}
	learnt := false
	if rate, _ := p.pace.rate(now); rate > 0 {
		if g := time.Duration(float64(time.Second) / rate); g > gap {
			gap, learnt = g, true
		}
	}
	if gap <= 0 {
		return 0, true, true
	}
	wait = max(p.next.Sub(now), 0)
	if wait > 0 && learnt {
		p.seen.bound = true
	}
	switch {
	case wait > most:
		return wait, false, false
	case learnt && wait > ahead:
		return ahead/2 + rand.N(2*ahead), false, true
	}
	if p.next.Before(now) {
		p.next = now
	}
	p.next = p.next.Add(gap)
	return wait, true, true
}

// ahead is for how long a place is given to a call that is paced. Who finds none asks again, because
// the pace may have changed by then.
const ahead = 200 * time.Millisecond

// behind has calls that are paced wait until then, because those of other processes come first.
func (p *partner) behind(until time.Time) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.seen.bound = true
	if until.After(p.next) {
		p.next = until
	}
}

// refused takes in that the partner refuses calls, for want of quota, until the pause ends.
func (p *partner) refused(now time.Time, pause time.Duration, before float64) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.pace.refused(&p.seen, before, now, pause)
	p.seen = run{}
	p.next = p.pace.From
}

// begin records that a call is sent, and returns how many were sent before it since the last pause.
func (p *partner) begin(now time.Time) (before float64) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.seen.sent == 0 {
		p.seen.first = now
	}
	p.seen.sent++
	return p.seen.sent - 1
}

// accept records a call that the partner has accepted.
func (p *partner) accept(now time.Time) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if now.After(p.pace.From) { // It was not sent before the pause.
		p.seen.accepted++
	}
}

// heed takes in what an answer says. It returns for how long nothing is to be sent; zero if
// that is new to nobody. begins says that no pause was known before.
func (p *partner) heed(h *Hint, now time.Time, most time.Duration) (pause time.Duration, begins bool) {
	p.mu.Lock()
	defer p.mu.Unlock()
	pause = h.Wait
	var gap time.Duration
	var ends time.Time
	for _, w := range h.Windows {
		switch {
		case w.Reset <= 0:
		case w.Remaining == 0:
			pause = max(pause, w.Reset)
		case w.Limit > 0 && float64(w.Remaining) < near*float64(w.Limit), w.Limit <= 0 && w.Remaining < few:
			// A quota of a month that is nearly used up must not stop calls for hours.
			if g := min(w.Reset/time.Duration(w.Remaining+1), most); g > gap {
				gap, ends = g, now.Add(w.Reset)
			}
		}
	}
	p.gap, p.ends = gap, ends
	pause = min(pause, most)
	if until := now.Add(pause); pause > 0 && until.After(p.until) {
		begins = !now.Before(p.until)
		p.until = until
		return pause, begins
	}
	return 0, false
}

// partners are those that are known. It is safe for concurrent use.
type partners struct {
	make func(name string) *partner

	mu  sync.Mutex // guards all
	all map[string]*partner
}

// maxPartners bounds them: beyond it, the one that was asked about least lately is
// forgotten.
const maxPartners = 1024

func (ps *partners) of(name string, now time.Time) *partner {
	ps.mu.Lock()
	defer ps.mu.Unlock()
	p := ps.all[name]
	if p == nil {
		if len(ps.all) >= maxPartners {
			ps.forget()
		}
		p = ps.make(name)
		ps.all[name] = p
	}
	p.used = now
	return p
}

func (ps *partners) forget() {
	oldest := ""
	for name, p := range ps.all {
		if oldest == "" || p.used.Before(ps.all[oldest].used) {
			oldest = name
		}
	}
	delete(ps.all, oldest)
}
