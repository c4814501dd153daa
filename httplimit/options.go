package httplimit

import (
	"net/http"
	"slices"
	"time"

	"github.com/headgate/headgate"
	"github.com/headgate/headgate/flow"
	"github.com/headgate/headgate/internal/admission"
	"github.com/headgate/headgate/internal/identity"
	"github.com/headgate/headgate/internal/notice"
	"github.com/headgate/headgate/internal/spelling"
	"github.com/headgate/headgate/policy"
	"github.com/headgate/headgate/policy/inprogress"
)

// The bounds and defaults of the options.
const (
	// DefaultMaxDelay is how long a request is held for a leaky bucket unless
	// [MaxDelay] says otherwise.
	DefaultMaxDelay = admission.DefaultMaxDelay
	// DefaultIPv6Prefix is how many bits of an IPv6 address count.
	DefaultIPv6Prefix = admission.DefaultIPv6Prefix
)

// Missing says what happens to a request without the identity that a [Limit]
// counts by. Whatever it is, such requests never share one counter.
type Missing = admission.Missing

const (
	// DenyMissing turns the request away: with 401 if it has no API key or no
	// user, with 400 if something else is missing. It is the default.
	DenyMissing = admission.DenyMissing
	// CountMissingByIP counts the request by the client's address instead,
	// apart from all other keys. A request that has none is turned away.
	CountMissingByIP = admission.CountMissingByIP
	// PassMissing lets the request past the limit. Other limits still bind it.
	PassMissing = admission.PassMissing
)

// Failure says what happens to a request when the store cannot decide.
type Failure = admission.Failure

const (
	// FailOpen lets the request in; see [UnenforcedHeader]. It is the default:
	// the limiter's failure is not the service's.
	FailOpen = admission.FailOpen
	// FailClosed turns the request away with 503 and a Retry-After of 5 s.
	FailClosed = admission.FailClosed
)

// Hooks are told what the middleware did. Any of them may be nil. They run in
// the request's goroutine and must be quick; they must not keep the verdict's
// decisions, which are used again.
type Hooks struct {
	// Denied is called for each request that a limit denied.
	Denied func(r *http.Request, v headgate.Verdict)
	// Shed is called for each request that the gate of [Through] refused. It must not
	// change the rejection.
	Shed func(r *http.Request, rejection *flow.Rejection)
	// Busy is called for each request that gets no permit, since too much is in progress
	// by a rule of the [Policy].
	Busy func(r *http.Request, refusal *inprogress.Refusal)
	// Soft is called for each limit that an admitted request has brought to the
	// percentage from which its rule in the [Policy] warns; for shadows too.
	Soft func(r *http.Request, d headgate.Decision)
	// Missing is called for each request that lacks the entry a limit counts
	// by, whatever happens to it.
	Missing func(r *http.Request, entry string)
	// Failed is called for each error: the store did not answer, a request's
	// cost is out of bounds, a unit could not be given back.
	Failed func(r *http.Request, err error)
}

// DeniedFunc answers a denied request in place of the problem document. The
// headers of the verdict are set already and may be changed; the status is not
// sent yet. It must not keep the verdict's decisions.
type DeniedFunc func(w http.ResponseWriter, r *http.Request, v headgate.Verdict)

// BusyFunc answers a request that gets no permit, in place of the problem document.
// Nothing is sent yet.
type BusyFunc func(w http.ResponseWriter, r *http.Request, refusal *inprogress.Refusal)

// Option changes what [New] makes.
type Option func(*settings)

// settings are the options as given, before they are checked.
type settings struct {
	admission.Options[*http.Request]
	limits     []admission.Binding[*http.Request]
	resolver   *identity.Resolver
	keyHeaders []string
	routeOf    func(*http.Request) string
	// readElsewhere says that another server reads paths, and forms how.
	readElsewhere bool
	forms         spelling.Forms
	cost          func(*http.Request) int64
	settle        func(*http.Request, Response) int64
	through       flow.Gate
	load          Load
	unenforced    string
	dialect       Dialect
	denied        DeniedFunc
	busy          BusyFunc
}

// Limit binds every request by the rules, with counters kept for the key. Given
// several times, by different keys, all of the rules must admit a request, or
// none is charged.
func Limit(key Key, rules ...*headgate.Rule) Option {
	return func(s *settings) {
		s.limits = append(s.limits, admission.Binding[*http.Request]{Key: key.of, Rules: rules})
	}
}

// Policy binds requests by the rules of a policy. The facts that the rules may
// look at are api_key (see [APIKeyHeaders]), ip (the client's whole address; see
// [TrustProxies]), route (see [Route]), method, host (without a port, in lower
// case), path, and those of [Fact] and [Describe]. As everywhere, a rule does
// not bind a request that lacks an entry it counts by. Policy and [Limit] may be
// used together.
func Policy(set *policy.Set) Option {
	return func(s *settings) { s.AddPolicy(set) }
}

// PolicyFrom is [Policy] for a policy that changes while it is in use: [policy.Source.Swap] puts
// another set in force, unless its rules look at an entry that nothing finds or have the name of
// a rule of a [Limit]. A request that has begun ends by the set that it began with.
func PolicyFrom(source *policy.Source) Option {
	return func(s *settings) { s.AddSource("PolicyFrom", source) }
}

// InProgress sets what has the permits of the policy's bounds on what is in progress, so
// that middlewares which are given the same one count together. Without it a middleware
// counts by itself.
func InProgress(keeper *inprogress.Keeper) Option {
	return func(s *settings) {
		if keeper == nil {
			s.Bad("InProgress", "InProgress: the keeper is nil; make one with inprogress.New")
		}
		s.Keeper = keeper
	}
}

// OnBusy sets what answers a request that gets no permit. The default is a problem
// document (RFC 9457): with status 429 if the bound is the client's own, and with 503 if
// it is for several clients.
func OnBusy(answer BusyFunc) Option {
	return func(s *settings) {
		s.Needs("OnBusy", answer != nil)
		s.busy = answer
	}
}

// Fact adds an entry to what a policy's rules may look at, such as "user" or
// "tier". The function is called for each request if a rule mentions the entry;
// "" means that the request has none. It takes the place of a built-in fact of
// that name.
func Fact(entry string, find func(*http.Request) string) Option {
	return func(s *settings) { s.Facts = append(s.Facts, &fact{Name: entry, Find: find}) }
}

// Describe has the last word on the descriptor that a policy and the limits see:
// it is called with all facts of a request and returns them as they shall be. Of
// two entries with one name the first counts. It must not keep the slice. With
// it New cannot tell which entries there will be, and accepts rules that need
// others. Prefer [Fact], which costs nothing where no rule needs it.
func Describe(describe func(r *http.Request, facts policy.Descriptor) policy.Descriptor) Option {
	return func(s *settings) {
		s.Needs("Describe", describe != nil)
		s.Describe = describe
	}
}

// TrustProxies believes the client's address that the named header gives, if the
// connection comes from one of the proxies; see [NewResolver]. Without it the
// client is the peer of the connection, whatever headers say.
func TrustProxies(source Source, proxies ...string) Option {
	return func(s *settings) {
		res, problems := identity.NewResolver(source, proxies)
		s.Problems = append(s.Problems, problems...)
		s.resolver = res
	}
}

// IPv6Prefix sets how many bits of an IPv6 address [ByIP] counts by: 1 to 128.
// The default is 64, the least that a subscriber gets. Rules of a [Policy] say it
// themselves.
func IPv6Prefix(bits int) Option {
	return func(s *settings) { s.IPv6Bits = bits }
}

// APIKeyHeaders says where the API key stands; the first header that has one
// counts. In Authorization it follows the word Bearer. The default is
// Authorization, then X-Api-Key. Name exactly what the service authenticates by:
// with a header that it ignores, a client could pass for a new one at will.
func APIKeyHeaders(names ...string) Option {
	return func(s *settings) {
		s.keyHeaders = nil
		if len(names) == 0 {
			s.Bad("APIKeyHeaders", "APIKeyHeaders needs the name of a header")
		}
		for _, name := range names {
			if !identity.ValidHeader(name) {
				s.Bad("APIKeyHeaders", "APIKeyHeaders: %q is not the name of a header", name)
			}
			s.keyHeaders = append(s.keyHeaders, http.CanonicalHeaderKey(name))
		}
	}
}

// HashKey sets the key under which [Limit] hashes secrets: policy.MinHashKey to
// policy.MaxHashKey bytes. All nodes that share counters must have the same.
// Without it whoever reads the store can test guesses. A [Policy] has its own.
func HashKey(key []byte) Option {
	return func(s *settings) { s.SetHashKey(key) }
}

// OldHashKey sets the key before, while it is being changed on one node after the
// other, for [Limit]: see [policy.OldHashKey]. An empty one says that there was
// none. A [Policy] has its own.
func OldHashKey(key []byte) Option {
	return func(s *settings) { s.OldHashKey, s.Rotates = slices.Clone(key), true }
}

// Route sets how a request's route is found. The default is the pattern that
// [http.ServeMux] matched ([http.Request.Pattern]), which is there if the
// middleware stands around the handlers of a mux, or else the method and the
// path, "GET /v1/items/7". Around a whole mux use [MuxRoute]; for another router
// ask that for its pattern. A path is the client's choice: as part of a key it
// lets a client have as many counters as there are paths.
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

// OnMissing says what happens to a request without the identity that a [Limit]
// counts by. The default is [DenyMissing].
func OnMissing(choice Missing) Option {
	return func(s *settings) { s.Missing = choice }
}

// OnStoreError says what happens to a request when the store cannot decide. The
// default is [FailOpen]. A rule of a [Policy] that says deny has its way, unless it
// is in shadow. For what else rules say, put a fallback of package layered around the
// store.
func OnStoreError(choice Failure) Option {
	return func(s *settings) { s.Failure = choice }
}

// UnenforcedHeader names a response header, such as "X-RateLimit-Unenforced",
// that is set to "store-unavailable" where [FailOpen] lets a request in.
func UnenforcedHeader(name string) Option {
	return func(s *settings) {
		if !identity.ValidHeader(name) {
			s.Bad("UnenforcedHeader", "UnenforcedHeader: %q is not the name of a header", name)
		}
		s.unenforced = http.CanonicalHeaderKey(name)
	}
}

// Headers sets the dialect in which clients are told their limits. The default
// is [XRateLimit].
func Headers(dialect Dialect) Option {
	return func(s *settings) {
		if !dialect.Known() {
			s.Bad("Headers", "Headers: dialect %d is unknown", dialect)
		}
		s.dialect = dialect
	}
}

// MaxDelay sets how long at most a request is held for a leaky bucket. One that
// would have to wait longer, or beyond its context's deadline, is denied, and
// what it took is given back. The default is [DefaultMaxDelay]; 0 never holds a
// request.
func MaxDelay(d time.Duration) Option {
	return func(s *settings) { s.MaxDelay = d }
}

// OnDenied sets what answers a denied request. The default is a problem document
// (RFC 9457) with status 429; see [QuotaExceeded].
func OnDenied(answer DeniedFunc) Option {
	return func(s *settings) {
		s.Needs("OnDenied", answer != nil)
		s.denied = answer
	}
}

// Observe sets the hooks that are told what happens.
func Observe(hooks Hooks) Option {
	return func(s *settings) {
		s.Hooks = admission.Hooks[*http.Request]{Denied: hooks.Denied, Busy: hooks.Busy, Shed: hooks.Shed, Soft: hooks.Soft, Missing: hooks.Missing, Failed: hooks.Failed}
	}
}

// New returns a middleware that lets through what the store admits. It works
// with any router that takes func(http.Handler) http.Handler. At least one
// [Limit], a [Policy] or a gate to pass [Through] is needed; without limits the store may
// be nil. The error is a [*headgate.InvalidError] with
// every mistake in the options.
func New(store headgate.Store, opts ...Option) (func(http.Handler) http.Handler, error) {
	m, err := newMiddleware(store, opts)
	if err != nil {
		return nil, err
	}
	return func(next http.Handler) http.Handler {
		return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) { m.serve(w, r, next) })
	}, nil
}

func newMiddleware(store headgate.Store, opts []Option) (*middleware, error) {
	m := &middleware{settings: settings{
		Options: admission.Options[*http.Request]{
			Store: store, IPv6Bits: DefaultIPv6Prefix, MaxDelay: DefaultMaxDelay,
			Known: known, Address: factIP,
		},
		resolver:   new(identity.Resolver),
		keyHeaders: []string{identity.Authorization, "X-Api-Key"},
		denied: func(w http.ResponseWriter, r *http.Request, v headgate.Verdict) {
			p := QuotaExceeded(&v)
			p.Write(w, r)
		},
		busy: func(w http.ResponseWriter, r *http.Request, refusal *inprogress.Refusal) {
			p := Problem(notice.InProgress(refusal))
			p.Write(w, r)
		},
	}}
	s := &m.settings
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
	m.gate = admission.New(&s.Options, admission.Group[*http.Request]{
		Option: "Limit", Bindings: s.limits, Cost: s.cost, CostOption: "Cost", UsesPolicy: true, Settles: s.settle != nil,
		Gate: s.through, Describe: s.describe,
	})[0]
	if err := s.Problems.Err("middleware"); err != nil {
		return nil, err
	}
	return m, nil
}
