package redis

import (
	"crypto/tls"
	"fmt"
	"net"
	"net/url"
	"strconv"
	"strings"
	"time"

	"github.com/redis/rueidis"

	"github.com/headgate/headgate"
)

// The defaults of a store.
const (
	// DefaultPrefix begins the name of every counter.
	DefaultPrefix = "hg:"
	// DefaultTimeout is the deadline of a call.
	DefaultTimeout = 100 * time.Millisecond
	// DefaultMaxPending is how many calls may be without an answer at a time, on
	// a client that the caller made with rueidis's own settings: its queue has
	// 1,024 places, and who finds none waits without a deadline.
	DefaultMaxPending = 960

	// ringScale is the size of the queue of the clients that Open makes, as a
	// power of two, and openMaxPending what of it may be used.
	ringScale      = 14
	openMaxPending = 1<<ringScale - 1<<10
)

// connectTimeout bounds connecting, and how long a connection that has fallen
// silent is kept while calls are pending on it.
const connectTimeout = time.Second

// Option changes a [Store] that is being made.
type Option func(*settings)

type settings struct {
	prefix     string
	timeout    time.Duration
	clock      func() int64
	maxPending int64
}

// WithPrefix keeps the counters under another prefix, so that several
// installations can share a server: up to 64 bytes.
func WithPrefix(prefix string) Option { return func(s *settings) { s.prefix = prefix } }

// WithTimeout sets the deadline of each call: more than zero.
func WithTimeout(d time.Duration) Option { return func(s *settings) { s.timeout = d } }

// WithMaxPending bounds how many calls may be without an answer at a time; more
// are refused at once with [headgate.ErrUnavailable]. A call that has ended by its
// deadline counts until the server answers again. It must be less than the places
// in the client's queue, 2 to the power of its RingScaleEachConn. The clients that
// [Open] makes have room for 15,360.
func WithMaxPending(calls int) Option { return func(s *settings) { s.maxPending = int64(calls) } }

// WithClock makes the scripts decide by the given clock, in microseconds since
// the Unix epoch, instead of the server's: for tests, and to replay recorded
// traffic. Counters then expire an hour later than they would.
func WithClock(micros func() int64) Option { return func(s *settings) { s.clock = micros } }

func (s *settings) check() error {
	var problems []string
	if len(s.prefix) > 64 {
		problems = append(problems, fmt.Sprintf("the prefix has %d bytes, must have at most 64", len(s.prefix)))
	}
	if s.timeout <= 0 {
		problems = append(problems, fmt.Sprintf("the timeout is %v, must be more than 0", s.timeout))
	}
	if s.maxPending < 1 {
		problems = append(problems, fmt.Sprintf("max pending is %d, must be 1 or more", s.maxPending))
	}
	if problems == nil {
		return nil
	}
	return &headgate.InvalidError{Subject: "redis store", Problems: problems}
}

// parseURL reads the URL of [Open]. Its errors never repeat the URL, which may
// hold a password.
func parseURL(text string) (rueidis.ClientOption, error) {
	invalid := func(format string, args ...any) (rueidis.ClientOption, error) {
		return rueidis.ClientOption{}, &headgate.InvalidError{Subject: "redis URL", Problems: []string{fmt.Sprintf(format, args...)}}
	}
	const form = "write redis://user:password@host:port/database"
	u, err := url.Parse(text)
	if err != nil {
		return invalid("it cannot be read; %s, with special characters in the password percent-encoded", form)
	}
	if u.Scheme != "redis" && u.Scheme != "rediss" {
		return invalid("the scheme is %q, must be redis or rediss; %s", u.Scheme, form)
	}
	host, port := u.Hostname(), u.Port()
	if host == "" {
		return invalid("there is no host; %s", form)
	}
	if port == "" {
		port = "6379"
	}
	o := rueidis.ClientOption{
		InitAddress:       []string{net.JoinHostPort(host, port)},
		ClientName:        "headgate",
		DisableRetry:      true,
		DisableCache:      true,
		ForceSingleClient: true,
		PipelineMultiplex: -1,
		RingScaleEachConn: ringScale,
		// A silent connection is noticed within two of these, and its calls end.
		Dialer:           net.Dialer{Timeout: connectTimeout, KeepAlive: connectTimeout},
		ConnWriteTimeout: connectTimeout,
	}
	if u.User != nil {
		o.Username = u.User.Username()
		o.Password, _ = u.User.Password()
	}
	if path := strings.Trim(u.Path, "/"); path != "" {
		if o.SelectDB, err = strconv.Atoi(path); err != nil || o.SelectDB < 0 {
			return invalid("the database is not a number from 0 on; %s, with special characters in the password percent-encoded", form)
		}
	}
	if len(u.Query()) > 0 || u.Fragment != "" {
		return invalid("there are parameters behind the database, and none is known; %s", form)
	}
	if u.Scheme == "rediss" {
		o.TLSConfig = &tls.Config{ServerName: host, MinVersion: tls.VersionTLS12}
	}
	return o, nil
}
