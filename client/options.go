package client

import (
	"crypto/tls"
	"time"

	"google.golang.org/grpc"

	"github.com/headgate/headgate"
)

// The defaults and bounds of the options.
const (
	// DefaultTimeout is the deadline of each call: above the 500 ms that the server
	// waits for its store, so that its answer comes first.
	DefaultTimeout = time.Second
	// MaxTimeout is the longest.
	MaxTimeout = time.Minute
	// DefaultMaxInFlight is how many calls may be without an answer.
	DefaultMaxInFlight = 4096
	// DefaultStreamFrom is from how many calls under way a stream is used.
	DefaultStreamFrom = 8
)

// Option changes what [New] makes.
type Option func(*settings)

type settings struct {
	tls         *tls.Config
	plain       bool
	secured     bool
	token       string
	timeout     time.Duration
	maxInFlight int
	streamFrom  int
	dial        []grpc.DialOption
}

// TLS connects over TLS: with the machine's own authorities if config is nil, or
// as it says, with a client's certificate for instance.
func TLS(config *tls.Config) Option {
	return func(s *settings) {
		if config == nil {
			config = &tls.Config{MinVersion: tls.VersionTLS12}
		}
		s.tls, s.secured = config.Clone(), true
	}
}

// Plaintext connects in the clear: over the loopback, within a private network, or
// where something else encrypts.
func Plaintext() Option { return func(s *settings) { s.plain = true } }

// Token shows a token with every call: the one that the server's store asks for, or the
// server's admin token, which [Permits.Holders] and [Permits.Revoke] ask for.
func Token(token string) Option { return func(s *settings) { s.token = token } }

// Timeout sets the deadline of each call, 1ms to [MaxTimeout]. The default is
// [DefaultTimeout].
func Timeout(d time.Duration) Option { return func(s *settings) { s.timeout = d } }

// MaxInFlight bounds the calls that have no answer yet, 1 to 1000000. Beyond it,
// calls fail at once. The default is [DefaultMaxInFlight].
func MaxInFlight(n int) Option { return func(s *settings) { s.maxInFlight = n } }

// StreamFrom sets from how many calls under way a stream is used, 1 to 1000000:
// 1 is always. The default is [DefaultStreamFrom].
func StreamFrom(n int) Option { return func(s *settings) { s.streamFrom = n } }

// NoStreams makes each call a call of gRPC.
func NoStreams() Option { return func(s *settings) { s.streamFrom = never } }

// never is a number of calls that is never reached.
const never = 1 << 30

// DialOptions adds options of grpc-go, such as interceptors or a balancer. They
// go before the client's own; credentials and codecs are not theirs to set.
func DialOptions(options ...grpc.DialOption) Option {
	return func(s *settings) { s.dial = append(s.dial, options...) }
}

// check returns an [*headgate.InvalidError] with every mistake.
func (s *settings) check(target string) error {
	var problems headgate.Problems
	if target == "" {
		problems.Add("target", "the target is empty, must be such as 127.0.0.1:9090")
	}
	switch {
	case s.plain && s.secured:
		problems.Add("TLS", "TLS and Plaintext are both given; choose one")
	case !s.plain && !s.secured:
		problems.Add("TLS", "neither TLS nor Plaintext is given; choose one")
	}
	if s.timeout < time.Millisecond || s.timeout > MaxTimeout {
		problems.Add("Timeout", "Timeout is %v, must be 1ms to %v", s.timeout, MaxTimeout)
	}
	const most = 1_000_000
	if s.maxInFlight < 1 || s.maxInFlight > most {
		problems.Add("MaxInFlight", "MaxInFlight is %d, must be 1 to %d", s.maxInFlight, most)
	}
	if s.streamFrom != never && (s.streamFrom < 1 || s.streamFrom > most) {
		problems.Add("StreamFrom", "StreamFrom is %d, must be 1 to %d", s.streamFrom, most)
	}
	for i := range len(s.token) {
		// The token itself is not repeated.
		if s.token[i] <= ' ' || s.token[i] > '~' {
			problems.Add("Token", "Token: byte %d is not a visible ASCII character, which is all that a header can hold", i+1)
			break
		}
	}
	return problems.Err("client")
}
