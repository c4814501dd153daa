package redis

import (
	"context"
	_ "embed"
	"errors"
	"fmt"
	"hash/maphash"
	"sync/atomic"
	"time"

	"github.com/redis/rueidis"

	"github.com/headgate/headgate"
	"github.com/headgate/headgate/algorithm"
)

// The scripts. A script may be a file, or several behind one another.
var (
	//go:embed lua/arithmetic.lua
	arithmeticLua string
	//go:embed lua/log.lua
	logLua string
	//go:embed lua/bucket.lua
	bucketLua string
	//go:embed lua/buckets.lua
	bucketsLua string
	//go:embed lua/window.lua
	windowLua string
	//go:embed lua/take.lua
	takeLua string
	//go:embed lua/batch.lua
	batchLua string
	//go:embed lua/refund.lua
	refundLua string
	//go:embed lua/recall.lua
	recallLua string
)

// What the scripts answer first.
const (
	statusDenied   = 0
	statusAdmitted = 1
	statusWindow   = 2 // a calendar window does not contain the store's time
	statusOther    = 3 // a short script found what only take.lua knows; nothing was done
	statusConflict = 5 // the id is another request's, or the reservation was settled otherwise
	statusDenies   = 6 // a request that was denied is repeated under other limits
	statusAdmits   = 7 // one that was admitted
	statusNone     = 8 // there is no such reservation
	statusRefused  = 9 // the server refused what batch.lua asked for one check; nothing was done
)

// Store keeps counters in Redis or Valkey. It is safe for concurrent use.
type Store struct {
	client    rueidis.Client
	owned     bool
	prefix    string
	deadlines deadlines
	pending   pending
	doubt     doubt
	combiner  *combiner // nil: every decision has a call of its own
	clock     func() int64
	ahead     atomic.Int64 // the server's clock less ours, in µs, as of the last reply

	bucket, buckets, window, take, refund, recall *rueidis.Lua

	sweeping  sweeping
	observing observing
	clustered *clustered // nil if there is no cluster
}

var _ headgate.Store = (*Store)(nil)

// Open connects to the servers that the URL names and checks that they answer:
//
//	redis://[user[:password]@]host[:port][/database]
//	redis-sentinel://[user[:password]@]host[:port],…[/database]?master=name
//	redis-cluster://[user[:password]@]host[:port],…
//
// With rediss in the place of redis it speaks TLS. docs/redis.md has the parameters
// that may follow. User and password are those of the servers that hold data.
//
// The context bounds the connecting. The error is an [*headgate.InvalidError] if the
// URL or an option is at fault, or wraps [headgate.ErrUnavailable]. Close the store
// when it is no longer needed.
func Open(ctx context.Context, url string, options ...Option) (*Store, error) {
	set := newSettings()
	t, err := parseURL(url, &set)
	if err != nil {
		return nil, err
	}
	set.apply(options)
	if err := set.check(t.queue); err != nil {
		return nil, err
	}
	client, links, err := t.client(ctx, &set)
	if err != nil {
		return nil, err
	}
	s := newStore(client, set)
	s.owned = true
	s.pending.links = links
	if err := s.greet(ctx, max(t.connectTimeout, set.timeout)); err != nil {
		s.Close()
		return nil, err
	}
	return s, nil
}

// greet asks whether the server answers, as a part of connecting to it: a server
// that is slow for a moment is not one that is away.
func (s *Store) greet(ctx context.Context, within time.Duration) error {
	ctx, cancel := context.WithTimeout(ctx, within)
	defer cancel()
	if s.clustered != nil {
		return s.pingAll(ctx)
	}
	return s.ping(ctx)
}

// New returns a store over a client that the caller made and will close. The
// client should have DisableRetry set, so that no call that may have counted is
// sent again.
func New(client rueidis.Client, options ...Option) (*Store, error) {
	set := newSettings(append([]Option{WithMaxPending(DefaultMaxPending)}, options...)...)
	if err := set.check(0); err != nil {
		return nil, err
	}
	return newStore(client, set), nil
}

func newStore(client rueidis.Client, set settings) *Store {
	s := &Store{
		client: client, prefix: set.fullPrefix(), deadlines: deadlines{timeout: set.timeout}, clock: set.clock,
		pending: pending{most: set.maxPending}, observing: observing{tell: set.observer},
		bucket:  rueidis.NewLuaScript(arithmeticLua + bucketLua),
		buckets: rueidis.NewLuaScript(arithmeticLua + bucketsLua),
		window:  rueidis.NewLuaScript(windowLua),
		take:    rueidis.NewLuaScript(arithmeticLua + logLua + takeLua),
		refund:  rueidis.NewLuaScript(arithmeticLua + logLua + refundLua),
		recall:  rueidis.NewLuaScript(recallLua),
	}
	if client.Mode() == rueidis.ClientModeCluster {
		s.clustered = &clustered{suspects: suspects{seed: maphash.MakeSeed()}}
		s.doubt.lasts = doubtLasts
	} else if set.combineFrom > 0 {
		s.combiner = newCombiner(s, set.combineFrom)
	}
	return s
}

// Close ends the connections, if [Open] made them.
func (s *Store) Close() {
	s.sweeping.end()
	s.deadlines.close()
	s.combiner.end()
	if s.owned {
		s.client.Close()
	}
	if s.clustered != nil {
		s.clustered.tasks.end()
	}
}

// Prefix is what the names of all its keys begin with.
func (s *Store) Prefix() string { return s.prefix }

// Ping asks whether the server, or a node of the cluster, answers within the store's
// deadline.
func (s *Store) Ping(ctx context.Context) error {
	ctx, cancel, err := s.deadlines.limit(ctx)
	if err != nil {
		return unavailable("ping", err)
	}
	defer cancel()
	return s.ping(ctx)
}

func (s *Store) ping(ctx context.Context) error {
	if s.clustered != nil {
		return s.pingAny(ctx)
	}
	return s.do(ctx, "ping", s.client.B().Ping().Build())
}

// Take implements [headgate.Store]. Every call ends within the deadline of
// [WithTimeout], or by the context's own deadline if that is earlier. A context
// that is cancelled during the call is not heeded: the call may have counted.
func (s *Store) Take(ctx context.Context, op headgate.Op, checks []headgate.Check, dst []headgate.Decision) ([]headgate.Decision, error) {
	if err := headgate.Validate(op, checks); err != nil {
		return dst, err
	}
	ctx, cancel, err := s.deadlines.limit(ctx)
	if err != nil {
		return dst, unavailable(op.String(), err)
	}
	defer cancel()
	if op == headgate.OpCharge {
		return s.charge(ctx, checks, dst)
	}
	if s.clustered != nil {
		return s.takeCluster(ctx, op, checks, dst)
	}
	return s.takeOne(ctx, op, checks, dst)
}

// takeOne is Take for checks whose counters can be reached by one call.
func (s *Store) takeOne(ctx context.Context, op headgate.Op, checks []headgate.Check, dst []headgate.Decision) ([]headgate.Decision, error) {
	if op == headgate.OpReset {
		return dst, s.reset(ctx, checks)
	}
	if op == headgate.OpTake && len(checks) == 1 {
		if shape := shapeOf(&checks[0]); shape != shapeOther {
			reply, err := s.one(ctx, shape, &checks[0])
			if err != nil {
				return dst, err
			}
			if reply.status != statusOther {
				return shape.describe(reply, &checks[0], dst)
			}
		}
	}
	return s.decide(ctx, op, checks, dst)
}

// windowTries bounds how often a call is repeated because the store's clock has
// left the calendar window it was made for. Once is usual, at a window's end.
const windowTries = 4

func (s *Store) decide(ctx context.Context, op headgate.Op, checks []headgate.Check, dst []headgate.Decision) ([]headgate.Decision, error) {
	for range windowTries {
		reply, err := s.call(ctx, op, checks, nil)
		if err != nil {
			return dst, err
		}
		s.ahead.Store(reply.now - time.Now().UnixMicro())
		if reply.status == statusWindow {
			continue
		}
		return reply.decisions(op, checks, dst)
	}
	return dst, jumps(op)
}

func jumps(op headgate.Op) error {
	return unavailable(op.String(), errors.New("the server's clock jumps from calendar window to calendar window"))
}

// likely is what the store's clock probably says. Only calendar windows are
// chosen by it, and the script checks them.
func (s *Store) likely() int64 {
	if s.clock != nil {
		return s.clock()
	}
	return time.Now().UnixMicro() + s.ahead.Load()
}

// call runs take.lua, for a request that is to be remembered if there is a note, or
// refund.lua. All keys and arguments are cut from one string.
func (s *Store) call(ctx context.Context, op headgate.Op, checks []headgate.Check, n *note) (reply, error) {
	script, mode := s.take, "0"
	switch op {
	case headgate.OpTake:
		mode = "1"
	case headgate.OpRefund:
		script = s.refund
	}
	if n != nil {
		mode = "2"
	}
	near := s.likely()
	b := make([]byte, 0, 64+160*len(checks))
	keys := make([]string, 0, len(checks)+1)
	args := make([]string, 0, 7+4*len(checks))
	ends := make([]int, 0, 1+5*len(checks))
	if s.clock != nil {
		b = appendInt(b, near)
	}
	ends = append(ends, len(b))
	for i := range checks {
		c := &checks[i]
		b = appendKey(b, s.prefix, c)
		ends = append(ends, len(b))
		b = appendSpec(b, c.Rule, near)
		ends = append(ends, len(b))
		cost := c.Units()
		if c.Shadow && op != headgate.OpRefund {
			cost = -cost
		}
		b = appendInt(b, cost)
		ends = append(ends, len(b))
		if op == headgate.OpRefund {
			b = appendInt(b, c.At)
			ends = append(ends, len(b), len(b)) // and it is not known how many were in use
		}
	}
	keys, args = cutArgs(string(b), ends, len(checks), append(args, mode), keys)
	if n != nil {
		keys, args = append(keys, n.key), n.append(args)
	}
	return s.exec(ctx, op, script, keys, args)
}

// cutArgs cuts the arguments of take.lua and refund.lua from one text: the time up
// to the first end, then for each check its key, and as many arguments for each.
func cutArgs(all string, ends []int, checks int, args, keys []string) (k, a []string) {
	args = append(args, all[:ends[0]])
	per := (len(ends) - 1) / checks
	for i, end := range ends[1:] {
		if part := all[ends[i]:end]; i%per == 0 {
			keys = append(keys, part)
		} else {
			args = append(args, part)
		}
	}
	return keys, args
}

func (s *Store) exec(ctx context.Context, op headgate.Op, script *rueidis.Lua, keys, args []string) (reply, error) {
	if err := s.pending.begin(); err != nil {
		return reply{}, unavailable(op.String(), err)
	}
	text, err := s.run(ctx, script, keys, args)
	s.pending.end(err)
	if err != nil {
		return reply{}, unavailable(op.String(), err)
	}
	return parseReply(text)
}

// run calls a script, whoever counts the call as pending.
func (s *Store) run(ctx context.Context, script *rueidis.Lua, keys, args []string) (text string, err error) {
	if s.observing.tell != nil {
		op := headgate.OpTake
		if script == s.refund {
			op = headgate.OpRefund
		}
		defer func(start time.Time) { s.observe(slotOf(keys[0]), op.String(), start, err) }(time.Now())
	}
	if s.doubt.now(ctx) {
		text, err = bounded(ctx, func() (string, error) { return script.Exec(ctx, s.client, keys, args).ToString() })
	} else {
		text, err = script.Exec(ctx, s.client, keys, args).ToString()
	}
	s.doubt.note(ctx, err)
	return text, err
}

func (s *Store) reset(ctx context.Context, checks []headgate.Check) error {
	keys := make([]string, len(checks))
	for i := range checks {
		keys[i] = string(appendKey(nil, s.prefix, &checks[i]))
	}
	return s.do(ctx, "reset", s.client.B().Del().Key(keys...).Build())
}

// do sends a command of which only the error matters.
func (s *Store) do(ctx context.Context, doing string, command rueidis.Completed) error {
	if err := s.pending.begin(); err != nil {
		return unavailable(doing, err)
	}
	start, slot := time.Time{}, command.Slot()
	if s.observing.tell != nil {
		start = time.Now()
	}
	_, err := bounded(ctx, func() (struct{}, error) { return struct{}{}, s.client.Do(ctx, command).Error() })
	s.pending.end(err)
	if s.observing.tell != nil {
		s.observe(slot, doing, start, err)
	}
	if err != nil {
		return unavailable(doing, err)
	}
	return nil
}

// unavailable wraps what went wrong with what was being done.
func unavailable(doing string, err error) error {
	return fmt.Errorf("%w: redis: %s: %w", headgate.ErrUnavailable, doing, err)
}

// reply is a script's answer.
type reply struct {
	status int
	now    int64
	text   string // what is left of it
}

const replyHead = 8

func parseReply(text string) (reply, error) {
	if len(text) < replyHead {
		return reply{}, tooShort(len(text), replyHead)
	}
	return reply{status: int(text[0]), now: readUint(text[1:], 7), text: text[replyHead:]}, nil
}

// tooShort is the error of an answer that ends before its time.
func tooShort(has, least int) error {
	return unavailable("reading the script's answer", fmt.Errorf("it has %d bytes, must have %d or more", has, least))
}

// misread is the error of an answer that has not the bytes it must have.
func (r reply) misread(want int) error {
	return unavailable("reading the script's answer", fmt.Errorf("it has %d bytes of limits, must have %d", len(r.text), want))
}

// decisions describes the answer of take.lua or refund.lua: what the script read
// is taken through the same steps here.
func (r reply) decisions(op headgate.Op, checks []headgate.Check, dst []headgate.Decision) ([]headgate.Decision, error) {
	want := 0
	for i := range checks {
		want += limitBytes(checks[i].Rule.Limits())
	}
	if len(r.text) != want {
		return dst, r.misread(want)
	}
	admitted := op == headgate.OpTake && r.status == statusAdmitted
	text := r.text
	for i := range checks {
		c := &checks[i]
		limits := c.Rule.Limits()
		first := len(dst)
		for range limits {
			dst = append(dst, headgate.Decision{Rule: c.Rule, Check: i, Shadow: c.Shadow})
		}
		size := limitBytes(limits)
		charged := admitted && (!c.Shadow || fits(text, c, r.now))
		describeLimits(dst[first:], text, op, c, r.now, charged)
		text = text[size:]
	}
	return dst, nil
}

// limitBytes is how long a script's answer about a rule's limits is: the states
// of all that are not sliding windows, then the facts of those that are.
func limitBytes(limits []headgate.Limit) int {
	n := 0
	for i := range limits {
		if limits[i].Algorithm == headgate.SlidingWindow {
			n += factsBytes
		} else {
			n += stateBytes
		}
	}
	return n
}

// fits reports whether all limits of a check admit it, by what a script read.
func fits(text string, c *headgate.Check, now int64) bool {
	var room [headgate.MaxLimits]headgate.Decision
	decisions := room[:len(c.Rule.Limits())]
	describeLimits(decisions, text, headgate.OpPeek, c, now, false)
	for i := range decisions {
		if !decisions[i].Allowed {
			return false
		}
	}
	return true
}

// describeLimits describes the limits of one check.
func describeLimits(dst []headgate.Decision, text string, op headgate.Op, c *headgate.Check, now int64, charged bool) {
	limits := c.Rule.Limits()
	var penalty *headgate.Decision
	var before algorithm.State // of the penalty
	denied := false            // by a limit that is none
	for i := range limits {
		l := &limits[i]
		if l.Algorithm == headgate.SlidingWindow {
			continue
		}
		state := algorithm.Advance(l, readState(text), now)
		text = text[stateBytes:]
		describe(&dst[i], l, op, state, c, now, charged)
		if l.Algorithm == headgate.Penalty {
			penalty, before = &dst[i], state
		} else {
			denied = denied || !dst[i].Allowed
		}
	}
	for i := range limits {
		l := &limits[i]
		if l.Algorithm != headgate.SlidingWindow {
			continue
		}
		facts := readFacts(text, now)
		text = text[factsBytes:]
		if op == headgate.OpRefund {
			facts.Describe(&dst[i], l, now, 0, false)
			dst[i].Allowed, dst[i].RetryAfter = true, 0
		} else {
			facts.Describe(&dst[i], l, now, c.Units(), charged)
		}
		denied = denied || !dst[i].Allowed
	}
	if penalty != nil && denied && op == headgate.OpTake && penalty.Allowed {
		after := algorithm.Punish(penalty.Limit, before, now)
		algorithm.Describe(penalty, penalty.Limit, before, after, now, c.Units(), true)
	}
}

// describe takes the state that a script read through the step that the script
// made.
func describe(d *headgate.Decision, l *headgate.Limit, op headgate.Op, before algorithm.State, c *headgate.Check, now int64, charged bool) {
	after, cost := before, c.Units()
	fits := algorithm.Fits(l, before, now, cost)
	switch {
	case charged:
		after = algorithm.Charge(l, before, now, cost)
	case op == headgate.OpRefund:
		after, fits = algorithm.Refund(l, before, now, cost, c.At, 0), true
	}
	algorithm.Describe(d, l, before, after, now, cost, fits)
	if op == headgate.OpRefund {
		d.Allowed, d.RetryAfter, d.Delay = true, 0, 0
	}
}
