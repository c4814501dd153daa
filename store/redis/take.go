package redis

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"runtime"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/redis/rueidis"

	"github.com/headgate/headgate"
	"github.com/headgate/headgate/store"
	"github.com/headgate/headgate/store/redis/internal/guard"
	"github.com/headgate/headgate/store/redis/internal/refusal"
)

// Take implements [headgate.Store]. Every call ends at the deadline that [Timeout] sets, or at the
// context's own deadline if that is earlier. If a context without such an earlier deadline is
// cancelled during the call, the call goes on, because it may already have counted.
func (s *Store) Take(ctx context.Context, op headgate.Op, checks []headgate.Check, dst []headgate.Decision) ([]headgate.Decision, error) {
	if err := store.Validate(op, checks); err != nil {
		return dst, err
	}
	ctx, cancel, err := s.deadlines.Limit(ctx)
	if err != nil {
		return dst, unavailable(op.String(), err)
	}
	defer cancel()
	switch op {
	case headgate.OpReset:
		return dst, s.resetAll(ctx, checks)
	case headgate.OpRefund, headgate.OpCharge:
		return s.adjust(ctx, op, checks, dst)
	}
	if s.cluster != nil && !s.sameSlot(checks) {
		return s.takeGroups(ctx, op, checks, s.groups(checks), dst)
	}
	r, err := s.ask(ctx, op, checks)
	switch {
	case err == nil:
		return r.taken(op, checks, dst)
	case isTryAgain(err) && len(checks) > 1:
		return s.takeGroups(ctx, op, checks, oneGroup(checks).split(), dst)
	}
	return dst, err
}

// windowTries bounds how often a call is repeated because the store's clock has left the calendar
// window for which the call was made. At the end of a window, one repetition is normal.
const windowTries = 4

// inWindow makes a call until it was made for the calendar windows that the server's clock is in.
// The call begins at the time that it is given.
//
// While the server refuses such calls for a moment, they wait.
func (s *Store) inWindow(ctx context.Context, op headgate.Op, checks []headgate.Check, call func(began time.Time) (reply, error)) (reply, error) {
	for range windowTries {
		var began time.Time
		r, err := guard.Patient(ctx, func() *guard.Server { return s.guardOf(&checks[0]) }, op != headgate.OpPeek, func() (reply, error) {
			began = time.Now()
			return call(began)
		})
		if err != nil {
			return r, err
		}
		if r.status != statusWindow {
			return r, nil
		}
		s.learn(r.now, began)
	}
	return reply{}, unavailable(op.String(), errors.New("the server's clock jumps from calendar window to calendar window"))
}

// likely returns the probable time on the server's clock when it decides a call that begins at the
// given time. It is used to choose calendar windows, where the script checks the choice, and to find
// reservations that are due, where the note has the exact time.
func (s *Store) likely(began time.Time) headgate.Instant {
	if s.clock != nil {
		return headgate.Instant(s.clock())
	}
	return headgate.Instant(began.UnixMicro() + s.ahead.Load())
}

// learn notes the time on the server's clock when it decided a call.
func (s *Store) learn(now headgate.Instant, began time.Time) {
	ahead := int64(now) - began.UnixMicro()
	// Writes that change little would take the cache line from other processors.
	if off := ahead - s.ahead.Load(); off > 1000 || off < -1000 {
		s.ahead.Store(ahead)
	}
}

// ask decides checks whose counters are in one slot.
func (s *Store) ask(ctx context.Context, op headgate.Op, checks []headgate.Check) (reply, error) {
	mode := byte(modeTake)
	if op == headgate.OpPeek {
		mode = modePeek
	}
	return s.inWindow(ctx, op, checks, func(began time.Time) (reply, error) {
		q := s.requests.Get().(*request)
		q.set(s.prefix, mode, checks, s.likely(began))
		if s.combiner != nil {
			q.work = workOf(mode, checks)
		}
		r, err := s.askOne(ctx, op, q, began)
		if !q.left.Load() {
			s.requests.Put(q)
		}
		if err == nil {
			s.learn(r.now, began)
		}
		return r, err
	})
}

// askOne decides a request, in a shared call if that pays. It shares a call even while the guard is
// unsure of the connection. That is safe, because a shared call also ends at its deadline. And with
// calls of their own, late decisions would be even later.
func (s *Store) askOne(ctx context.Context, op headgate.Op, q *request, began time.Time) (reply, error) {
	if s.combiner.pays(s.guards.Any().Calls()) {
		if r, err := s.combiner.decide(ctx, op, q); r.status != statusRefused {
			return r, err
		}
	}
	keys, args := s.arguments(nil, q)
	return s.take(ctx, op, keys, args, began, true)
}

// take calls take.lua for one request that came at the given time. alone says that the call may use the dedicated connection.
// It must be false if a later call has to find the effect of this one, even if this one gets no
// answer: only calls on the same connection reach the server in their order.
func (s *Store) take(ctx context.Context, op headgate.Op, keys, args []string, came time.Time, alone bool) (reply, error) {
	to := s.guard(keys[0])
	began, err := to.Enter(ctx, came)
	if err != nil {
		return reply{}, unavailable(op.String(), err)
	}
	text, err := s.run(ctx, to, began, s.scripts.take, keys, args, alone)
	to.Leave(began, err)
	if err != nil {
		return reply{}, unavailable(op.String(), err)
	}
	all, err := parseAnswers(text)
	if err != nil {
		return reply{}, err
	}
	return all.next()
}

// guardOf returns the guard of the server that has the counters of a check.
func (s *Store) guardOf(c *headgate.Check) *guard.Server {
	if s.cluster == nil {
		return s.guards.Any()
	}
	return s.placesNow().guard(s.slotOfCheck(c), s.guards.Any())
}

// guard returns the guard of the server that has a key. On a cluster, its map of the slots may be a
// few seconds old.
func (s *Store) guard(key string) *guard.Server {
	if s.cluster == nil {
		return s.guards.Any()
	}
	return s.placesNow().guard(slotOf(key), s.guards.Any())
}

// run calls a script, at the given time. The guard of the server must have admitted the call.
func (s *Store) run(ctx context.Context, to *guard.Server, began time.Time, script *rueidis.Lua, keys, args []string, alone bool) (text string, err error) {
	if s.observing.tell != nil {
		op := headgate.OpTake
		if script == s.scripts.refund {
			op = headgate.OpRefund
		}
		defer func() { s.observe(slotOf(keys[0]), op.String(), began, err) }()
	}
	if alone && to.Calls() == 1 {
		var sent bool
		if text, sent, err = s.dedicated.call(ctx, script, keys, args); sent {
			if err != nil {
				to.Heard(began, err)
			}
			return text, err
		}
	}
	if to.Unsure(began) {
		text, err = guard.Bounded(ctx, func() (string, error) { return script.Exec(ctx, s.client, keys, args).ToString() })
	} else {
		text, err = script.Exec(ctx, s.client, keys, args).ToString()
	}
	to.Heard(began, err)
	return text, err
}

// unavailable wraps err with what was being done and with ErrUnavailable, and also with ErrDamaged
// if a script could not read a value.
func unavailable(doing string, err error) error {
	if refusal.Damaged(err) {
		return fmt.Errorf("%w: %w: redis: %s: %w", headgate.ErrUnavailable, headgate.ErrDamaged, doing, err)
	}
	return fmt.Errorf("%w: redis: %s: %w", headgate.ErrUnavailable, doing, err)
}

// Requests that are in flight at the same time share script calls, because each call has a fixed
// cost for the server and for the connection. A request in a shared call keeps everything that it
// would have with a call of its own: its deadline, its error and its order. It also counts as one
// pending call. There is no timer. A request is sent at once if fewer than two shared calls are in
// flight, or more while the server is mostly idle, because it is far away; see room. Otherwise it
// waits until one of them is answered, and is sent with all requests that have arrived until then. If
// requests arrive faster than they can be answered in time, the newest are sent first; see late.

const (
	// sharedCalls is how many shared calls may always be in flight. With two, the server works on
	// one while the answers of the other are handed out.
	sharedCalls = 2
	// batchWork bounds the server's work for one call. The unit is the work for a single bucket.
	batchWork = 128
	// callWork is the server's work for a call itself, in that unit.
	callWork = 1
	// slowest is how long a server takes for a unit of work at most, in µs, as far as is assumed.
	slowest = 20
	// tryEvery is for how many requests sharing is tried once while the server is mostly idle.
	tryEvery = 4096
	// calmBatches is the number of batches after which sharing ends if too few calls were pending
	// during all of them.
	calmBatches = 16
)

// combiner collects requests for shared calls. While requests wait, a goroutine for each call that
// may be in flight makes these calls. It is safe for concurrent use.
type combiner struct {
	store *Store
	from  int64 // the least number of pending calls with which sharing pays

	on    atomic.Bool // requests share calls
	unfit atomic.Bool // the server refuses shared calls
	// room is how much work the server does in a quarter of the time of the fastest answer. While
	// less is in flight, the server is mostly idle, because calls and answers are on their way.
	room atomic.Int64

	mu       sync.Mutex // guards what follows, up to over
	waiting  []*request
	runs     int              // how many goroutines make calls
	flying   int              // the work of the calls in flight
	lastWork int              // the work of the last call that was answered
	lastAt   headgate.Instant // the server's clock when it decided that call
	fastest  time.Duration    // the least time that an answer took lately
	unit     float64          // the least time that the server took lately for a unit of work, in µs
	batches  int              // how many times consider was called since it last decided
	peak     int64            // the most calls that were pending since then
	over     bool             // no more requests may join

	running sync.WaitGroup
	ctx     context.Context // the parent of the calls' contexts
	cancel  context.CancelFunc
}

// flight is a shared call.
type flight struct {
	batch []*request
	work  int              // the server's work for it
	took  time.Duration    // the time until its answer
	at    headgate.Instant // the server's clock when it decided; 0: it has not
}

func newCombiner(s *Store, from int64) *combiner {
	c := &combiner{store: s, from: from, unit: slowest}
	c.ctx, c.cancel = context.WithCancel(context.Background())
	return c
}

// pays reports whether a request should share a call while the given number of calls is pending.
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
	// Now and then it is tried, because room is known from shared calls only, and may be of long ago.
	if calls+1 < c.least() && rand.Uint32()%tryEvery != 0 {
		return false
	}
	c.on.Store(true)
	return true
}

// least returns the least number of pending calls with which sharing pays: from, or as many as keep
// the server busy. With from 1, all requests share calls.
func (c *combiner) least() int64 {
	if c.from == 1 {
		return 1
	}
	return max(c.from, c.room.Load())
}

// decide decides a request with a shared call. It returns statusRefused if the request needs a call
// of its own.
func (c *combiner) decide(ctx context.Context, op headgate.Op, q *request) (reply, error) {
	to := c.store.guards.Any()
	if err := to.Begin(); err != nil {
		return reply{}, unavailable(op.String(), err)
	}
	q.until, _ = ctx.Deadline()
	if !c.join(q) {
		to.End(time.Time{}, nil)
		return reply{status: statusRefused}, nil
	}
	select {
	case <-q.done:
	case <-ctx.Done():
		// Units that the call charges stay charged, as they would after a call of its own.
		q.left.Store(true)
		to.End(time.Time{}, ctx.Err())
		return reply{}, unavailable(op.String(), ctx.Err())
	}
	r, err := q.reply, q.err
	q.reply, q.err = reply{}, nil
	to.End(time.Time{}, err)
	if err != nil && !errors.Is(err, headgate.ErrUnavailable) {
		err = unavailable(op.String(), err)
	}
	return r, err
}

// join adds a request to those that wait for the next call. It returns false after end.
func (c *combiner) join(q *request) bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.over {
		return false
	}
	c.waiting = append(c.waiting, q)
	// There is more room only after an answer, and then board looks at those who wait. So only the
	// first of them has to look here.
	if c.runs < sharedCalls || len(c.waiting) == 1 && int64(c.flying) < c.room.Load() {
		c.runs++
		c.running.Go(c.run)
	}
	return true
}

// run makes shared calls while requests wait.
func (c *combiner) run() {
	var f flight
	for {
		// Let other goroutines run that are about to ask, so that their requests join this call.
		runtime.Gosched()
		if c.board(&f); len(f.batch) == 0 {
			return
		}
		c.call(&f)
	}
}

// board makes a flight, which has ended, that of the next call: it takes the requests from those
// that wait. If there are none, or the call may not be made yet, the batch is empty, and the
// goroutine must end.
func (c *combiner) board(f *flight) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.consider()
	c.flying -= f.work
	if f.at != 0 {
		c.heard(f)
	}
	clear(f.batch)
	f.batch, f.work = f.batch[:0], 0
	c.waiting = slices.DeleteFunc(c.waiting, func(q *request) bool { return q.left.Load() })
	if len(c.waiting) == 0 || c.runs > sharedCalls && int64(c.flying) >= c.room.Load() {
		c.runs--
		return
	}
	from, to, work := 0, 0, 0
	if c.late(time.Now()) {
		to = len(c.waiting)
		for from = to; from > 0 && (from == to || work+c.waiting[from-1].work <= batchWork); from-- {
			work += c.waiting[from-1].work
		}
	} else {
		for ; to < len(c.waiting) && (to == 0 || work+c.waiting[to].work <= batchWork); to++ {
			work += c.waiting[to].work
		}
	}
	f.batch = append(f.batch, c.waiting[from:to]...)
	f.work = work + callWork
	c.flying += f.work
	c.waiting = slices.Delete(c.waiting, from, to)
}

// heard learns from an answer how far away the server is, and how fast. Two calls that follow each
// other closely tell the latter, however far away it is: by its clock, the second one is decided
// when the work for the first one has been done. With each answer, what is known of earlier ones
// loses 1/256.
//
// While the server is busy, there is no room, because then an answer takes as long as the work of the
// calls in flight.
func (c *combiner) heard(f *flight) {
	if c.fastest += c.fastest / 256; c.fastest == 0 || f.took < c.fastest {
		c.fastest = f.took
	}
	c.unit = min(c.unit+c.unit/256, slowest)
	if gap := float64(f.at - c.lastAt); gap > 0 {
		c.unit = min(c.unit, gap/float64(c.lastWork))
	}
	c.lastWork, c.lastAt = f.work, f.at
	c.room.Store(int64(float64(c.fastest.Microseconds()) / 4 / c.unit))
}

// late reports whether the request that has waited longest has less than a quarter of a call's
// timeout left. If so, requests arrive faster than they can be answered. In their order, each of
// them would be sent when its time is nearly over, and the server would do all of its work for
// callers that have given up. So the newest requests are sent first, because they have enough time
// left. Requests that are never sent are not charged.
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
	if least := c.least(); c.peak < least-least/4 {
		c.on.Store(false)
	}
	c.batches, c.peak = 0, 0
}

// call makes the shared call for a batch and hands out the answers.
func (c *combiner) call(f *flight) {
	began := time.Now()
	text, err := c.exec(f.batch, began)
	f.took = time.Since(began)
	split := isCrossSlot(err)
	var all answers
	switch {
	case split:
		// The server is a node of a cluster, or a proxy in front of one. Nothing was charged.
		c.unfit.Store(true)
		c.on.Store(false)
	case err == nil:
		all, err = parseAnswers(text)
	}
	f.at = all.now
	for _, q := range f.batch {
		switch {
		case split:
			q.reply.status = statusRefused
		case err != nil:
			q.err = err
		default:
			q.reply, err = all.next()
			q.err = err
		}
		q.done <- struct{}{}
	}
}

func isCrossSlot(err error) bool { return refusal.Is(err, "CROSSSLOT") }

// exec makes the call. Its deadline is that of a call that begins now.
func (c *combiner) exec(batch []*request, began time.Time) (string, error) {
	shared, release, err := c.store.deadlines.Limit(c.ctx)
	if err != nil {
		return "", err
	}
	defer release()
	end, _ := shared.Deadline()
	ctx, cancel := context.WithDeadline(c.ctx, end)
	defer cancel()
	keys, args := c.store.arguments(nil, batch...)
	return c.store.run(ctx, c.store.guards.Any(), began, c.store.scripts.take, keys, args, false)
}

// end cancels the calls in flight, and waits until the goroutines that make them have ended. Later
// requests cannot join.
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
