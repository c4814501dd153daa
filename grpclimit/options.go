package grpclimit

import (
	"errors"
	"slices"
	"strings"
	"time"

	"google.golang.org/grpc/codes"

	"github.com/headgate/headgate"
	"github.com/headgate/headgate/httplimit"
	"github.com/headgate/headgate/policy"
)

// Missing says what happens to a call without the identity that a [Limit] counts by.
// Whatever it is, such calls never share one counter.
type Missing uint8

const (
	// DenyMissing turns the call away: with UNAUTHENTICATED if it has no API key,
	// no user or no certificate, with INVALID_ARGUMENT if something else is
	// missing. It is the default.
	DenyMissing Missing = iota
	// CountMissingByIP counts the call by the client's address instead, apart
	// from all other keys. A call that has none is turned away.
	CountMissingByIP
	// PassMissing lets the call past the limit. Other limits still bind it.
	PassMissing

	missings // the number of choices
)

// Failure says what happens to a call when the store cannot decide.
type Failure uint8

const (
	// FailOpen lets the call in; see [UnenforcedHeader]. It is the default: the
	// limiter's failure is not the service's.
	FailOpen Failure = iota
	// FailClosed turns the call away with UNAVAILABLE and a google.rpc.RetryInfo
	// of httplimit.UnavailableFor.
	FailClosed

	failures // the number of choices
)

// Hooks are told what the interceptors did. Any of them may be nil. They run in the
// call's goroutine and must be quick; they must not keep the call, nor the verdict's
// decisions, which are used again.
type Hooks struct {
	// Denied is called for each call or message that a limit denied.
	Denied func(c *Call, v headgate.Verdict)
	// Missing is called for each call that lacks the entry a limit counts by,
	// whatever happens to it.
	Missing func(c *Call, entry string)
	// Soft is called for each limit that an admitted call has brought to the
	// percentage from which its rule in the [Policy] warns; for shadows too.
	Soft func(c *Call, d headgate.Decision)
	// Failed is called for each error: the store did not answer, a cost is out of
	// bounds, a unit could not be given back.
	Failed func(c *Call, err error)
}

// DeniedFunc makes the error that a denied call ends with, in place of
// RESOURCE_EXHAUSTED with details. It must not keep the verdict's decisions.
type DeniedFunc func(c *Call, v headgate.Verdict) error

// End is how a call has ended.
type End struct {
	// Code is the code of the handler's error.
	Code codes.Code
	// Reply is what a unary handler returned; nil for a stream.
	Reply any
	// Received and Sent are how many messages a stream had from the client and to
	// it; 1 and 1 for a unary call that ended well.
	Received, Sent int64
	// Cost is what the handler said with [SetCost], or -1.
	Cost int64
}

// Option changes what [NewServer] makes.
type Option func(*settings)

// settings are the options as given, before they are checked.
type settings struct {
	limits      []binding
	messages    []binding
	set         *policy.Set
	facts       []*fact
	describe    func(*Call, policy.Descriptor) policy.Descriptor
	reader      reader
	hashKey     []byte
	oldHashKey  []byte
	oldHashes   bool // there is an old hash key, even if it is empty
	ipv6Bits    int
	cost        func(*Call) int64
	messageCost func(*Call) int64
	settle      func(*Call, End) int64
	missing     Missing
	failure     Failure
	unenforced  string
	dialect     httplimit.Dialect
	maxDelay    time.Duration
	hold        time.Duration
	denied      DeniedFunc
	hooks       Hooks
	problems    headgate.Problems
}

// Limit binds every call by the rules, with counters kept for the key. Given
// several times, by different keys, all of the rules must admit a call, or none is
// charged.
func Limit(key Key, rules ...*headgate.Rule) Option {
	return func(s *settings) { s.limits = append(s.limits, binding{Key: key.of, Rules: rules}) }
}

// MessageLimit binds every message that a client sends over a stream by the rules,
// besides the limits of the stream's opening. A message that is denied ends the
// stream, unless [HoldMessages] has it wait.
func MessageLimit(key Key, rules ...*headgate.Rule) Option {
	return func(s *settings) { s.messages = append(s.messages, binding{Key: key.of, Rules: rules}) }
}

// Policy binds calls by the rules of a policy. The facts that the rules may look at
// are api_key (see [APIKeyMetadata]), ip (the client's whole address; see
// [TrustProxies]), route (the full method, "/package.Service/Method"), service,
// method (the last part of it), host, certificate (see [ByCertificate]), and those of
// [Fact] and [Describe]. As everywhere, a rule does not bind a call that lacks an
// entry it counts by. Where rules charge by the outcome, an error's code counts as
// the HTTP status that stands for it: RESOURCE_EXHAUSTED as 429, for instance. Policy
// and [Limit] may be used together.
func Policy(set *policy.Set) Option {
	return func(s *settings) {
		switch {
		case set == nil:
			s.bad("Policy: the set is nil")
		case s.set != nil:
			s.bad("Policy is given twice; put all rules into one set")
		}
		s.set = set
	}
}

// Fact adds an entry to what a policy's rules may look at, such as "user" or
// "tier". The function is called for each call if a rule mentions the entry; ""
// means that the call has none. It takes the place of a built-in fact of that name.
func Fact(entry string, find func(*Call) string) Option {
	return func(s *settings) { s.facts = append(s.facts, newFact(entry, find)) }
}

// Describe has the last word on the descriptor that a policy and the limits see:
// it is called with all facts of a call and returns them as they shall be. Of two
// entries with one name the first counts. It must not keep the slice. With it
// NewServer cannot tell which entries there will be, and accepts rules that need
// others. Prefer [Fact], which costs nothing where no rule needs it.
func Describe(describe func(c *Call, facts policy.Descriptor) policy.Descriptor) Option {
	return func(s *settings) {
		if describe == nil {
			s.bad("Describe needs a function")
		}
		s.describe = describe
	}
}

// TrustProxies believes the client's address that the named metadata gives, if the
// connection comes from one of the proxies; see httplimit.NewResolver. Without it
// the client is the peer of the connection, whatever metadata say.
func TrustProxies(source httplimit.Source, proxies ...string) Option {
	return func(s *settings) {
		r, err := newResolver(source, proxies)
		var invalid *headgate.InvalidError
		if errors.As(err, &invalid) {
			s.problems = append(s.problems, invalid.Problems...)
			return
		}
		s.reader.resolver = r
	}
}

// IPv6Prefix sets how many bits of an IPv6 address [ByIP] counts by: 1 to 128.
// The default is 64, the least that a subscriber gets. Rules of a [Policy] say it
// themselves.
func IPv6Prefix(bits int) Option {
	return func(s *settings) {
		if bits < 1 || bits > 128 {
			s.bad("IPv6Prefix is %d, must be 1 to 128", bits)
		}
		s.ipv6Bits = bits
	}
}

// APIKeyMetadata says where the API key stands; the first key of the metadata that
// has one counts. In authorization it follows the word Bearer. The default is
// authorization, then x-api-key. Name exactly what the service authenticates by:
// with one that it ignores, a client could pass for a new one at will.
func APIKeyMetadata(keys ...string) Option {
	return func(s *settings) {
		s.reader.apiKeys = nil
		if len(keys) == 0 {
			s.bad("APIKeyMetadata needs the name of a key")
		}
		for _, key := range keys {
			if !validKey(key) {
				s.bad("APIKeyMetadata: %q is not the name of a key of metadata", key)
			}
			s.reader.apiKeys = append(s.reader.apiKeys, strings.ToLower(key))
		}
	}
}

// HashKey sets the key under which [Limit] hashes secrets: policy.MinHashKey to
// policy.MaxHashKey bytes. All nodes that share counters must have the same.
// Without it whoever reads the store can test guesses. A [Policy] has its own.
func HashKey(key []byte) Option {
	return func(s *settings) {
		if len(key) == 0 {
			s.bad("HashKey is empty; leave the option out to hash without a key")
			return
		}
		s.hashKey = slices.Clone(key)
	}
}

// OldHashKey sets the key before, while it is being changed on one node after the
// other, for [Limit]: see [policy.WithOldHashKey]. An empty one says that there was
// none. A [Policy] has its own.
func OldHashKey(key []byte) Option {
	return func(s *settings) { s.oldHashKey, s.oldHashes = slices.Clone(key), true }
}

// Cost sets how many units a call takes: 1 to headgate.MaxCount, or 0 for a call
// that is not limited, such as a health check. Anything else ends the call with
// INTERNAL. The default is 1.
func Cost(cost func(*Call) int64) Option {
	return func(s *settings) {
		if cost == nil {
			s.bad("Cost needs a function")
		}
		s.cost = cost
	}
}

// MessageCost is [Cost] for the messages that [MessageLimit] binds, which are in the
// call's Message.
func MessageCost(cost func(*Call) int64) Option {
	return func(s *settings) {
		if cost == nil {
			s.bad("MessageCost needs a function")
		}
		s.messageCost = cost
	}
}

// HoldMessages has a message that [MessageLimit] denies wait until it fits, at most
// for so long: nothing more is read from the stream meanwhile, so that the client is
// slowed down by gRPC's own flow control. A message that would have to wait longer,
// or beyond the stream's deadline, ends the stream.
func HoldMessages(most time.Duration) Option {
	return func(s *settings) {
		if most <= 0 {
			s.bad("HoldMessages is %v, must be more than 0", most)
		}
		s.hold = most
	}
}

// Settle makes the cost of a call that of [Cost], or one unit, an estimate, which is
// reserved; when the call has ended the function says what it really cost, 0 or more.
// What was estimated too much is given back, and what is missing is charged whether it
// fits or not. The rules of a [Policy] say how long a call may take, and what becomes
// of one whose end nobody told, because the process died. The store must be a
// [headgate.Ledger]. Settling takes one more call to it.
func Settle(cost func(c *Call, end End) int64) Option {
	return func(s *settings) {
		if cost == nil {
			s.bad("Settle needs a function")
		}
		s.settle = cost
	}
}

// OnMissing says what happens to a call without the identity that a [Limit] counts
// by. The default is [DenyMissing].
func OnMissing(choice Missing) Option {
	return func(s *settings) {
		if choice >= missings {
			s.bad("OnMissing: choice %d is unknown", choice)
		}
		s.missing = choice
	}
}

// OnStoreError says what happens to a call when the store cannot decide. The
// default is [FailOpen]. A rule of a [Policy] that says deny has its way. For what else
// rules say, put a fallback of package layered around the store.
func OnStoreError(choice Failure) Option {
	return func(s *settings) {
		if choice >= failures {
			s.bad("OnStoreError: choice %d is unknown", choice)
		}
		s.failure = choice
	}
}

// UnenforcedHeader names a key of the response's metadata, such as
// "x-ratelimit-unenforced", that is set to "store-unavailable" where [FailOpen] lets
// a call in.
func UnenforcedHeader(key string) Option {
	return func(s *settings) {
		if !validKey(key) {
			s.bad("UnenforcedHeader: %q is not the name of a key of metadata", key)
		}
		s.unenforced = strings.ToLower(key)
	}
}

// Headers sets the dialect in which clients are told their limits, in the headers
// of an admitted call and the trailers of a denied one. The default is
// httplimit.XRateLimit.
func Headers(dialect httplimit.Dialect) Option {
	return func(s *settings) {
		if _, err := httplimit.ParseDialect(dialect.String()); err != nil {
			s.bad("Headers: dialect %d is unknown", dialect)
		}
		s.dialect = dialect
	}
}

// MaxDelay sets how long at most a call or message is held for a leaky bucket. One
// that would have to wait longer, or beyond its deadline, is denied, and what it took
// is given back. The default is httplimit.DefaultMaxDelay; 0 never holds a call.
func MaxDelay(d time.Duration) Option {
	return func(s *settings) {
		if d < 0 {
			s.bad("MaxDelay is %v, must not be negative", d)
		}
		s.maxDelay = d
	}
}

// OnDenied sets what a denied call ends with.
func OnDenied(answer DeniedFunc) Option {
	return func(s *settings) {
		if answer == nil {
			s.bad("OnDenied needs a function")
		}
		s.denied = answer
	}
}

// WithHooks sets the hooks.
func WithHooks(hooks Hooks) Option {
	return func(s *settings) { s.hooks = hooks }
}

func (s *settings) bad(format string, args ...any) {
	s.problems.Add("", format, args...)
}

// validKey reports whether metadata can have a key of that name in any case.
func validKey(key string) bool {
	return key != "" && strings.Trim(strings.ToLower(key), "abcdefghijklmnopqrstuvwxyz0123456789-_.") == "" && !strings.HasPrefix(strings.ToLower(key), "grpc-")
}
