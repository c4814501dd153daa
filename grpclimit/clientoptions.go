package grpclimit

import (
	"time"

	"github.com/headgate/headgate"
	"github.com/headgate/headgate/internal/admission"
)

// The defaults of the options of [NewClient].
const (
	// DefaultMaxWait is how long a call waits at most before it is made.
	DefaultMaxWait = 30 * time.Second
	// DefaultMaxPause is how long a server's RetryInfo is obeyed at most.
	DefaultMaxPause = time.Minute
)

// ClientHooks are told what a client's interceptors did. Any of them may be nil.
// They run in the call's goroutine and must be quick.
type ClientHooks struct {
	// Waited is called for each call or message that was held back, with how
	// long.
	Waited func(c *Call, d time.Duration)
	// Denied is called for each call or message that was not made: because of a
	// limit of the client's own, or because the server wants it later than it may
	// wait.
	Denied func(c *Call, err error)
	// Paused is called when a server says for how long calls are to stay away.
	Paused func(c *Call, d time.Duration)
	// Failed is called for each error: the store did not answer, a unit could not
	// be given back.
	Failed func(c *Call, err error)
}

// ClientOption changes what [NewClient] makes.
type ClientOption func(*clientSettings)

type clientSettings struct {
	settings
	maxWait  time.Duration
	maxPause time.Duration
	pauseBy  Key

	retries    int
	idempotent func(*Call) bool
	share      float64
	floor      int
	told       ClientHooks
}

// ClientLimit binds every call that is made by the rules, with counters kept for the
// key: [ByTarget], for instance. Given several times, by different keys, all of the
// rules must admit a call, or none is charged. A call that does not fit waits; see
// [MaxWait]. A call that lacks what is counted by is not bound.
func ClientLimit(key Key, rules ...*headgate.Rule) ClientOption {
	return func(s *clientSettings) {
		s.limits = append(s.limits, admission.Binding[*Call]{Key: key.of, Rules: rules})
	}
}

// ClientMessageLimit binds every message that is sent over a stream.
func ClientMessageLimit(key Key, rules ...*headgate.Rule) ClientOption {
	return func(s *clientSettings) {
		s.messageLimits = append(s.messageLimits, admission.Binding[*Call]{Key: key.of, Rules: rules})
	}
}

// ClientCost sets how many units a call or message takes: 1 to headgate.MaxCount, or
// 0 for one that is not limited. A message is in the call's Message. The default is
// 1.
func ClientCost(cost func(*Call) int64) ClientOption {
	return func(s *clientSettings) {
		s.Needs("ClientCost", cost != nil)
		s.cost = cost
	}
}

// MaxWait sets how long at most a call or message is held back: until it fits its limits,
// until the server wants it, and before it is repeated. One that would have to wait longer, or
// beyond its context's deadline, is not made: it ends with RESOURCE_EXHAUSTED, and
// errors.Is(err, headgate.ErrDenied). The default is [DefaultMaxWait]; 0 never waits.
func MaxWait(d time.Duration) ClientOption {
	return func(s *clientSettings) {
		if d < 0 {
			s.Bad("MaxWait", "MaxWait is %v, must not be negative", d)
		}
		s.maxWait = d
	}
}

// MaxPause bounds for how long a server's RetryInfo keeps calls away. The default is
// [DefaultMaxPause]; 0 does not heed it.
func MaxPause(d time.Duration) ClientOption {
	return func(s *clientSettings) {
		if d < 0 {
			s.Bad("MaxPause", "MaxPause is %v, must not be negative", d)
		}
		s.maxPause = d
	}
}

// PauseBy sets what a server's RetryInfo holds for. The default is the method that
// it was said of, at that target; [ByTarget] is everything there.
func PauseBy(key Key) ClientOption {
	return func(s *clientSettings) {
		if !key.of.Made {
			s.Bad("PauseBy", "PauseBy has an empty Key; make one with a By function, Everyone or Combine")
		}
		s.pauseBy = key
	}
}

// Retries has a unary call repeated, at most so often, that the server has refused
// with RESOURCE_EXHAUSTED and a RetryInfo: when that says so, if it may wait so long.
// Such a call was not carried out. For others see [RetryIdempotent]. A call is never
// repeated whose server says so, by a trailer grpc-retry-pushback-ms of -1, nor beyond
// [RetryBudget]. The default is 0.
func Retries(n int) ClientOption {
	return func(s *clientSettings) {
		const most = 100
		if n < 0 || n > most {
			s.Bad("Retries", "Retries is %d, must be 0 to %d", n, most)
		}
		s.retries = n
	}
}

// RetryIdempotent says which calls may be carried out more than once. With [Retries] they
// are also repeated after UNAVAILABLE, and after RESOURCE_EXHAUSTED without a RetryInfo: when
// the server says, or else after a random time of up to 100 ms, which doubles with each try up
// to 10 s. The default is none.
func RetryIdempotent(may func(*Call) bool) ClientOption {
	return func(s *clientSettings) {
		s.Needs("RetryIdempotent", may != nil)
		s.idempotent = may
	}
}

// RetryBudget bounds retries to a share of calls, above 0 to 1, and a floor of how many there
// may be besides, so that they do not make a bad moment worse. The default is a share of 0.1
// and a floor of 10.
func RetryBudget(share float64, floor int) ClientOption {
	return func(s *clientSettings) {
		if !(share > 0 && share <= 1) {
			s.Bad("RetryBudget", "RetryBudget has a share of %v, must be above 0 and at most 1", share)
		}
		if floor < 0 {
			s.Bad("RetryBudget", "RetryBudget has a floor of %d, must not be negative", floor)
		}
		s.share, s.floor = share, floor
	}
}

// OnClientStoreError says what happens to a call when the store cannot decide. The
// default is [FailOpen].
func OnClientStoreError(choice Failure) ClientOption {
	return func(s *clientSettings) { s.Failure = choice }
}

// ObserveClient sets the hooks of a client.
func ObserveClient(hooks ClientHooks) ClientOption {
	return func(s *clientSettings) { s.told = hooks }
}
