package redis

import (
	"context"
	_ "embed"
	"errors"
	"hash/maphash"
	"sync/atomic"
	"time"

	"github.com/redis/rueidis"

	"github.com/headgate/headgate"
	"github.com/headgate/headgate/store"
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

// Store keeps counters in Redis or Valkey. It is safe for concurrent use.
type Store struct {
	client    rueidis.Client
	owned     bool
	target    *target // what the URL says; nil if there is none
	prefix    string
	deadlines deadlines
	pending   pending
	doubt     doubt
	combiner  *combiner // nil: every decision has a call of its own
	lanes     []lane
	clock     func() int64
	ahead     atomic.Int64 // the server's clock less ours, in µs, as of the last reply

	bucket, buckets, window, take, refund, recall, permits *rueidis.Lua

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
	s.owned, s.target = true, t
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
		permits: rueidis.NewLuaScript(permitsLua),
	}
	ways := 1
	if client.Mode() == rueidis.ClientModeCluster {
		ways = clusterLanes
		s.clustered = &clustered{suspects: suspects{seed: maphash.MakeSeed()}}
		s.doubt.lasts = doubtLasts
	} else if set.combineFrom > 0 {
		s.combiner = newCombiner(s, set.combineFrom)
	}
	s.lanes = make([]lane, ways)
	for i := range s.lanes {
		s.lanes[i].timeout = set.timeout
	}
	return s
}

// Close ends the connections, if [Open] made them. Calls that come later fail.
func (s *Store) Close() {
	s.pending.close()
	for i := range s.lanes {
		s.lanes[i].end()
	}
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
	return answered(s.do(ctx, "ping", s.client.B().Ping().Build()))
}

// answered is nil for the error of a PING that was answered: a server that cannot save
// refuses even that with MISCONF.
func answered(err error) error {
	if replies(err, "MISCONF") {
		return nil
	}
	return err
}

// Take implements [headgate.Store]. Every call ends within the deadline of
// [WithTimeout], or by the context's own deadline if that is earlier. A context
// that is cancelled during the call is not heeded: the call may have counted.
func (s *Store) Take(ctx context.Context, op headgate.Op, checks []headgate.Check, dst []headgate.Decision) ([]headgate.Decision, error) {
	if err := store.Validate(op, checks); err != nil {
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
