package outbound

import (
	"container/list"
	"math"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/headgate/headgate"
)

// line is calls that wait for the same thing. They go in the order in which they came, and only the
// first looks whether it may. The partner's mutex guards it.
type line struct {
	mu    *sync.Mutex // the partner's
	calls list.List   // of *call, by number
	timer *time.Timer // moves the line when the first call may go; nil until one has waited
	// due returns how long the first call has to wait, and take is told when it goes.
	due  func(now time.Time) time.Duration
	take func(c *call, now time.Time)
}

// untilMoved is the wait of a call that goes after something has happened, and not at a known time.
const untilMoved = time.Duration(math.MaxInt64)

// move lets calls go that may. It is called when they may go sooner than was known.
func (l *line) move(now time.Time) {
	for first := l.calls.Front(); first != nil; first = l.calls.Front() {
		if wait := l.due(now); wait > 0 {
			l.wake(wait)
			return
		}
		c := first.Value.(*call)
		l.remove(c)
		l.take(c, now)
		c.turn <- struct{}{}
	}
}

func (l *line) wake(after time.Duration) {
	switch {
	case l.timer != nil:
		l.timer.Reset(after)
	case after != untilMoved:
		l.timer = time.AfterFunc(after, func() {
			l.mu.Lock()
			defer l.mu.Unlock()
			l.move(time.Now())
		})
	}
}

// insert puts a call in its place, and returns how many are before it. One that was in the line before
// comes before those that have come since.
func (l *line) insert(c *call) (before int) {
	last := l.calls.Back()
	if last == nil || last.Value.(*call).number < c.number {
		c.at = l.calls.PushBack(c)
		return l.calls.Len() - 1
	}
	next := l.calls.Front()
	for ; next.Value.(*call).number < c.number; next = next.Next() {
		before++
	}
	c.at = l.calls.InsertBefore(c, next)
	return before
}

func (l *line) remove(c *call) {
	l.calls.Remove(c.at)
	c.at = nil
	if l.calls.Len() == 0 && l.timer != nil {
		l.timer.Stop()
	}
}

// stand has the call wait in a line until it goes. soonest is how long that takes at least if so many
// are before it. The partner's mutex is held, but not while the call waits.
func (c *call) stand(l *line, soonest func(now time.Time, before int) time.Duration) error {
	now := time.Now()
	if l.calls.Len() == 0 && l.due(now) == 0 {
		l.take(c, now)
		return nil
	}
	if c.turn == nil {
		c.turn = make(chan struct{}, 1)
	}
	before := l.insert(c)
	l.move(now)
	if c.at == nil {
		<-c.turn
		return nil
	}
	if wait := soonest(now, before); wait > c.patience(now) {
		l.remove(c)
		return c.denied(headgate.Decision{RetryAfter: wait})
	}
	c.mu.Unlock()
	over := time.NewTimer(c.left)
	goes := false
	select {
	case <-c.turn:
		goes = true
	case <-c.ctx.Done():
	case <-over.C:
	}
	over.Stop()
	waited := time.Since(now)
	c.left -= waited
	if c.t.config.Hooks.Waited != nil {
		c.t.config.Hooks.Waited(c.r, waited)
	}
	c.mu.Lock()
	switch {
	case c.at != nil:
		l.remove(c)
	case !goes: // It goes at the moment at which it gives up.
		<-c.turn
		goes = true
	}
	switch {
	case c.ctx.Err() != nil:
		return c.ctx.Err()
	case !goes:
		return c.denied(headgate.Decision{RetryAfter: soonest(now.Add(waited), 0)})
	}
	return nil
}

// bound is the line of calls that the same limits of our own bind. There is one from when such a call
// was denied until none waits.
type bound struct {
	line
	opens time.Time // nothing fits before
	// asking is how many calls ask the store at a time, and most how many may: one after a denial, and
	// one more for each that was admitted since. So many calls that wait do not all ask for one place.
	asking, most int
	alone        time.Duration // between two calls while the store cannot decide; 0 while it can
	stays        bool          // until a timer ends, though nobody waits
}

func newBound(mu *sync.Mutex) *bound {
	b := new(bound)
	b.line = line{
		mu: mu,
		due: func(now time.Time) time.Duration {
			switch wait := b.opens.Sub(now); {
			case wait > 0:
				return wait
			case b.asking >= b.most:
				return untilMoved
			}
			return 0
		},
		take: func(c *call, now time.Time) {
			c.asks = b
			b.asking++
			if b.alone > 0 {
				b.opens = later(b.opens, now.Add(-late)).Add(b.alone)
			}
		},
	}
	return b
}

// await waits until the call may ask the store, or be sent if there is none.
func (c *call) await() error {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.number == 0 {
		c.calls++
		c.number = c.calls
	}
	if c.came.IsZero() {
		c.came = time.Now()
	}
	if b := c.bounds[c.key]; b != nil {
		if err := c.stand(&b.line, func(now time.Time, _ int) time.Duration { return max(b.opens.Sub(now), time.Microsecond) }); err != nil {
			return err
		}
	}
	return c.stand(&c.line, c.soonest)
}

// denies has calls that the same limits bind stand in line from now on, because nothing fits until then.
func (c *call) denies(until time.Time) {
	b := c.bounds[c.key]
	if b == nil {
		b = newBound(&c.mu)
		c.bounds[c.key] = b
	}
	b.opens, b.most = until, 1
}

// asked lets the next call ask. admitted says that the store has admitted this one.
func (c *call) asked(now time.Time, admitted bool) {
	if b := c.asks; b != nil {
		c.asks = nil
		b.asking--
		switch {
		case c.undecided:
			b.alone, b.most = c.apart(), math.MaxInt
			if c.t.config.FailClosed {
				b.alone, b.most = longestApart, 1
			}
			admitted = false
		case b.alone > 0 && admitted:
			b.alone, b.most, b.opens = 0, 1, now
		default:
			b.alone = 0
		}
		if admitted {
			b.most++
		}
		b.move(now)
	}
}

// longestApart is how far apart calls are at most that ask a store which cannot decide. With FailClosed they are as
// far apart, so that hardly any fail.
const longestApart = time.Second

// alone has a call that limits of our own bind stand in their line while the store cannot decide. It reports false,
// and does nothing, if none binds the call or it stands there already.
func (c *call) alone() bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	if len(c.own) == 0 || c.asks != nil {
		return false
	}
	b := c.bounds[c.key]
	if b == nil {
		b = newBound(&c.mu)
		c.bounds[c.key] = b
	}
	b.alone, b.most = c.apart(), math.MaxInt
	c.yield()
	return true
}

// apart is how far apart calls are that use up the limits of our own. Those that wait are sent so while the store
// cannot decide, and not all at once.
func (c *call) apart() time.Duration {
	gap := time.Microsecond
	for _, check := range c.own {
		for _, l := range check.Rule.Limits() {
			gap = max(gap, l.Period/time.Duration(max(l.Count, 1)))
		}
	}
	return min(gap, longestApart)
}

// leave has the call wait no more, whether it is sent or not.
func (c *call) leave(admitted bool) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.came = time.Time{}
	now := time.Now()
	c.asked(now, admitted)
	c.tidy(now)
}

// tidy removes the line of the limits that bind the call if nobody needs it. The mutex is held.
func (c *call) tidy(now time.Time) {
	b := c.bounds[c.key]
	if b == nil || b.calls.Len() > 0 || b.asking > 0 {
		return
	}
	if wait := b.opens.Add(late).Sub(now); b.alone > 0 && wait > 0 { // The next call has to be apart, too.
		if !b.stays {
			b.stays = true
			time.AfterFunc(wait, func() {
				c.mu.Lock()
				defer c.mu.Unlock()
				b.stays = false
				c.tidy(time.Now())
			})
		}
		return
	}
	delete(c.bounds, c.key)
}

// bind finds the limits of our own that bind the call.
func (c *call) bind() {
	var keys strings.Builder
	for _, l := range c.t.config.Limits {
		key := c.name
		if l.Key != nil {
			key = l.Key(c.r)
			// The lengths keep keys apart.
			keys.WriteString(strconv.Itoa(len(key)) + ":" + key)
		}
		if key == "" {
			continue
		}
		for _, rule := range l.Rules {
			c.own = append(c.own, headgate.Check{Rule: rule, Key: key})
		}
	}
	c.key = keys.String()
}
