package redis

import (
	"bytes"
	"context"
	"encoding/binary"
	"runtime"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/redis/rueidis"

	"github.com/headgate/headgate"
	"github.com/headgate/headgate/store/redis/internal/refusal"
)

// Decisions that are in flight at the same time share script calls, because each call has a fixed
// cost for the server and for the connection. A decision in a shared call keeps everything that it
// would have with a call of its own: its deadline, its error and its order. It also counts as one
// pending call. There is no timer. A decision is sent at once unless two shared calls are in
// flight. Otherwise it waits until one of them is answered, and is sent with all decisions that
// have arrived until then. If decisions arrive faster than they can be answered in time, the newest
// are sent first; see late.

const (
	// sharedCalls is how many shared calls may be in flight at a time. With two, the server works
	// on one while the answers of the other are handed out.
	sharedCalls = 2
	// batchWork bounds the server's work for one call. The unit is the work for a single bucket.
	batchWork = 128
	// calmBatches is the number of batches after which sharing ends if too few calls were pending
	// during all of them.
	calmBatches = 16
)

// seat is a decision's place in a shared call.
type seat struct {
	shape shape
	text  []byte    // the counter's name, followed by its argument for batch.lua
	key   int       // the length of the name
	work  int       // the server's work for the decision; the unit is the work for a single bucket
	until time.Time // the caller's deadline; zero if there is none
	reply reply
	err   error
	left  atomic.Bool   // the caller no longer waits
	done  chan struct{} // has a value once reply or err is set
}

// combiner collects decisions for shared calls. While decisions wait, up to sharedCalls goroutines
// make these calls. It is safe for concurrent use.
type combiner struct {
	store  *Store
	from   int64 // the least number of pending calls with which sharing pays
	script *rueidis.Lua
	seats  sync.Pool

	on    atomic.Bool // decisions share calls
	unfit atomic.Bool // the server refuses shared calls

	mu      sync.Mutex // guards waiting, runs, batches, peak and over
	waiting []*seat
	runs    int   // how many goroutines make calls
	batches int   // how many times consider was called since it last decided
	peak    int64 // the most calls that were pending since then
	over    bool  // no more decisions may join

	running sync.WaitGroup
	ctx     context.Context // the parent of the calls' contexts
	cancel  context.CancelFunc
}

func newCombiner(s *Store, from int64) *combiner {
	c := &combiner{
		store: s, from: from,
		script: rueidis.NewLuaScript(arithmeticLua +
			"local function buckets(KEYS, ARGV)\n" + bucketsLua + "\nend\n" +
			"local function window(KEYS, ARGV)\n" + windowLua + "\nend\n" + batchLua),
		seats: sync.Pool{New: func() any { return &seat{done: make(chan struct{}, 1)} }},
	}
	c.ctx, c.cancel = context.WithCancel(context.Background())
	return c
}

// one decides a single check that has a short script. The check shares a call even while the guard
// is unsure of the connection. That is safe, because a shared call also ends at its deadline. And
// with calls of their own, late decisions would be even later.
func (s *Store) one(ctx context.Context, shape shape, c *headgate.Check) (reply, error) {
	if s.combiner.pays(s.guards.Any().Calls()) {
		if r, err := s.combiner.decide(ctx, shape, c); r.status != statusRefused {
			return r, err
		}
	}
	short := s.short(c)
	return s.exec(ctx, headgate.OpTake, short.script, []string{short.key}, short.args, true)
}

// pays reports whether a decision should share a call while the given number of calls is pending.
func (c *combiner) pays(calls int64) bool {
	if c == nil {
		return false
	}
	if c.on.Load() {
		return true
	}
	if calls+1 < c.from || c.unfit.Load() {
		return false
	}
	c.on.Store(true)
	return true
}

// decide decides a check with a shared call. It returns statusRefused if the check needs a call of
// its own.
func (c *combiner) decide(ctx context.Context, shape shape, check *headgate.Check) (reply, error) {
	to := c.store.guards.Any()
	if err := to.Begin(); err != nil {
		return reply{}, unavailable(headgate.OpTake.String(), err)
	}
	s := c.seats.Get().(*seat)
	s.set(shape, c.store.prefix, check)
	s.until, _ = ctx.Deadline()
	if !c.join(s) {
		to.End(time.Time{}, nil)
		return reply{status: statusRefused}, nil
	}
	select {
	case <-s.done:
	case <-ctx.Done():
		// Units that the call charges stay charged, as they would after a call of its own. The seat
		// is not reused, because the goroutine that makes the call may still write to it.
		s.left.Store(true)
		to.End(time.Time{}, ctx.Err())
		return reply{}, unavailable(headgate.OpTake.String(), ctx.Err())
	}
	r, err := s.reply, s.err
	s.reply, s.err = reply{}, nil
	c.seats.Put(s)
	to.End(time.Time{}, err)
	return r, err
}

// set prepares the seat for a check. It copies all that the call needs, because the caller may have
// given up before the call is made.
func (s *seat) set(shape shape, prefix string, c *headgate.Check) {
	limits := c.Rule.Limits()
	b := appendKey(s.text[:0], prefix, c)
	s.shape, s.key = shape, len(b)
	b = append(b, byte(shape))
	switch shape {
	case shapeBucket:
		s.work = 1
	case shapeBuckets:
		s.work = 1 + (len(limits)+1)/2
	case shapeWindows:
		s.work = 2 + len(limits)/2
	}
	if shape == shapeWindows {
		b = appendWindows(append(b, byte(len(limits))), limits)
	} else {
		b = appendLayout(b, limits)
		for i := range limits {
			b = appendBucket(b, &limits[i])
		}
	}
	s.text = binary.BigEndian.AppendUint32(b, uint32(c.Units()))
}

// join adds a seat to those that wait for the next call. It returns false after end.
func (c *combiner) join(s *seat) bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.over {
		return false
	}
	c.waiting = append(c.waiting, s)
	if c.runs < sharedCalls {
		c.runs++
		c.running.Go(c.run)
	}
	return true
}

// run makes shared calls while decisions wait.
func (c *combiner) run() {
	var batch []*seat
	for {
		// Let other goroutines run that are about to ask, so that their decisions join this call.
		runtime.Gosched()
		if batch = c.board(batch); len(batch) == 0 {
			return
		}
		c.call(batch)
	}
}

// board takes the seats of the next call from those that wait, and returns them in the array of
// batch. It returns an empty batch if no decision waits. Then the goroutine must end.
func (c *combiner) board(batch []*seat) []*seat {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.consider()
	clear(batch)
	c.waiting = slices.DeleteFunc(c.waiting, func(s *seat) bool { return s.left.Load() })
	if len(c.waiting) == 0 {
		c.runs--
		return batch[:0]
	}
	from, to, work := 0, 0, 0
	if c.late(time.Now()) {
		for from = len(c.waiting); from > 0 && work+c.waiting[from-1].work <= batchWork; from-- {
			work += c.waiting[from-1].work
		}
		to = len(c.waiting)
	} else {
		for ; to < len(c.waiting) && work+c.waiting[to].work <= batchWork; to++ {
			work += c.waiting[to].work
		}
	}
	batch = append(batch[:0], c.waiting[from:to]...)
	c.waiting = slices.Delete(c.waiting, from, to)
	return batch
}

// late reports whether the decision that has waited longest has less than a quarter of a call's
// timeout left. If so, decisions arrive faster than they can be answered. In their order, each of
// them would be sent when its time is nearly over, and the server would do all of its work for
// callers that have given up. So the newest decisions are sent first, because they have enough time
// left. Decisions that are never sent are not charged.
func (c *combiner) late(now time.Time) bool {
	first := c.waiting[0].until
	return !first.IsZero() && first.Sub(now) < c.store.deadlines.Timeout/4
}

// consider is called before each batch. Every calmBatches times, it ends sharing if the number of
// pending calls has stayed below 3/4 of from.
func (c *combiner) consider() {
	c.peak = max(c.peak, c.store.guards.Any().Calls())
	if c.batches++; c.batches < calmBatches {
		return
	}
	if c.peak < c.from-c.from/4 {
		c.on.Store(false)
	}
	c.batches, c.peak = 0, 0
}

// call makes the shared call for a batch and hands out the answers.
func (c *combiner) call(batch []*seat) {
	text, err := c.ask(batch)
	var head reply
	alone := isCrossSlot(err)
	switch {
	case alone:
		// The server is a node of a cluster, or a proxy in front of one. Nothing was charged.
		c.unfit.Store(true)
		c.on.Store(false)
		err = nil
	case err != nil:
		err = unavailable(headgate.OpTake.String(), err)
	default:
		head, err = parseReply(text)
	}
	text = head.text
	for _, s := range batch {
		if alone {
			s.reply.status = statusRefused
		} else if err == nil {
			s.reply, text, err = s.read(head.now, text)
		}
		s.err = err
		s.done <- struct{}{}
	}
}

func isCrossSlot(err error) bool { return refusal.Is(err, "CROSSSLOT") }

// ask makes the call. Its deadline is that of a call that begins now.
func (c *combiner) ask(batch []*seat) (string, error) {
	shared, release, err := c.store.deadlines.Limit(c.ctx)
	if err != nil {
		return "", err
	}
	defer release()
	end, _ := shared.Deadline()
	ctx, cancel := context.WithDeadline(c.ctx, end)
	defer cancel()
	keys, args := c.arguments(batch)
	return c.store.run(ctx, c.store.guards.Any(), time.Now(), c.script, keys, args, false)
}

// arguments returns the keys and the arguments of batch.lua. All of them are parts of one string.
func (c *combiner) arguments(batch []*seat) (keys, args []string) {
	names, specs := 0, 0
	for _, s := range batch {
		names += s.key
		specs += len(s.text) - s.key
	}
	b := make([]byte, 0, names+specs)
	for _, s := range batch {
		b = append(b, s.text[:s.key]...)
	}
	var before []byte
	for _, s := range batch {
		what := s.text[s.key:]
		if s.shape == shapeBucket && bytes.Equal(what, before) {
			b = append(b, 0) // the same as the previous one
		} else {
			b = append(b, what...)
		}
		before = what
	}
	all := string(b)
	keys = make([]string, len(batch))
	for i, s := range batch {
		keys[i], all = all[:s.key], all[s.key:]
	}
	args = append(make([]string, 0, 2), all)
	if c.store.clock != nil {
		args = append(args, string(appendInt(nil, c.store.clock())))
	}
	return keys, args
}

// Further statuses in the answers of batch.lua about a single bucket.
const (
	statusDeniedNew   = 4 // denied; the counter had no value
	statusAdmittedNew = 5 // admitted; the counter had no value

	bucketBytes = 1 + 8 + stateBytes // the length of a counter's value
)

// read parses the seat's answer at the front of text, and returns the rest of the text.
func (s *seat) read(now headgate.Instant, text string) (r reply, rest string, err error) {
	size, value := 1, 0
	if s.shape != shapeBucket {
		size = 2
	}
	if len(text) < size {
		return reply{}, "", tooShort(len(text), size)
	}
	if s.shape == shapeBucket {
		r = reply{status: int(text[0]), now: now}
		switch r.status {
		case statusDenied, statusAdmitted:
			value = bucketBytes
		case statusDeniedNew, statusAdmittedNew:
			r.status -= statusDeniedNew
		}
	} else {
		value = int(readUint(text, 2))
	}
	text = text[size:]
	if len(text) < value {
		return reply{}, "", tooShort(len(text), value)
	}
	mine, rest := text[:value], text[value:]
	switch {
	case s.shape == shapeBucket:
		r.text = mine
	case value == 0:
		r = reply{status: statusRefused}
	default:
		r, err = parseReply(mine)
	}
	return r, rest, err
}

// end cancels the calls in flight, and waits until the goroutines that make them have ended. Later
// decisions cannot join.
func (c *combiner) end() {
	if c == nil {
		return
	}
	c.mu.Lock()
	c.over = true
	c.mu.Unlock()
	c.cancel()
	c.running.Wait()
}
