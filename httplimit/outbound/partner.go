package outbound

import (
	"container/list"
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

	name string
	gate flow.Gate // nil for none

	mu      sync.Mutex        // guards what follows
	line    line              // calls that the partner has wait
	bounds  map[string]*bound // calls that limits of our own have wait, by what binds them
	calls   uint64            // how many calls have come
	until   time.Time         // nothing is sent before
	deaf    time.Time         // others do not tell of pauses before: one of theirs is longer than this process's may be
	fresh   time.Time         // up to when those are spread that have waited for that
	next    time.Time         // when the next call may be sent, if they are spread
	offset  time.Duration     // how much later it asks the store, so that chance decides which process is first
	rivals  bool              // other processes keep to the same pace
	gap     time.Duration     // between two calls
	ends    time.Time         // up to when gap holds
	pace    pace
	seen    run
	well    time.Time      // when a call was accepted last, or one was sent in an outage
	read    time.Time      // when the pace was read last
	version string         // the version of the document that pace is from
	rule    *headgate.Rule // by which all processes keep to the pace
}

const (
	// near is the share of a limit below which calls are spread over the rest of its time,
	// and few is that for a limit whose size is not known.
	near, few = 0.2, 10
)

func newPartner(budget *retry.Budget, gate flow.Gate, rivals bool) *partner {
	p := &partner{Budget: budget, gate: gate, rivals: rivals, bounds: make(map[string]*bound)}
	p.line = line{mu: &p.mu, due: p.due, take: p.take}
	return p
}

// hold has calls wait until then, if they do not wait for longer already, and reports whether that is
// news, and whether no pause was known before. The mutex is held.
func (p *partner) hold(now, until time.Time) (news, begins bool) {
	begins = !now.Before(p.until)
	if !until.After(p.until) {
		return false, begins
	}
	// Not all who wait are to come back in one moment.
	p.until, p.fresh = until, until.Add(until.Sub(now)/20)
	return true, begins
}

// told takes in that another process was asked for a pause, which is as long yet. It returns how long that is for this
// one, whose pauses are bounded, and whether none was known before.
func (p *partner) told(now time.Time, pause, most time.Duration) (bounded time.Duration, begins bool) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if pause > most {
		p.deaf, pause = now.Add(pause), most
	}
	_, begins = p.hold(now, now.Add(pause))
	return pause, begins
}

// spread returns how far calls are apart now; zero if they are not spread. learnt says that it is the
// pace which spreads them. The mutex is held.
func (p *partner) spread(now time.Time) (gap time.Duration, learnt bool) {
	if now.Before(p.ends) {
		gap = p.gap
	}
	if g := p.pace.next(now, 1); g > gap {
		return g, true
	}
	if gap == 0 && now.Before(p.fresh) {
		gap = p.fresh.Sub(now) / time.Duration(p.line.calls.Len()+1)
	}
	return gap, false
}

// due returns how long the next call has to wait.
func (p *partner) due(now time.Time) time.Duration {
	if left := p.until.Sub(now); left > 0 {
		return left
	}
	gap, _ := p.spread(now)
	if gap == 0 {
		return 0
	}
	if p.next.Before(p.until) {
		p.next = p.until.Add(rand.N(gap + 1))
	}
	return max(p.next.Add(p.offset).Sub(now), 0)
}

// late is for how long the place of a call that waits is kept: that much of what a busy machine holds up is
// caught up with.
const late = 100 * time.Millisecond

const (
	// A call that waits for crowded times the time between two calls, and for crowdedFor, shows that there are as
	// many as may be sent.
	crowded    = 2
	crowdedFor = 10 * time.Millisecond
)

// take gives a call its place.
func (p *partner) take(c *call, now time.Time) {
	gap, learnt := p.spread(now)
	kept := now
	if c.turn != nil { // It has waited.
		kept = now.Add(-late)
	}
	if p.next.Before(kept) {
		p.next = kept
	}
	c.took = gap
	p.next, p.offset = p.next.Add(gap), 0
	if !learnt {
		return
	}
	if p.rivals {
		p.offset = rand.N(slack)
	}
	// By chance, a few calls come close together though there are far fewer than may be sent.
	if at := now.Add(-max(crowded*gap, crowdedFor)); c.came.Before(at) && later(p.pace.From, p.until).Before(at) {
		p.seen.bound = now
	}
}

// giveBack gives back the place of a call that is not sent. Somebody else can have it.
func (c *call) giveBack() {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.yield()
}

// yield is giveBack with the mutex held.
func (c *call) yield() { c.next, c.took = c.next.Add(-c.took), 0 }

// soonest returns how long it takes at least until a call may be sent that has so many before it.
func (p *partner) soonest(now time.Time, before int) time.Duration {
	from := later(later(p.next, p.until), now)
	wait := p.pace.next(from, float64(before))
	if from.Before(p.ends) {
		wait = max(wait, min(time.Duration(before)*p.gap, p.ends.Sub(from)))
	}
	return from.Sub(now) + wait
}

// behind has calls wait until then, because those of other processes come first.
func (p *partner) behind(until time.Time) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if until.After(p.next) {
		p.next, p.offset = until, rand.N(slack)
	}
}

// refused takes in that the partner refuses calls, for want of quota, until the pause ends. The pace is then that of
// this process, until the store has another version than that one.
func (p *partner) refused(sent sending, now time.Time, pause time.Duration, version string) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if sent.at.Before(p.pace.From) {
		return // What was refused was sent before the last pause.
	}
	p.pace.refused(&p.seen, sent, now, pause)
	p.pace.Ends, p.version = 0, version
	p.seen = run{}
	p.next = p.pace.From
}

// begin records that a call is sent.
func (p *partner) begin(now time.Time) sending {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.seen.sent == 0 {
		p.seen.first = now
	}
	p.seen.sent++
	return sending{now, p.seen.sent - 1}
}

// accept records a call that the partner has accepted, and reports whether it is the first one since a pause.
func (p *partner) accept(sent sending, now time.Time) (first bool) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.well = now
	if sent.at.Before(p.pace.From) {
		return false
	}
	p.seen.accepted++
	return p.pace.Base > 0 && !p.pace.Up && p.seen.accepted == 1
}

// outlast takes in that all calls have been rejected since one was accepted last: that time has not shown that the
// partner admits more than before.
func (p *partner) outlast(now time.Time) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if since := now.Sub(later(p.well, p.pace.From)); since > 0 {
		p.pace.From, p.well = p.pace.From.Add(since), now
	}
}

func later(a, b time.Time) time.Time {
	if a.Before(b) {
		return b
	}
	return a
}

// up takes in that a call was accepted since the last pause.
func (p *partner) up(now time.Time) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.pace.Up = true
	p.sooner(now)
}

// sooner takes in that calls may be less far apart than before: the next one has its place by what was known
// then. The mutex is held.
func (p *partner) sooner(now time.Time) {
	if gap, _ := p.spread(now); gap > 0 && now.Add(gap).Before(p.next) {
		p.next = now.Add(gap)
	}
	p.line.move(now)
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
	if gap > 0 {
		p.sooner(now)
	}
	pause = min(pause, most)
	news := false
	if pause > 0 {
		news, begins = p.hold(now, now.Add(pause))
	}
	p.line.move(now)
	if !news {
		return 0, false
	}
	return pause, begins
}

// partners are those that are known. It is safe for concurrent use.
type partners struct {
	make func(name string) *partner

	mu    sync.Mutex // guards what follows
	all   map[string]*list.Element
	order list.List // of *partner, the one that was asked about last first
}

// maxPartners bounds them: beyond it, the one that was asked about least lately is
// forgotten.
const maxPartners = 1024

func (ps *partners) of(name string) *partner {
	ps.mu.Lock()
	defer ps.mu.Unlock()
	if e := ps.all[name]; e != nil {
		ps.order.MoveToFront(e)
		return e.Value.(*partner)
	}
	if oldest := ps.order.Back(); len(ps.all) >= maxPartners {
		delete(ps.all, oldest.Value.(*partner).name)
		ps.order.Remove(oldest)
	}
	p := ps.make(name)
	p.name = name
	ps.all[name] = ps.order.PushFront(p)
	return p
}
