package grpclimit

import (
	"time"

	"github.com/headgate/headgate"
	"github.com/headgate/headgate/internal/admission"
)

// The defaults of the options of [NewClient].
const (
	// DefaultMaxWait is the default of [MaxWait].
	DefaultMaxWait = 30 * time.Second
	// DefaultMaxPause is the default of [MaxPause].
	DefaultMaxPause = time.Minute
)

// ClientHooks are called when a client's interceptors have done something. Any of them may be nil.
// They run in the call's goroutine and must be quick.
type ClientHooks struct {
	// Waited is called for each call or message that was held back, with the time.
	Waited func(c *Call, d time.Duration)
	// Denied is called for each call or message that was not made, because of one of the client's
	// own limits, or because the server would take it later than it may wait.
	Denied func(c *Call, err error)
	// Paused is called when a server says how long calls should stay away.
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

// ClientLimit binds every call that is made by the rules, with counters for the key, such as
// [ByTarget]. It may be given several times, with different keys. If one of all these rules denies
// a call, none is charged. A call that does not fit waits; see [MaxWait]. A call that lacks the
// entry by which a limit counts is not bound by it.
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

// ClientCost sets how many units a call or a message takes: 1 to headgate.MaxCount, or 0 if it is
// not limited. A message is in the call's Message. The default is 1.
func ClientCost(cost func(*Call) int64) ClientOption {
	return func(s *clientSettings) {
		s.Needs("ClientCost", cost != nil)
		s.cost = cost
	}
}

// MaxWait sets the longest time for which a call or a message is held back: until it fits its
// limits, until the server is ready for it, and before it is repeated. If it would have to wait
// longer, or beyond its context's deadline, it is not made. It then ends with RESOURCE_EXHAUSTED,
// and errors.Is(err, headgate.ErrDenied) is true. The default is [DefaultMaxWait]; with 0 no call
// waits.
func MaxWait(d time.Duration) ClientOption {
	return func(s *clientSettings) {
		if d < 0 {
			s.Bad("MaxWait", "MaxWait is %v, must not be negative", d)
		}
		s.maxWait = d
	}
}

// MaxPause sets the longest time for which a server's RetryInfo keeps calls away. The default is
// [DefaultMaxPause]; with 0 RetryInfo is ignored.
func MaxPause(d time.Duration) ClientOption {
	return func(s *clientSettings) {
		if d < 0 {
			s.Bad("MaxPause", "MaxPause is %v, must not be negative", d)
		}
		s.maxPause = d
	}
}

// PauseBy sets for which calls a server's RetryInfo holds. The default is the same method at the
// same target. With [ByTarget] it holds for all calls to the target.
func PauseBy(key Key) ClientOption {
	return func(s *clientSettings) {
		if !key.of.Made {
			s.Bad("PauseBy", "PauseBy has an empty Key; make one with a By function, Everyone or Combine")
		}
		s.pauseBy = key
	}
}

// Retries sets how often a unary call may be repeated that the server has refused with
// RESOURCE_EXHAUSTED and a RetryInfo. It is repeated at the time in the RetryInfo, if it may wait
// that long. Such a call was not carried out. For other calls see [RetryIdempotent]. A call is not
// repeated if its server says so, by a trailer grpc-retry-pushback-ms of -1, nor if [RetryBudget]
// is used up. The default is 0.
func Retries(n int) ClientOption {
	return func(s *clientSettings) {
		const most = 100
		if n < 0 || n > most {
			s.Bad("Retries", "Retries is %d, must be 0 to %d", n, most)
		}
		s.retries = n
	}
}

// RetryIdempotent says which calls may be carried out more than once. With [Retries] they are also
// repeated after UNAVAILABLE, and after RESOURCE_EXHAUSTED without a RetryInfo: at the time that
// the server names, or otherwise after a random time of up to 100 ms, which doubles with each try
// up to 10 s. The default is none.
func RetryIdempotent(may func(*Call) bool) ClientOption {
	return func(s *clientSettings) {
		s.Needs("RetryIdempotent", may != nil)
		s.idempotent = may
	}
}

// RetryBudget bounds retries to a share of calls, above 0 to 1, plus a number of retries that are
// always allowed. So retries do not make an overload worse. The default is a share of 0.1 and a
// floor of 10.
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

// ObserveClient sets the [ClientHooks].
func ObserveClient(hooks ClientHooks) ClientOption {
	return func(s *clientSettings) { s.told = hooks }
}
