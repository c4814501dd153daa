package redis

import (
	"context"
	_ "embed"
	"errors"
	"fmt"
	"strings"
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
	//go:embed lua/refund.lua
	refundLua string
)

// What the scripts answer first.
const (
	statusDenied   = 0
	statusAdmitted = 1
	statusWindow   = 2 // a calendar window does not contain the store's time
	statusOther    = 3 // a short script found what only take.lua knows; nothing was done
)

// Store keeps counters in Redis or Valkey. It is safe for concurrent use.
type Store struct {
	client    rueidis.Client
	owned     bool
	prefix    string
	deadlines deadlines
	pending   pending
	clock     func() int64
	ahead     atomic.Int64 // the server's clock less ours, in µs, as of the last reply

	bucket, buckets, window, take, refund *rueidis.Lua
}

var _ headgate.Store = (*Store)(nil)

// Open connects to the server that the URL names and checks that it answers:
//
//	redis://[user[:password]@]host[:port][/database]
//	rediss://…  the same over TLS
//
// The context bounds the connecting. Close the store when it is no longer needed.
func Open(ctx context.Context, url string, options ...Option) (*Store, error) {
	o, err := parseURL(url)
	if err != nil {
		return nil, err
	}
	set := newSettings(append([]Option{WithMaxPending(openMaxPending)}, options...))
	if err := set.check(); err != nil {
		return nil, err
	}
	o.ConnWriteTimeout = max(o.ConnWriteTimeout, set.timeout)
	if end, ok := ctx.Deadline(); ok {
		o.Dialer.Timeout = max(time.Millisecond, min(o.Dialer.Timeout, time.Until(end)))
	}
	client, err := rueidis.NewClient(o)
	if err != nil {
		return nil, fmt.Errorf("%w: connecting to redis at %s: %w", headgate.ErrUnavailable, strings.Join(o.InitAddress, ", "), err)
	}
	s := newStore(client, set)
	s.owned = true
	if err := s.Ping(ctx); err != nil {
		s.Close()
		return nil, err
	}
	return s, nil
}

// New returns a store over a client that the caller made and will close. The
// client should have DisableRetry set, so that no call that may have counted is
// sent again.
func New(client rueidis.Client, options ...Option) (*Store, error) {
	set := newSettings(options)
	if err := set.check(); err != nil {
		return nil, err
	}
	return newStore(client, set), nil
}

func newSettings(options []Option) settings {
	set := settings{prefix: DefaultPrefix, timeout: DefaultTimeout, maxPending: DefaultMaxPending}
	for _, o := range options {
		o(&set)
	}
	return set
}

func newStore(client rueidis.Client, set settings) *Store {
	return &Store{
		client: client, prefix: set.prefix, deadlines: deadlines{timeout: set.timeout}, clock: set.clock,
		pending: pending{most: set.maxPending},
		bucket:  rueidis.NewLuaScript(arithmeticLua + bucketLua),
		buckets: rueidis.NewLuaScript(arithmeticLua + bucketsLua),
		window:  rueidis.NewLuaScript(windowLua),
		take:    rueidis.NewLuaScript(arithmeticLua + logLua + takeLua),
		refund:  rueidis.NewLuaScript(arithmeticLua + logLua + refundLua),
	}
}

// Close ends the connections, if [Open] made them.
func (s *Store) Close() {
	s.deadlines.close()
	if s.owned {
		s.client.Close()
	}
}

// Ping asks whether the server answers within the store's deadline.
func (s *Store) Ping(ctx context.Context) error {
	ctx, cancel, err := s.deadlines.limit(ctx)
	if err != nil {
		return unavailable("ping", err)
	}
	defer cancel()
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
	if op == headgate.OpReset {
		return dst, s.reset(ctx, checks)
	}
	if op == headgate.OpTake && len(checks) == 1 {
		if short := s.short(&checks[0]); short.script != nil {
			reply, err := s.exec(ctx, op, short.script, []string{short.key}, short.args)
			if err != nil {
				return dst, err
			}
			if reply.status != statusOther {
				return short.describe(reply, &checks[0], dst)
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
		reply, err := s.call(ctx, op, checks)
		if err != nil {
			return dst, err
		}
		s.ahead.Store(reply.now - time.Now().UnixMicro())
		if reply.status == statusWindow {
			continue
		}
		return reply.decisions(op, checks, dst)
	}
	return dst, unavailable(op.String(), errors.New("the server's clock jumps from calendar window to calendar window"))
}

// likely is what the store's clock probably says. Only calendar windows are
// chosen by it, and the script checks them.
func (s *Store) likely() int64 {
	if s.clock != nil {
		return s.clock()
	}
	return time.Now().UnixMicro() + s.ahead.Load()
}

// call runs take.lua or refund.lua. All keys and arguments are cut from one
// string.
func (s *Store) call(ctx context.Context, op headgate.Op, checks []headgate.Check) (reply, error) {
	script, mode := s.take, "0"
	switch op {
	case headgate.OpTake:
		mode = "1"
	case headgate.OpRefund:
		script = s.refund
	}
	near := s.likely()
	b := make([]byte, 0, 64+160*len(checks))
	keys := make([]string, 0, len(checks))
	args := make([]string, 0, 2+3*len(checks))
	ends := make([]int, 0, 1+4*len(checks))
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
			ends = append(ends, len(b))
		}
	}
	all := string(b)
	args = append(args, mode, all[:ends[0]])
	per := (len(ends) - 1) / len(checks)
	for i, end := range ends[1:] {
		if part := all[ends[i]:end]; i%per == 0 {
			keys = append(keys, part)
		} else {
			args = append(args, part)
		}
	}
	return s.exec(ctx, op, script, keys, args)
}

func (s *Store) exec(ctx context.Context, op headgate.Op, script *rueidis.Lua, keys, args []string) (reply, error) {
	if err := s.pending.begin(); err != nil {
		return reply{}, unavailable(op.String(), err)
	}
	text, err := script.Exec(ctx, s.client, keys, args).ToString()
	s.pending.end(err)
	if err != nil {
		return reply{}, unavailable(op.String(), err)
	}
	return parseReply(text)
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
	err := s.client.Do(ctx, command).Error()
	s.pending.end(err)
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
		return reply{}, unavailable("reading the script's answer", fmt.Errorf("it has %d bytes, must have %d or more", len(text), replyHead))
	}
	return reply{status: int(text[0]), now: readUint(text[1:], 7), text: text[replyHead:]}, nil
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
	for i := range limits {
		if l := &limits[i]; l.Algorithm != headgate.SlidingWindow {
			before := algorithm.Advance(l, readState(text), now)
			describe(&dst[i], l, op, before, c, now, charged)
			text = text[stateBytes:]
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
		after, fits = algorithm.Refund(l, before, cost, c.At), true
	}
	algorithm.Describe(d, l, before, after, now, cost, fits)
	if op == headgate.OpRefund {
		d.Delay = 0
	}
}
