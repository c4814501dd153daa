package redis

import (
	"context"
	"errors"
	"hash/maphash"
	"math"
	"os"
	"sync"
	"sync/atomic"
	"time"

	"github.com/redis/rueidis"

	"github.com/headgate/headgate"
	"github.com/headgate/headgate/internal/sleep"
	"github.com/headgate/headgate/store"
	"github.com/headgate/headgate/store/redis/doctor"
	"github.com/headgate/headgate/store/redis/internal/guard"
	"github.com/headgate/headgate/store/redis/internal/refusal"
	"github.com/headgate/headgate/store/redis/internal/target"
)

// Store keeps counters in Redis or Valkey. It is safe for concurrent use.
type Store struct {
	client    rueidis.Client
	links     *target.Links  // nil if the caller made the client
	target    *target.Target // what the URL says; nil if there is none
	prefix    string
	deadlines guard.Deadlines
	guards    *guard.Servers
	combiner  *combiner  // nil: every decision has a call of its own
	dedicated *dedicated // nil: all calls share their connections
	requests  sync.Pool  // of *request
	clock     func() int64
	ahead     atomic.Int64 // the server's clock less ours, in µs, as of the last reply

	scripts   struct{ take, refund, recall, permits, documents *rueidis.Lua }
	tasks     tasks
	sweeping  sync.Once // there is a task that sweeps; see sweep.go
	observing observing
	cluster   *cluster // nil if there is no cluster
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
// The context bounds the time for connecting, and so does connect_timeout, within which a server may
// also load its data; a cluster whose nodes all do is unavailable. The error is an
// [*headgate.InvalidError] if the URL or an option is wrong, or it wraps [headgate.ErrUnavailable],
// and [store.ErrRefused] too if the server does not take the password, the database or the like.
// Close the store when it is no longer needed.
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
	if links.Dedicated != nil {
		s.dedicated = &dedicated{links: links, within: max(t.ConnectTimeout, set.timeout), tasks: &s.tasks}
	}
	if err := s.greet(ctx, max(t.ConnectTimeout, set.timeout)); err != nil {
		s.Close()
		return nil, err
	}
	return s, nil
}

// loadingEvery is how often a server is asked whether it has loaded its data.
const loadingEvery = 50 * time.Millisecond

// greet checks that the server answers, as a part of connecting to it. It is more patient than a
// decision, because a server that is slow for a moment, or that has just been started, is not gone.
func (s *Store) greet(ctx context.Context, within time.Duration) error {
	ctx, cancel := context.WithTimeout(ctx, within)
	defer cancel()
	if s.cluster != nil {
		// Connect to all nodes, so that no request has to.
		return s.pingNodes(ctx, math.MaxInt, math.MaxInt)
	}
	for {
		err := s.ping(ctx)
		if !refusal.Is(err, "LOADING") || !sleep.For(ctx, sleep.Jittered(loadingEvery)) {
			return err
		}
	}
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
		requests:  sync.Pool{New: func() any { return &request{done: make(chan struct{}, 1)} }},
	}
	s.tasks.ctx, s.tasks.cancel = context.WithCancel(context.Background())
	s.scripts.take = rueidis.NewLuaScript(takeScript())
	s.scripts.refund = rueidis.NewLuaScript(refundScript())
	s.scripts.recall = rueidis.NewLuaScript(recallLua)
	s.scripts.permits = rueidis.NewLuaScript(permitsLua)
	s.scripts.documents = rueidis.NewLuaScript(documentLua)
	if clustering {
		s.cluster = &cluster{denials: denials{seed: maphash.MakeSeed()}}
	} else if set.CombineFrom > 0 {
		s.combiner = newCombiner(s, set.CombineFrom)
	}
	return s
}

// Close closes the connections, if [Open] has made them. Later calls fail.
func (s *Store) Close() {
	s.guards.Close()
	s.tasks.cancel()
	s.deadlines.Close()
	s.combiner.end()
	if s.links != nil {
		s.links.HangUp()
		s.client.Close()
		s.links.Close()
	}
	s.tasks.end()
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
	if s.cluster != nil {
		return s.pingNodes(ctx, 4, 1)
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

// resetAll carries out OpReset.
func (s *Store) resetAll(ctx context.Context, checks []headgate.Check) error {
	return failure(eachMoving(s.groups(checks), func(g *group) (reply, error) {
		keys := make([]string, len(g.checks))
		for i := range keys {
			keys[i] = string(appendKey(nil, s.prefix, &g.checks[i]))
		}
		return reply{}, s.do(ctx, "reset", s.client.B().Del().Key(keys...).Build())
	}))
}

// do sends a command, and returns only its error.
func (s *Store) do(ctx context.Context, doing string, command rueidis.Completed) error {
	to, slot := s.guards.Any(), command.Slot()
	if s.cluster != nil {
		to = s.placesNow().guard(slot, to)
	}
	began := time.Now()
	_, err := guard.Do(ctx, to, func() (struct{}, error) { return struct{}{}, s.client.Do(ctx, command).Error() })
	if s.observing.tell != nil {
		s.observe(slot, doing, began, err)
	}
	if err != nil {
		return unavailable(doing, err)
	}
	return nil
}

// pingNodes asks up to ask nodes, waits for up to wait answers, and returns nil if a node answers.
// Calls are not cancelled when it returns: cancelling a call that is connecting would fail all
// calls that wait for the same connection.
func (s *Store) pingNodes(ctx context.Context, ask, wait int) error {
	nodes := s.client.Nodes()
	ask = min(ask, len(nodes))
	answers := make(chan error, ask)
	asked := 0
	for _, node := range nodes {
		if asked++; asked > ask {
			break
		}
		if !s.tasks.start(func() {
			ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), max(s.deadlines.Timeout, target.DefaultConnectTimeout))
			defer cancel()
			answers <- refusal.Answered(node.Do(ctx, node.B().Ping().Build()).Error())
		}) {
			answers <- rueidis.ErrClosing
		}
	}
	failure, well := rueidis.ErrNoAddr, 0
	for range ask {
		select {
		case err := <-answers:
			if err != nil {
				failure = err
			} else if well++; well >= wait {
				return nil
			}
			continue
		case <-ctx.Done():
			failure = ctx.Err()
		}
		break
	}
	if well > 0 {
		return nil
	}
	return unavailable("ping", failure)
}

// dedicated is a connection for a decision while no other call is in flight. The shared connection
// has one goroutine that writes and another that reads. With many callers that is fast, because one
// system call carries many calls. A single caller gains nothing from it, but has to wait until both
// goroutines have run: 50 µs for a decision. On the dedicated connection, the caller writes and
// reads by itself: 31 µs.
//
// Only the goroutine of connect makes the connection, so no call waits for that. A call that has no
// answer by its deadline closes the connection, because otherwise the next call would read its
// answer. dedicated is safe for concurrent use.
type dedicated struct {
	links  *target.Links
	within time.Duration // bounds connecting
	state  atomic.Int32
	after  atomic.Int64 // when the connection may be made again, in ns since the Unix epoch
	tasks  *tasks       // the store's
}

// The states of the dedicated connection.
const (
	dedicatedAbsent int32 = iota
	dedicatedConnecting
	dedicatedIdle
	dedicatedBusy // a call is in flight on the connection
)

// dedicatedAgain is the shortest time between a failure of the dedicated connection and the next attempt to
// make it. In the meantime, calls use the shared connection. So callers whose deadlines are too
// early for the server do not cause a new connection for each call.
const dedicatedAgain = time.Second

// call runs a script if the connection exists and is idle. If sent is false, no call was made, and
// the caller must use the shared connection.
func (l *dedicated) call(ctx context.Context, script *rueidis.Lua, keys, args []string) (text string, sent bool, err error) {
	if l == nil {
		return "", false, nil
	}
	if !l.state.CompareAndSwap(dedicatedIdle, dedicatedBusy) {
		if l.state.Load() == dedicatedAbsent {
			l.connect()
		}
		return "", false, nil
	}
	result := script.Exec(ctx, l.links.Dedicated, keys, args)
	if err := result.NonRedisError(); err != nil {
		l.after.Store(time.Now().Add(dedicatedAgain).UnixNano())
		l.state.Store(dedicatedAbsent)
		switch {
		case errors.Is(err, target.ErrGone):
			return "", false, nil
		case errors.Is(err, os.ErrDeadlineExceeded):
			err = context.DeadlineExceeded // the connection's own deadline came first
		}
		return "", true, err
	}
	l.state.Store(dedicatedIdle)
	text, err = result.ToString()
	return text, true, err
}

// connect makes the connection in a goroutine, unless the last failure was less than dedicatedAgain ago.
// It does not wait.
func (l *dedicated) connect() {
	if time.Now().UnixNano() < l.after.Load() || !l.state.CompareAndSwap(dedicatedAbsent, dedicatedConnecting) {
		return
	}
	begun := l.tasks.start(func() {
		ctx, cancel := context.WithTimeout(target.Dedicated(l.tasks.ctx), l.within)
		defer cancel()
		client := l.links.Dedicated
		if err := refusal.Answered(client.Do(ctx, client.B().Ping().Build()).Error()); err != nil {
			l.after.Store(time.Now().Add(dedicatedAgain).UnixNano())
			l.state.Store(dedicatedAbsent)
			return
		}
		l.state.Store(dedicatedIdle)
	})
	if !begun {
		l.state.Store(dedicatedAbsent)
	}
}

// tasks are goroutines of a store that end waits for. Those that do not end by themselves end with
// the context.
type tasks struct {
	ctx    context.Context
	cancel context.CancelFunc

	mu      sync.Mutex // guards over, and makes sure that nothing is started after it is set
	running sync.WaitGroup
	over    bool
}

// start runs do in a goroutine. It returns false if end was called before.
func (t *tasks) start(do func()) bool {
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.over {
		return false
	}
	t.running.Go(do)
	return true
}

func (t *tasks) end() {
	t.mu.Lock()
	t.over = true
	t.mu.Unlock()
	t.running.Wait()
}
