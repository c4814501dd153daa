package httplimit

import (
	"net/http"
	"slices"
	"time"

	"github.com/headgate/headgate"
	"github.com/headgate/headgate/flow"
	"github.com/headgate/headgate/internal/admission"
	"github.com/headgate/headgate/internal/identity"
	"github.com/headgate/headgate/internal/spelling"
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

// Missing says what happens to a request without the identity by which a [Limit] counts. In no case
// do such requests share one counter.
type Missing = admission.Missing

const (
	// DenyMissing refuses the request: with 401 if the API key or the user is missing, with 400 if
	// something else is. It is the default.
	DenyMissing = admission.DenyMissing
	// CountMissingByIP counts the request by the client's address, separately from all other keys.
	// A request without an address is refused.
	CountMissingByIP = admission.CountMissingByIP
	// PassMissing lets the request pass this limit. Other limits still bind it.
	PassMissing = admission.PassMissing
)

// Failure says what happens to a request when the store cannot decide.
type Failure = admission.Failure

const (
	// FailOpen admits the request; see [UnenforcedHeader]. It is the default, because a failure of
	// the limiter should not be a failure of the service.
	FailOpen = admission.FailOpen
	// FailClosed refuses the request with 503 and a Retry-After of 5 s.
	FailClosed = admission.FailClosed
)

// Hooks are called when the middleware has done something. Any of them may be nil. They run in the
// request's goroutine and must be quick. They must not keep the verdict's decisions, whose memory
// is reused.
type Hooks struct {
	// Denied is called for each request that a limit denied.
	Denied func(r *http.Request, v headgate.Verdict)
	// Shed is called for each request that the gate of [Through] has refused. It must not change
	// the rejection.
	Shed func(r *http.Request, rejection *flow.Rejection)
	// Busy is called for each request that got no permit, because a rule of the [Policy] bounds
	// what is in progress.
	Busy func(r *http.Request, refusal *inprogress.Refusal)
	// Soft is called for each limit that an admitted request has brought to the percentage at which
	// its rule in the [Policy] warns, also for rules in shadow.
	Soft func(r *http.Request, d headgate.Decision)
	// Missing is called for each request that lacks the entry by which a limit counts, whatever
	// happens to the request, and for each whose entry is unclear or too long.
	Missing func(r *http.Request, entry string)
	// Failed is called for each error: the store did not answer, a request's cost was out of
	// bounds, or a unit could not be given back.
	Failed func(r *http.Request, err error)
}

// DeniedFunc answers a denied request instead of the problem document. The headers of the verdict
// have been set and may be changed. The status has not been sent. It must not keep the verdict's
// decisions.
type DeniedFunc func(w http.ResponseWriter, r *http.Request, v headgate.Verdict)

// Option changes what [New] makes.
type Option func(*settings)

// settings are the options as given, before they are checked.
type settings struct {
	admission.Options[*http.Request]
	limits   []admission.Binding[*http.Request]
	resolver *identity.Resolver
	keys     identity.Keys
	routeOf  func(*http.Request) string
	// readElsewhere says that another server reads paths, and forms say how.
	readElsewhere bool
	forms         spelling.Forms
	cost          func(*http.Request) int64
	settle        func(*http.Request, Response) int64
	through       flow.Gate
	load          Load
	unenforced    string
	dialect       Dialect
	denied        DeniedFunc
}

// Limit binds every request by the rules, with counters for the key. It may be given several times,
// with different keys. If one of all these rules denies a request, none is charged.
func Limit(key Key, rules ...*headgate.Rule) Option {
	return func(s *settings) {
		s.limits = append(s.limits, admission.Binding[*http.Request]{Key: key.of, Rules: rules})
	}
}

// Policy binds requests by the rules of a policy. The rules may use these entries: api_key (see
// [APIKeyHeaders]), ip (the client's whole address; see [TrustProxies]), route (see [Route]),
// method, host (without a port, in lower case), path, and those of [Fact] and [Describe]. As
// everywhere, a rule does not bind a request that lacks an entry by which it counts. Policy and
// [Limit] may be used together.
func Policy(set *policy.Set) Option {
	return func(s *settings) { s.AddPolicy(set) }
}

// PolicyFrom is [Policy] for a policy that changes while it is in use. [policy.Source.Swap] refuses
// a set whose rules use an entry that the middleware cannot supply, or have the name of a rule of a
// [Limit]. A request ends under the set with which it began.
func PolicyFrom(source *policy.Source) Option {
	return func(s *settings) { s.AddSource("PolicyFrom", source) }
}

// InProgress sets the keeper of the permits for a policy's bounds on what is in progress.
// Middlewares with the same keeper count together. Without this option a middleware has a keeper of
// its own. A request that gets no permit is answered with a problem document (RFC 9457), with status
// 429 if the bound is for this client, and with 503 if several clients share it.
func InProgress(keeper *inprogress.Keeper) Option {
	return func(s *settings) {
		if keeper == nil {
			s.Bad("InProgress", "InProgress: the keeper is nil; make one with inprogress.New")
		}
		s.Keeper = keeper
	}
}

// Fact adds an entry that the rules of a policy may use, such as "user" or "tier". The function is
// called for each request if a rule uses the entry; "" means that the request does not have it. A
// fact replaces a built-in entry of the same name.
func Fact(entry string, find func(*http.Request) string) Option {
	return func(s *settings) { s.Facts = append(s.Facts, &fact{Name: entry, Find: find}) }
}

// Describe sets a function that may change the descriptor which a policy and the limits see. It is
// called with all facts of a request and returns the descriptor. If two entries have the same name,
// the first counts. It must not keep the slice. With Describe, New cannot know which entries there
// will be, so it accepts all rules. Prefer [Fact], which costs nothing if no rule uses it.
func Describe(describe func(r *http.Request, facts policy.Descriptor) policy.Descriptor) Option {
	return func(s *settings) {
		s.Needs("Describe", describe != nil)
		s.Describe = describe
	}
}

// TrustProxies makes the middleware believe the client's address in the named header, if the
// connection comes from one of the proxies; see [NewResolver]. Without it the client is the peer of
// the connection, whatever headers say.
func TrustProxies(source Source, proxies ...string) Option {
	return func(s *settings) {
		res, problems := identity.NewResolver(source, proxies)
		s.Problems = append(s.Problems, problems...)
		s.resolver = res
	}
}

// IPv6Prefix sets how many bits of an IPv6 address [ByIP] counts by: 1 to 128. The default is 64,
// because a subscriber gets at least a /64. Rules of a [Policy] give their own prefix.
func IPv6Prefix(bits int) Option {
	return func(s *settings) { s.IPv6Bits = bits }
}

// APIKeyHeaders names the headers that may have the API key. The first one that the request has
// counts. In Authorization the key follows the word Bearer; "Authorization:Token" names another
// scheme, and "Authorization:*" means any scheme or none. The default is Authorization, then
// X-Api-Key. Name exactly the headers by which the service authenticates: with a header that the
// service ignores, a client could pretend to be a new client with each request.
func APIKeyHeaders(names ...string) Option {
	return func(s *settings) {
		s.keys = identity.Keys{}
		if len(names) == 0 {
			s.Bad("APIKeyHeaders", "APIKeyHeaders needs the name of a header")
		}
		for _, name := range names {
			if problem := s.keys.Add(name, http.CanonicalHeaderKey); problem != "" {
				s.Bad("APIKeyHeaders", "APIKeyHeaders: %s", problem)
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

// Route sets how a request's route is found. The default is the pattern that [http.ServeMux]
// matched ([http.Request.Pattern]), if the middleware is around the handlers of a mux, and
// otherwise the method and the path, "GET /v1/items/7". Around a whole mux use [MuxRoute]. With
// another router, return its pattern. Avoid paths in keys: a client chooses the path, and so could
// have as many counters as there are paths.
func Route(route func(*http.Request) string) Option {
	return func(s *settings) {
		s.Needs("Route", route != nil)
		s.routeOf = route
	}
}

// Cost sets how many units a request takes: 1 to headgate.MaxCount, or 0 for a
// request that is not limited, such as a CORS preflight. Anything else is
// answered with 500. The default is 1.
func Cost(cost func(*http.Request) int64) Option {
	return func(s *settings) {
		s.Needs("Cost", cost != nil)
		s.cost = cost
	}
}

// OnMissing says what happens to a request without the identity by which a [Limit] counts. The
// default is [DenyMissing].
func OnMissing(choice Missing) Option {
	return func(s *settings) { s.Missing = choice }
}

// OnStoreError says what happens to a request when the store cannot decide. The default is
// [FailOpen]. If a rule of a [Policy] says deny, the request is denied all the same, unless the
// rule is in shadow. For the other values of the rules' on_store_error, put a layer of package
// fallback around the store.
func OnStoreError(choice Failure) Option {
	return func(s *settings) { s.Failure = choice }
}

// UnenforcedHeader names a response header, such as "X-RateLimit-Unenforced", that is set to
// "store-unavailable" when [FailOpen] admits a request.
func UnenforcedHeader(name string) Option {
	return func(s *settings) {
		if !identity.ValidHeader(name) {
			s.Bad("UnenforcedHeader", "UnenforcedHeader: %q is not the name of a header", name)
		}
		s.unenforced = http.CanonicalHeaderKey(name)
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

// MaxDelay sets the longest time for which a request is held for a leaky bucket. A request that
// would have to wait longer, or beyond its context's deadline, is denied, and what it took is given
// back. The default is [DefaultMaxDelay]; with 0 no request is held.
func MaxDelay(d time.Duration) Option {
	return func(s *settings) { s.MaxDelay = d }
}

// OnDenied sets the function that answers denied requests. The default is a problem document (RFC
// 9457) with status 429; see [QuotaExceeded].
func OnDenied(answer DeniedFunc) Option {
	return func(s *settings) {
		s.Needs("OnDenied", answer != nil)
		s.denied = answer
	}
}

// Observe sets the [Hooks].
func Observe(hooks Hooks) Option {
	return func(s *settings) {
		s.Hooks = admission.Hooks[*http.Request]{Denied: hooks.Denied, Busy: hooks.Busy, Shed: hooks.Shed, Soft: hooks.Soft, Missing: hooks.Missing, Failed: hooks.Failed}
	}
}

// New returns a middleware that admits the requests that the store admits. It works with any router
// that takes func(http.Handler) http.Handler. At least one [Limit], [Policy] or [Through] is
// needed. Without limits and a policy, the store may be nil. The error is a
// [*headgate.InvalidError] with every mistake in the options.
func New(store headgate.Store, opts ...Option) (func(http.Handler) http.Handler, error) {
	g, err := NewGate(store, opts...)
	if err != nil {
		return nil, err
	}
	return func(next http.Handler) http.Handler {
		return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) { g.serve(w, r, next) })
	}, nil
}

// NewGate returns a gate. The options and the errors are those of [New].
func NewGate(store headgate.Store, opts ...Option) (*Gate, error) {
	g := &Gate{settings: settings{
		Options: admission.Options[*http.Request]{
			Store: store, IPv6Bits: DefaultIPv6Prefix, MaxDelay: DefaultMaxDelay,
			Known: known, Address: factIP,
		},
		resolver: new(identity.Resolver),
		denied: func(w http.ResponseWriter, r *http.Request, v headgate.Verdict) {
			p := QuotaExceeded(&v)
			p.Write(w, r)
		},
	}}
	s := &g.settings
	APIKeyHeaders(identity.Authorization, "X-Api-Key")(s)
	for _, opt := range opts {
		opt(s)
	}
	limited := len(s.limits) > 0 || s.Source != nil
	if store == nil && (limited || s.through == nil) {
		s.Bad("store", "the store is nil")
	}
	if !limited && s.through == nil {
		s.Bad("", "nothing is limited; give a Limit, a Policy or a gate to pass Through")
	}
	if s.load.Peers && s.resolver.Source() == "" {
		s.Bad("Through", "Through: class and tenant are read from headers of trusted peers, but no proxy is trusted; give TrustProxies")
	}
	s.Finders = s.finders()
	if s.readElsewhere {
		s.Unclear = s.unclearPath
	}
	g.gate = admission.New(&s.Options, admission.Group[*http.Request]{
		Option: "Limit", Bindings: s.limits, Cost: s.cost, CostOption: "Cost", UsesPolicy: true, Settles: s.settle != nil,
		Gate: s.through, Describe: s.describe,
	})[0]
	if err := s.Problems.Err("middleware"); err != nil {
		return nil, err
	}
	return g, nil
}
