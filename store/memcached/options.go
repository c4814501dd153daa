package memcached

import (
	"net"
	"net/url"
	"strconv"
	"strings"
	"time"

	"github.com/headgate/headgate"
	"github.com/headgate/headgate/store/cas"
)

// The defaults of a store.
const (
	// DefaultTimeout is the deadline of a call.
	DefaultTimeout = 500 * time.Millisecond
	// DefaultConnections is how many connections a store has to each server at most.
	DefaultConnections = 16
	// DefaultSkew is by how much the clocks of nodes may differ.
	DefaultSkew = time.Second
	// DefaultPort is the port of a server that is named without one.
	DefaultPort = 11211

	maxConnections = 1024
	maxSkew        = time.Minute
	// connectTimeout is how long Open waits for the servers.
	connectTimeout = 2 * time.Second
)

// Option changes a [Store] that is being made.
type Option func(*settings)

type settings struct {
	timeout     time.Duration
	connections int
	skew        time.Duration
	clock       func() int64
	options     []cas.Option
}

// Prefix keeps the counters under other names, so that several installations can
// share a server: up to 64 bytes.
func Prefix(prefix string) Option {
	return func(s *settings) { s.options = append(s.options, cas.Prefix(prefix)) }
}

// Part keeps the store's counters apart from those of other stores of the same
// installation: up to 64 bytes.
func Part(name string) Option {
	return func(s *settings) { s.options = append(s.options, cas.Part(name)) }
}

// Timeout sets the deadline of each call: more than zero.
func Timeout(d time.Duration) Option { return func(s *settings) { s.timeout = d } }

// Connections sets how many connections the store has to each server at most, and
// so how many counters are changed at a time: 1 to 1024.
func Connections(n int) Option { return func(s *settings) { s.connections = n } }

// MaxPending bounds how many calls may be without an answer at a time, 1 to 2^20;
// more are refused at once with [headgate.ErrUnavailable].
func MaxPending(calls int) Option {
	return func(s *settings) { s.options = append(s.options, cas.MaxPending(calls)) }
}

// Clock makes the store decide by the given clock, in microseconds since the Unix
// epoch, instead of this process's. It is for tests. Counters then expire an hour later than
// usual.
func Clock(micros func() int64) Option { return func(s *settings) { s.clock = micros } }

// Skew sets by how much the clocks of nodes may differ: 0 to a minute, and the same on
// all nodes. While they differ by less, a counter follows the clock that is ahead: in any
// time T, no more is admitted than the limit admits in T plus the difference. If clocks
// differ by more, there is no bound on how far limits are exceeded. After a clock was set
// back by less, counters stand still for as long.
func Skew(d time.Duration) Option { return func(s *settings) { s.skew = d } }

func newSettings() settings {
	return settings{timeout: DefaultTimeout, connections: DefaultConnections, skew: DefaultSkew}
}

func (s *settings) check() error {
	var problems headgate.Problems
	if s.timeout <= 0 {
		problems.Add("timeout", "the timeout is %v, must be more than 0", s.timeout)
	}
	if s.connections < 1 || s.connections > maxConnections {
		problems.Add("connections", "there are %d connections, must be 1 to %d", s.connections, maxConnections)
	}
	if s.skew < 0 || s.skew > maxSkew {
		problems.Add("skew", "the skew is %v, must be 0s to %v", s.skew, maxSkew)
	}
	return problems.Err("memcached store")
}

const form = "write memcached://host:port or memcached://host1:port,host2:port"

// parseURL reads the URL of [Open]. Parameters of the store go to the settings.
func parseURL(text string, set *settings) (hosts []string, err error) {
	var problems headgate.Problems
	scheme, rest, ok := strings.Cut(text, "://")
	if !ok || scheme != "memcached" {
		return nil, invalidURL("it does not begin with memcached://; " + form)
	}
	rest, query, _ := strings.Cut(rest, "?")
	if strings.ContainsAny(rest, "@/#") {
		return nil, invalidURL("it has a user, a path or a fragment, which memcached has not; " + form)
	}
	for i, host := range strings.Split(rest, ",") {
		if !strings.Contains(host, ":") || strings.HasSuffix(host, "]") {
			host = net.JoinHostPort(strings.Trim(host, "[]"), strconv.Itoa(DefaultPort))
		}
		name, port, err := net.SplitHostPort(host)
		n, err2 := strconv.Atoi(port)
		if err != nil || err2 != nil || name == "" || n < 1 || n > 65535 {
			problems.Add("", "server %d is not a host, or a host and a port", i+1)
		}
		hosts = append(hosts, host)
	}
	values, err := url.ParseQuery(query)
	if err != nil {
		problems.Add("", "what follows the ? cannot be read")
	}
	for name := range values {
		value := values.Get(name)
		switch name {
		case "prefix":
			Prefix(value)(set)
		case "timeout":
			d, err := time.ParseDuration(value)
			if err != nil || d < time.Millisecond || d > time.Minute {
				problems.Add("timeout", "timeout must be a time from 1ms to 1m, such as 50ms")
			}
			set.timeout = d
		case "skew":
			d, err := time.ParseDuration(value)
			if err != nil {
				problems.Add("skew", "skew must be a time from 0s to 1m, such as 1s")
			}
			set.skew = d
		case "connections":
			n, err := strconv.Atoi(value)
			if err != nil {
				problems.Add("connections", "connections must be a number")
			}
			set.connections = n
		case "max_pending":
			n, err := strconv.Atoi(value)
			if err != nil {
				problems.Add("max_pending", "max_pending must be a number")
			}
			MaxPending(n)(set)
		default:
			problems.Add(name, "the parameter %q is unknown; there are connections, max_pending, prefix, skew and timeout", name)
		}
	}
	if problems != nil {
		problems[len(problems)-1].Text += "; " + form
		return nil, problems.Err(urlSubject)
	}
	return hosts, nil
}

// urlSubject is the subject of every error about a URL.
const urlSubject = "memcached URL"

func invalidURL(text string) error { return headgate.Invalid(urlSubject, "", "%s", text) }

// CheckURL returns what is wrong with a URL for [Open], an [*headgate.InvalidError]
// that lists every mistake.
func CheckURL(text string) error {
	set := newSettings()
	if _, err := parseURL(text, &set); err != nil {
		return err
	}
	return set.check()
}

// DescribeURL returns the URL without its parameters, for logs, or "a store" if [Open] does
// not accept the URL.
func DescribeURL(text string) string {
	set := newSettings()
	hosts, err := parseURL(text, &set)
	if err != nil {
		return "a store"
	}
	return describe(hosts)
}

func describe(hosts []string) string { return "memcached://" + strings.Join(hosts, ",") }
