package redis

import (
	"strings"
	"time"

	"github.com/headgate/headgate"
	"github.com/headgate/headgate/store/redis/internal/target"
)

// The defaults of a store.
const (
	// DefaultPrefix begins the name of every counter.
	DefaultPrefix = "hg:"
	// DefaultTimeout is the deadline of a call: inside the 20 ms that Envoy waits
	// for a decision, with a quarter of them left for all else. On a busy machine
	// most calls that take longer than 10 ms take longer than 20 ms too.
	DefaultTimeout = 15 * time.Millisecond
	// DefaultMaxPending is how many calls to one server may be without an answer at a
	// time, on a client that the caller made with rueidis's own settings: its queue has
	// 1,024 places, and who finds none waits without a deadline.
	DefaultMaxPending = 960
	// DefaultCombineFrom is how many calls must be without an answer for decisions
	// to share script calls. With fewer a call for each is faster.
	DefaultCombineFrom = 32
)

// Option changes a [Store] that is being made.
type Option func(*settings)

type settings struct {
	// MaxPending is 0 for as many as the client's queue has room for, and CombineFrom 0
	// for never.
	target.Settings
	part     string
	timeout  time.Duration
	clock    func() int64
	observer Observer
}

// Prefix keeps the counters under another prefix, so that several
// installations can share a server: up to 64 bytes, without braces, which mean a
// hash slot to a cluster. It goes before the parameter prefix of a URL.
func Prefix(prefix string) Option { return func(s *settings) { s.Prefix = prefix } }

// Part keeps the store's counters apart from those of other stores of the same
// installation: with the part "x", those of the prefix "hg:" stand under "hg-x:". It
// is up to 64 bytes, without braces.
func Part(name string) Option { return func(s *settings) { s.part = name } }

// Timeout sets the deadline of each call: more than zero.
func Timeout(d time.Duration) Option { return func(s *settings) { s.timeout = d } }

// MaxPending bounds how many calls to one server may be without an answer at a
// time. More are refused at once with [headgate.ErrUnavailable]. A call that has ended
// by its deadline counts until the server answers again. The bound must be less than the
// places in the client's queue, 2 to the power of its RingScaleEachConn. The clients that
// [Open] makes have room for 15/16 of what the parameter queue of their URL says:
// 15,360, or 3,840 for a cluster. It goes before the parameter max_pending of a URL.
func MaxPending(calls int) Option {
	return func(s *settings) { s.MaxPending = max(int64(calls), -1) }
}

// Combining has decisions share script calls from so many calls without an answer
// on, until there are clearly fewer; 0 gives every decision a call of its own. Nobody
// waits for company: what comes while two shared calls are on their way leaves with
// the next. It is for requests with one check of buckets, or of sliding windows at a
// cost of up to 8, on a single server or Sentinel; all others have calls of their own,
// as on a cluster. It goes before the parameter combine_from of a URL.
func Combining(from int) Option {
	return func(s *settings) { s.CombineFrom = max(int64(from), 0) }
}

// Clock makes the scripts decide by the given clock, in microseconds since
// the Unix epoch, instead of the server's: for tests, and to replay recorded
// traffic. Counters then expire an hour later than they would.
func Clock(micros func() int64) Option { return func(s *settings) { s.clock = micros } }

func newSettings(options ...Option) settings {
	set := settings{Settings: target.Settings{Prefix: DefaultPrefix, CombineFrom: DefaultCombineFrom}, timeout: DefaultTimeout}
	set.apply(options)
	return set
}

func (s *settings) apply(options []Option) {
	for _, o := range options {
		o(s)
	}
}

// fullPrefix is what the names of all counters begin with.
func (s *settings) fullPrefix() string {
	if s.part == "" {
		return s.Prefix
	}
	return strings.TrimSuffix(s.Prefix, ":") + "-" + s.part + ":"
}

// check returns what is wrong with the settings for a client whose queue has so
// many places, or 0 if that is not known, and sets the default that depends on it.
func (s *settings) check(queue int64) error {
	var problems headgate.Problems
	if len(s.Prefix) > 64 {
		problems.Add("prefix", "the prefix has %d bytes, must have at most 64", len(s.Prefix))
	}
	if i := strings.IndexAny(s.Prefix, "{}"); i >= 0 {
		problems.Add("prefix", "the prefix has %q at byte %d; to keep a rule in one hash slot of a cluster, give it a tag", s.Prefix[i], i)
	}
	if len(s.part) > 64 || strings.ContainsAny(s.part, "{}") {
		problems.Add("part", "the part has %d bytes or braces, must have at most 64 and none", len(s.part))
	}
	if s.timeout <= 0 {
		problems.Add("timeout", "the timeout is %v, must be more than 0", s.timeout)
	}
	if s.MaxPending == 0 {
		s.MaxPending = queue - queue/16
	}
	if s.MaxPending < 1 {
		problems.Add("max_pending", "max pending is %d, must be 1 or more", s.MaxPending)
	}
	if queue > 0 && s.MaxPending >= queue {
		problems.Add("max_pending", "max pending is %d, must be less than the %d places of the queue", s.MaxPending, queue)
	}
	return problems.Err("redis store")
}
