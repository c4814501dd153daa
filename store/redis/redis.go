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
	"github.com/headgate/headgate/store/redis/doctor"
	"github.com/headgate/headgate/store/redis/internal/guard"
	"github.com/headgate/headgate/store/redis/internal/refusal"
	"github.com/headgate/headgate/store/redis/internal/target"
)

// The parts of the scripts. A script consists of one part, or of several that are joined.
var (
	//go:embed lua/arithmetic.lua
	arithmeticLua string
	//go:embed lua/log.lua
	logLua string
	//go:embed lua/shared.lua
	sharedLua string
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
	links     *target.Links  // nil if the caller made the client
	target    *target.Target // what the URL says; nil if there is none
	prefix    string
	deadlines guard.Deadlines
	guards    *guard.Servers
	combiner  *combiner // nil: every decision has a call of its own
	lone      *lone     // nil: all calls share their connections
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
// With rediss instead of redis, the connections use TLS. docs/redis.md has the parameters that may
// follow. User and password are those of the servers that hold data, not of Sentinels.
//
// The context bounds the time for connecting. The error is an [*headgate.InvalidError] if the URL
// or an option is wrong, or it wraps [headgate.ErrUnavailable], and [store.ErrRefused] too if the
// server does not take the password, the database or the like. Close the store when it is no longer
// needed.
func Open(ctx context.Context, url string, options ...Option) (*Store, error) {
	s, err := open(ctx, url, options)
	if refusal.Lasting(err) {
		err = store.Refused(err)
	}
	return s, err
}

func open(ctx context.Context, url string, options []Option) (*Store, error) {
	set := newSettings()
	t, err := target.Parse(url, &set.Settings)
	if err != nil {
		return nil, err
	}
	set.apply(options)
	if err := set.check(t.Queue); err != nil {
		return nil, err
	}
	client, links, err := t.Connect(ctx, set.timeout, set.fullPrefix())
	if err != nil {
		return nil, err
	}
	s := newStore(client, set, links.Note)
	s.links, s.target = links, t
	if links.Alone != nil {
		s.lone = newLone(links, max(t.ConnectTimeout, set.timeout))
	}
	if err := s.greet(ctx, max(t.ConnectTimeout, set.timeout)); err != nil {
		s.Close()
		return nil, err
	}
	return s, nil
}

// greet checks that the server answers, as a part of connecting to it. It is more patient than a
// decision, because a server that is slow for a moment is not gone.
func (s *Store) greet(ctx context.Context, within time.Duration) error {
	ctx, cancel := context.WithTimeout(ctx, within)
	defer cancel()
	if s.clustered != nil {
		return s.pingAll(ctx)
	}
	return s.ping(ctx)
}

// New returns a store that uses a client, which the caller has made and will close. The client
// should have DisableRetry set, so that no call is repeated that may have counted.
func New(client rueidis.Client, options ...Option) (*Store, error) {
	set := newSettings(append([]Option{MaxPending(DefaultMaxPending)}, options...)...)
	if err := set.check(0); err != nil {
		return nil, err
	}
	return newStore(client, set, nil), nil
}

// newStore returns a store that uses a client. If refused is not nil, it is called with the errors
// of calls.
func newStore(client rueidis.Client, set settings, refused func(error)) *Store {
	clustering := client.Mode() == rueidis.ClientModeCluster
	s := &Store{
		client: client, prefix: set.fullPrefix(), deadlines: guard.Deadlines{Timeout: set.timeout}, clock: set.clock,
		guards:    guard.New(guard.Options{Timeout: set.timeout, Most: set.MaxPending, Refused: refused, Nodes: clustering}),
		observing: observing{tell: set.observer},
		bucket:    rueidis.NewLuaScript(arithmeticLua + bucketLua),
		buckets:   rueidis.NewLuaScript(arithmeticLua + bucketsLua),
		window:    rueidis.NewLuaScript(windowLua),
		take:      rueidis.NewLuaScript(arithmeticLua + logLua + sharedLua + takeLua),
		refund:    rueidis.NewLuaScript(arithmeticLua + logLua + sharedLua + refundLua),
		recall:    rueidis.NewLuaScript(recallLua),
		permits:   rueidis.NewLuaScript(permitsLua),
	}
	if clustering {
		s.clustered = &clustered{suspects: suspects{seed: maphash.MakeSeed()}}
	} else if set.CombineFrom > 0 {
		s.combiner = newCombiner(s, set.CombineFrom)
	}
	return s
}

// Close closes the connections, if [Open] has made them. Later calls fail.
func (s *Store) Close() {
	s.guards.Close()
	s.sweeping.end()
	s.deadlines.Close()
	s.combiner.end()
	s.lone.end()
	if s.links != nil {
		s.client.Close()
		s.links.Close()
	}
	if s.clustered != nil {
		s.clustered.tasks.end()
	}
}

// Prefix is the prefix of the names of all keys of the store.
func (s *Store) Prefix() string { return s.prefix }

// Ping checks that the server, or a node of the cluster, answers within the store's deadline.
func (s *Store) Ping(ctx context.Context) error {
	ctx, cancel, err := s.deadlines.Limit(ctx)
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
	return refusal.Answered(s.do(ctx, "ping", s.client.B().Ping().Build()))
}

// CheckURL returns what is wrong with a URL for [Open]: an [*headgate.InvalidError] that lists
// every mistake. It does not open the files that the URL names. It does not repeat passwords, nor
// anything that could be part of one.
func CheckURL(url string) error {
	_, err := target.Parse(url, new(target.Settings))
	return err
}

// DescribeURL returns the URL without its secrets, for logs: scheme, addresses, database and the
// name of the primary. It returns "a store" if [Open] would not take the URL.
func DescribeURL(url string) string {
	t, err := target.Parse(url, new(target.Settings))
	if err != nil {
		return "a store"
	}
	return t.String()
}

// Diagnose looks for operational problems. See [doctor.Diagnose].
func (s *Store) Diagnose(ctx context.Context) (*doctor.Diagnosis, error) {
	return doctor.Diagnose(ctx, doctor.Subject{Store: s, Client: s.client, Target: s.target, Prefix: s.prefix, Timeout: s.deadlines.Timeout})
}

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

// windowTries bounds how often a call is repeated because the store's clock has left the calendar
// window for which the call was made. At the end of a window, one repetition is normal.
const windowTries = 4

func (s *Store) decide(ctx context.Context, op headgate.Op, checks []headgate.Check, dst []headgate.Decision) ([]headgate.Decision, error) {
	for range windowTries {
		reply, err := s.call(ctx, op, checks, nil)
		if err != nil {
			return dst, err
		}
		s.heard(reply.now)
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

// likely returns the probable time on the server's clock. It is used to choose calendar windows,
// where the script checks the choice, and to find reservations that are due, where the note has the
// exact time.
func (s *Store) likely() headgate.Instant {
	if s.clock != nil {
		return headgate.Instant(s.clock())
	}
	return headgate.Instant(time.Now().UnixMicro() + s.ahead.Load())
}

// heard records the time that the server has just returned.
func (s *Store) heard(now headgate.Instant) { s.ahead.Store(int64(now) - time.Now().UnixMicro()) }
