package redis

import (
	"strings"
	"time"

	"github.com/headgate/headgate"
	"github.com/headgate/headgate/store/redis/internal/target"
)

// The defaults of a store.
const (
	// DefaultPrefix is the prefix of the name of every counter.
	DefaultPrefix = "hg:"
	// DefaultTimeout is the deadline of a call whose caller sets no earlier one. It is longer than a
	// fork, a disk that syncs, or a processor that others use keeps a server busy.
	DefaultTimeout = 500 * time.Millisecond
	// DefaultMaxPending is how many calls to one server may wait for an answer at a time, if the
	// caller made the client with rueidis's default settings. The queue of such a client has 1,024
	// places, and a call that finds no place waits without a deadline.
	DefaultMaxPending = 960
	// DefaultCombineFrom is how many calls must be waiting for an answer at least before decisions
	// share script calls. With fewer, separate calls are faster.
	DefaultCombineFrom = 8
)

// Option changes how a [Store] is made.
type Option func(*settings)

type settings struct {
	// MaxPending 0 means as many as the client's queue has room for, and CombineFrom 0 means never.
	target.Settings
	part     string
	timeout  time.Duration
	clock    func() int64
	observer Observer
}

// Prefix sets the prefix of all counters' names, so that several installations can share a server:
// up to 64 bytes, without braces, which mark the hash slot on a cluster. It overrides the parameter
// prefix of a URL.
func Prefix(prefix string) Option { return func(s *settings) { s.Prefix = prefix } }

// Part separates the store's counters from those of other stores of the same installation. With the
// part "x", the prefix "hg:" becomes "hg-x:". It has up to 64 bytes, without braces.
func Part(name string) Option { return func(s *settings) { s.part = name } }

// Timeout sets the deadline of each call. It must be above zero. Calls that begin at about the same
// time share a deadline, so a call may last up to a sixteenth longer.
func Timeout(d time.Duration) Option { return func(s *settings) { s.timeout = d } }

// MaxPending sets how many calls to one server may wait for an answer at a time. Further calls are
// refused at once with [headgate.ErrUnavailable]. A call that has ended at its deadline counts
// until the server answers again. The bound must be smaller than the client's queue, which has 2 to
// the power of RingScaleEachConn places. For clients that [Open] makes, the default is 15/16 of the
// URL's parameter queue: 15,360, or 3,840 on a cluster. It overrides the parameter max_pending of a
// URL.
func MaxPending(calls int) Option {
	return func(s *settings) { s.MaxPending = max(int64(calls), -1) }
}

// Combining sets how many calls must be waiting for an answer before decisions share script calls.
// They do so until there are clearly fewer such calls. Behind a slow network it takes more of them:
// as many as keep the server busy for a quarter of the time of an answer. With 1, all decisions share
// calls, and with 0, every decision has a call of its own. No decision waits for others to come:
// those that come while the server is busy with two shared calls leave with the next one. Requests
// without an id share calls, to take and to peek, on a single server or with Sentinels. It overrides
// the parameter combine_from of a URL.
func Combining(from int) Option {
	return func(s *settings) { s.CombineFrom = max(int64(from), 0) }
}

// Clock makes the scripts decide by the given clock instead of the server's, in microseconds since
// the Unix epoch. It is for tests and for replaying recorded traffic. Counters then expire an hour
// later than otherwise.
func Clock(micros func() int64) Option { return func(s *settings) { s.clock = micros } }

// Observer is called after each call that a store makes for decisions and related operations. node
// is the server that was asked, as host:port. op is the operation in one word, such as "take" (also
// for peeks and charges), "refund" (also for settlements) or "reset". took includes all
// redirections. A call may carry several decisions. On a cluster, node is the one that has served
// the slot in the last few seconds; "" means that it is not known.
//
// The goroutine that waits for the decision calls the Observer, so it must not block.
type Observer func(node, op string, took time.Duration, err error)

// Observe sets an observer of all calls. Without one, the store does not measure times.
func Observe(o Observer) Option { return func(s *settings) { s.observer = o } }

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

// fullPrefix is the prefix of the names of all counters, with the part.
func (s *settings) fullPrefix() string {
	if s.part == "" {
		return s.Prefix
	}
	return strings.TrimSuffix(s.Prefix, ":") + "-" + s.part + ":"
}

// check returns what is wrong with the settings, and sets the default of MaxPending. queue is how
// many places the client's queue has, or 0 if that is not known.
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
