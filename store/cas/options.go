package cas

import (
	"strings"
	"time"

	"github.com/headgate/headgate"
)

// The defaults of a store.
const (
	// DefaultPrefix begins the name of every value.
	DefaultPrefix = "hg:"
	// DefaultTimeout is the deadline of a call.
	DefaultTimeout = 500 * time.Millisecond
	// DefaultLanes is how many attempts run at a time.
	DefaultLanes = 8
	// DefaultMaxPending is how many calls may be without an answer at a time.
	DefaultMaxPending = 4096
)

// The bounds of what options set.
const (
	maxPrefix  = 64
	maxLanes   = 1024
	maxPending = 1 << 20
	maxSkew    = time.Minute
)

// Option changes a [Store] that is being made.
type Option func(*settings)

type settings struct {
	prefix     string // with the part, once the options are read
	part       string
	timeout    time.Duration
	lanes      int
	maxPending int
	clock      func() int64
	skew       time.Duration
}

// Prefix keeps the values under another prefix, so that several installations can
// share a database: up to 64 bytes.
func Prefix(prefix string) Option { return func(s *settings) { s.prefix = prefix } }

// Part keeps the store's values apart from those of other stores of the same
// installation: with the part "x", those of the prefix "hg:" stand under "hg-x:". It is
// up to 64 bytes.
func Part(name string) Option { return func(s *settings) { s.part = name } }

// Timeout sets the deadline of each call: more than zero.
func Timeout(d time.Duration) Option { return func(s *settings) { s.timeout = d } }

// Lanes sets how many attempts run at a time, 1 to 1024: no more than the database
// gives connections to this process.
func Lanes(n int) Option { return func(s *settings) { s.lanes = n } }

// MaxPending bounds how many calls may be without an answer at a time, 1 to 2^20;
// more are refused at once with [headgate.ErrUnavailable].
func MaxPending(calls int) Option { return func(s *settings) { s.maxPending = calls } }

// Clock makes the store decide by the given clock, in microseconds since the Unix
// epoch, instead of the database's: for tests, and to replay recorded traffic. A ledger then
// sweeps only when [Ledger.Sweep] is called.
func Clock(micros func() int64) Option { return func(s *settings) { s.clock = micros } }

// Skew says by how much the clocks of nodes may differ, from 0 to a minute; the default is
// 0. It is for a database that has no clock to read, where each node decides by its own. A node
// that finds a counter ahead of its own clock by no more than the skew decides by the counter's
// time. Otherwise the difference between two clocks would be granted anew each time that
// a slow node and a fast one take turns. A counter that is farther ahead was left by a clock
// that has been set back since, and continues from the node's own time.
func Skew(d time.Duration) Option { return func(s *settings) { s.skew = d } }

func newSettings(options []Option) (settings, error) {
	s := settings{prefix: DefaultPrefix, timeout: DefaultTimeout, lanes: DefaultLanes, maxPending: DefaultMaxPending}
	for _, o := range options {
		o(&s)
	}
	var problems headgate.Problems
	if len(s.prefix) > maxPrefix {
		problems.Add("prefix", "the prefix has %d bytes, must have at most %d", len(s.prefix), maxPrefix)
	}
	if len(s.part) > maxPrefix {
		problems.Add("part", "the part has %d bytes, must have at most %d", len(s.part), maxPrefix)
	}
	if s.timeout <= 0 {
		problems.Add("timeout", "the timeout is %v, must be more than 0", s.timeout)
	}
	if s.lanes < 1 || s.lanes > maxLanes {
		problems.Add("lanes", "there are %d lanes, must be 1 to %d", s.lanes, maxLanes)
	}
	if s.maxPending < 1 || s.maxPending > maxPending {
		problems.Add("max_pending", "max pending is %d, must be 1 to %d", s.maxPending, maxPending)
	}
	if s.skew < 0 || s.skew > maxSkew {
		problems.Add("skew", "the clocks of nodes may differ by %v, must be 0 to %v", s.skew, maxSkew)
	}
	if err := problems.Err("store"); err != nil {
		return s, err
	}
	if s.part != "" {
		s.prefix = strings.TrimSuffix(s.prefix, ":") + "-" + s.part + ":"
	}
	return s, nil
}
