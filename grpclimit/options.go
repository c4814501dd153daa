package grpclimit

import (
	"slices"
	"strings"
	"time"

	"google.golang.org/grpc/codes"

	"github.com/headgate/headgate"
	"github.com/headgate/headgate/flow"
	"github.com/headgate/headgate/internal/admission"
	"github.com/headgate/headgate/internal/identity"
	"github.com/headgate/headgate/internal/notice"
	"github.com/headgate/headgate/policy"
	"github.com/headgate/headgate/policy/inprogress"
)

// The defaults of the options.
const (
	// DefaultMaxDelay is the default of [MaxDelay].
	DefaultMaxDelay = admission.DefaultMaxDelay
	// DefaultIPv6Prefix is the default of [IPv6Prefix].
	DefaultIPv6Prefix = admission.DefaultIPv6Prefix
)

// Dialect is the set of headers that tell a client its limits, as in package httplimit.
// Its values are the same.
type Dialect = notice.Dialect

// The dialects.
const (
	XRateLimit      = notice.XRateLimit      // x-ratelimit-limit, -remaining and -reset
	RateLimitTriple = notice.RateLimitTriple // ratelimit-limit, -remaining and -reset
	Draft11         = notice.Draft11         // ratelimit-policy and ratelimit
	NoHeaders       = notice.NoHeaders       // only the retry-after of a denial
)

// Source is the name of the metadata in which trusted proxies pass on the client's address, as in
// package httplimit: [XForwardedFor], [Forwarded], or another name for a single address. It is a
// string.
type Source = identity.Source

// The sources that are lists.
const (
	XForwardedFor = identity.XForwardedFor
	Forwarded     = identity.Forwarded // RFC 7239
)

// Missing says what happens to a call without the identity by which a [Limit] counts. In no case do
// such calls share one counter.
type Missing = admission.Missing

const (
	// DenyMissing refuses the call: with UNAUTHENTICATED if the API key, the user or the
	// certificate is missing, with INVALID_ARGUMENT if something else is. It is the default.
	DenyMissing = admission.DenyMissing
	// CountMissingByIP counts the call by the client's address, separately from all other keys. A
	// call without an address is refused.
	CountMissingByIP = admission.CountMissingByIP
	// PassMissing lets the call pass this limit. Other limits still bind it.
	PassMissing = admission.PassMissing
)

// Failure says what happens to a call when the store cannot decide.
type Failure = admission.Failure

const (
	// FailOpen admits the call; see [UnenforcedHeader]. It is the default, because a failure of the
	// limiter should not be a failure of the service.
	FailOpen = admission.FailOpen
	// FailClosed refuses the call with UNAVAILABLE and a google.rpc.RetryInfo of 5 s.
	FailClosed = admission.FailClosed
)

// Hooks are called when the interceptors have done something. Any of them may be nil. They run in
// the call's goroutine and must be quick. They must not keep the call, nor the verdict's decisions,
// whose memory is reused.
type Hooks struct {
	// Denied is called for each call or message that a limit denied.
	Denied func(c *Call, v headgate.Verdict)
	// Shed is called for each call that the gate of [Through] has refused. It must not change the
	// rejection.
	Shed func(c *Call, rejection *flow.Rejection)
	// Busy is called for each call that got no permit, because a rule of the [Policy] bounds what
	// is in progress.
	Busy func(c *Call, refusal *inprogress.Refusal)
	// Missing is called for each call that lacks the entry by which a limit counts, whatever
	// happens to the call.
	Missing func(c *Call, entry string)
	// Soft is called for each limit that an admitted call has brought to the percentage at which
	// its rule in the [Policy] warns, also for rules in shadow.
	Soft func(c *Call, d headgate.Decision)
	// Failed is called for each error: the store did not answer, a cost was out of bounds, or a
	// unit could not be given back.
	Failed func(c *Call, err error)
}

// DeniedFunc makes the error of a denied call, instead of RESOURCE_EXHAUSTED with details. It must
// not keep the verdict's decisions.
type DeniedFunc func(c *Call, v headgate.Verdict) error

// End describes how a call has ended.
type End struct {
	// Code is the code of the handler's error.
	Code codes.Code
	// Reply is what a unary handler returned; nil for a stream.
	Reply any
	// Received and Sent are how many messages a stream had from the client and to
	// it; 1 and 1 for a unary call that ended well.
	Received, Sent int64
	// Cost is the cost that the handler gave with [SetCost], or -1.
	Cost int64
}

// Option changes what [NewServer] makes.
type Option func(*settings)

// settings are the options as given, before they are checked.
type settings struct {
	admission.Options[*Call]
	limits        []admission.Binding[*Call]
	messageLimits []admission.Binding[*Call]
	reader        reader
	cost          func(*Call) int64
	messageCost   func(*Call) int64
	settle        func(*Call, End) int64
	through       flow.Gate
	load          Load
	unenforced    string
	dialect       Dialect
	hold          time.Duration
	denied        DeniedFunc
}

// newSettings are the defaults of servers and clients.
func newSettings(store headgate.Store) settings {
	s := settings{
		Options: admission.Options[*Call]{Store: store, IPv6Bits: DefaultIPv6Prefix, Address: factIP},
		reader:  reader{resolver: newResolver(new(identity.Resolver))},
	}
	APIKeyMetadata("authorization", "x-api-key")(&s)
	return s
}

// Limit binds every call by the rules, with counters for the key. It may be given several times,
// with different keys. If one of all these rules denies a call, none is charged.
func Limit(key Key, rules ...*headgate.Rule) Option {
	return func(s *settings) { s.limits = append(s.limits, admission.Binding[*Call]{Key: key.of, Rules: rules}) }
}

// MessageLimit binds every message that a client sends over a stream by the rules, in addition to
// the limits for opening the stream. A message that is denied ends the stream, unless
// [HoldMessages] lets it wait.
func MessageLimit(key Key, rules ...*headgate.Rule) Option {
	return func(s *settings) {
		s.messageLimits = append(s.messageLimits, admission.Binding[*Call]{Key: key.of, Rules: rules})
	}
}

// Policy binds calls by the rules of a policy. The rules may use these entries: api_key (see
// [APIKeyMetadata]), ip (the client's whole address; see [TrustProxies]), route (the full method,
// "/package.Service/Method"), service, method (the last part of it), host, certificate (see
// [ByCertificate]), and those of [Fact] and [Describe]. As everywhere, a rule does not bind a call
// that lacks an entry by which it counts. For rules that charge by the outcome, an error's code
// counts as the corresponding HTTP status, such as 429 for RESOURCE_EXHAUSTED. Policy and [Limit]
// may be used together.
func Policy(set *policy.Set) Option {
	return func(s *settings) { s.AddPolicy(set) }
}

// PolicyFrom is [Policy] for a policy that changes while it is in use. [policy.Source.Swap] refuses
// a set whose rules use an entry that the interceptors cannot supply, or have the name of a rule of
// a [Limit]. A call ends under the set with which it began.
func PolicyFrom(source *policy.Source) Option {
	return func(s *settings) { s.AddSource("PolicyFrom", source) }
}

// InProgress sets the keeper of the permits for a policy's bounds on what is in progress. Servers
// with the same keeper count together. Without this option a [Server] has a keeper of its own. A
// call, or a stream, is in progress until its handler returns.
func InProgress(keeper *inprogress.Keeper) Option {
	return func(s *settings) {
		if keeper == nil {
			s.Bad("InProgress", "InProgress: the keeper is nil; make one with inprogress.New")
		}
		s.Keeper = keeper
	}
}

// Fact adds an entry that the rules of a policy may use, such as "user" or "tier". The function is
// called for each call if a rule uses the entry; "" means that the call does not have it. A fact
// replaces a built-in entry of the same name.
func Fact(entry string, find func(*Call) string) Option {
	return func(s *settings) { s.Facts = append(s.Facts, &fact{Name: entry, Find: find}) }
}

// Describe sets a function that may change the descriptor which a policy and the limits see. It is
// called with all facts of a call and returns the descriptor. If two entries have the same name,
// the first counts. It must not keep the slice. With Describe, NewServer cannot know which entries
// there will be, so it accepts all rules. Prefer [Fact], which costs nothing if no rule uses it.
func Describe(describe func(c *Call, facts policy.Descriptor) policy.Descriptor) Option {
	return func(s *settings) {
		s.Needs("Describe", describe != nil)
		s.Describe = describe
	}
}

// TrustProxies makes the interceptors believe the client's address in the named metadata, if the
// connection comes from one of the proxies. Source and proxies are written as in package httplimit.
// Without it the client is the peer of the connection, whatever the metadata say.
func TrustProxies(source Source, proxies ...string) Option {
	return func(s *settings) {
		r, problems := identity.NewResolver(source, proxies)
		s.Problems = append(s.Problems, problems...)
		s.reader.resolver = newResolver(r)
	}
}

// IPv6Prefix sets how many bits of an IPv6 address [ByIP] counts by: 1 to 128. The default is 64,
// because a subscriber gets at least a /64. Rules of a [Policy] give their own prefix.
func IPv6Prefix(bits int) Option {
	return func(s *settings) { s.IPv6Bits = bits }
}

// APIKeyMetadata names the keys of the metadata that may have the API key. The first one that the
// call has counts. In authorization the API key follows the word Bearer; "authorization:token"
// names another scheme, and "authorization:*" means any scheme or none. The default is
// authorization, then x-api-key. Name exactly the keys by which the service authenticates: with one
// that the service ignores, a client could pretend to be a new client with each call.
func APIKeyMetadata(keys ...string) Option {
	return func(s *settings) {
		s.reader.apiKeys = identity.Keys{}
		if len(keys) == 0 {
			s.Bad("APIKeyMetadata", "APIKeyMetadata needs the name of a key")
		}
		for _, key := range keys {
			name, _, _ := strings.Cut(key, ":")
			if problem := s.reader.apiKeys.Add(key, strings.ToLower); problem != "" || !validKey(name) {
				s.Bad("APIKeyMetadata", "APIKeyMetadata: %q is not the name of a key of metadata, with or without a scheme, such as authorization:token", key)
			}
		}
	}
}

// HashKey sets the key with which [Limit] hashes secrets, of policy.MinHashKey to policy.MaxHashKey
// bytes. All nodes that share counters must have the same one. Without it, whoever reads the store
// can test guesses. A [Policy] has its own.
func HashKey(key []byte) Option {
	return func(s *settings) { s.SetHashKey(key) }
}

// OldHashKey sets the previous hash key of [Limit], while the key is being changed on one node
// after the other; see [policy.OldHashKey]. An empty key means that there was none. A [Policy] has
// its own.
func OldHashKey(key []byte) Option {
	return func(s *settings) { s.OldHashKey, s.Rotates = slices.Clone(key), true }
}

// Cost sets how many units a call takes: 1 to headgate.MaxCount, or 0 for a call
// that is not limited, such as a health check. Anything else ends the call with
// INTERNAL. The default is 1.
func Cost(cost func(*Call) int64) Option {
	return func(s *settings) {
		s.Needs("Cost", cost != nil)
		s.cost = cost
	}
}

// MessageCost is [Cost] for the messages that [MessageLimit] binds, which are in the
// call's Message.
func MessageCost(cost func(*Call) int64) Option {
	return func(s *settings) {
		s.Needs("MessageCost", cost != nil)
		s.messageCost = cost
	}
}

// HoldMessages lets a message that [MessageLimit] denies wait until it fits, for at most the given
// time. Nothing more is read from the stream meanwhile, so gRPC's own flow control slows the client
// down. If a message would have to wait longer, or beyond the stream's deadline, the stream ends.
func HoldMessages(most time.Duration) Option {
	return func(s *settings) {
		if most <= 0 {
			s.Bad("HoldMessages", "HoldMessages is %v, must be more than 0", most)
		}
		s.hold = most
	}
}

// Settle makes the cost of a call (that of [Cost], or one unit) an estimate, which is reserved.
// When the call has ended, the function returns its real cost, 0 or more. If that is less than the
// estimate, the difference is given back. If it is more, the difference is charged, whether it fits
// or not.
//
// The rules of a [Policy] say how long a call may take, and what happens to the units if nobody
// reports its end, because the process died. If a call took longer than that, a difference is still
// charged, but none is given back.
//
// The store must be a [headgate.Ledger]. Settling takes one more call to it.
func Settle(cost func(c *Call, end End) int64) Option {
	return func(s *settings) {
		s.Needs("Settle", cost != nil)
		s.settle = cost
	}
}

// OnMissing says what happens to a call without the identity by which a [Limit] counts. The default
// is [DenyMissing].
func OnMissing(choice Missing) Option {
	return func(s *settings) { s.Missing = choice }
}

// OnStoreError says what happens to a call when the store cannot decide. The default is [FailOpen].
// If a rule of a [Policy] says deny, the call is denied all the same. For the other values of the
// rules' on_store_error, put a layer of package fallback around the store.
func OnStoreError(choice Failure) Option {
	return func(s *settings) { s.Failure = choice }
}

// UnenforcedHeader names a key of the response's metadata, such as "x-ratelimit-unenforced", that
// is set to "store-unavailable" when [FailOpen] admits a call.
func UnenforcedHeader(key string) Option {
	return func(s *settings) {
		if !validKey(key) {
			s.Bad("UnenforcedHeader", "UnenforcedHeader: %q is not the name of a key of metadata", key)
		}
		s.unenforced = strings.ToLower(key)
	}
}

// Headers sets the dialect of the headers that tell clients their limits. The default is
// [XRateLimit].
func Headers(dialect Dialect) Option {
	return func(s *settings) {
		if !dialect.Known() {
			s.Bad("Headers", "Headers: dialect %d is unknown", dialect)
		}
		s.dialect = dialect
	}
}

// MaxDelay sets the longest time for which a call or a message is held for a leaky bucket. If it
// would have to wait longer, or beyond its deadline, it is denied, and what it took is given back.
// The default is [DefaultMaxDelay]; with 0 nothing is held.
func MaxDelay(d time.Duration) Option {
	return func(s *settings) { s.MaxDelay = d }
}

// OnDenied sets the function that makes the error of a denied call.
func OnDenied(answer DeniedFunc) Option {
	return func(s *settings) {
		s.Needs("OnDenied", answer != nil)
		s.denied = answer
	}
}

// Observe sets the [Hooks].
func Observe(hooks Hooks) Option {
	return func(s *settings) {
		s.Hooks = admission.Hooks[*Call]{Denied: hooks.Denied, Busy: hooks.Busy, Shed: hooks.Shed, Soft: hooks.Soft, Missing: hooks.Missing, Failed: hooks.Failed}
	}
}

// validKey reports whether metadata can have a key of that name, in upper or lower case.
func validKey(key string) bool {
	return key != "" && strings.Trim(strings.ToLower(key), "abcdefghijklmnopqrstuvwxyz0123456789-_.") == "" && !strings.HasPrefix(strings.ToLower(key), "grpc-")
}
