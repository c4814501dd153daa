package forwardauth

import (
	"cmp"
	"context"
	"log/slog"
	"net/http"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/headgate/headgate"
	"github.com/headgate/headgate/httplimit"
	"github.com/headgate/headgate/internal/admission"
	"github.com/headgate/headgate/internal/identity"
	"github.com/headgate/headgate/internal/notice"
	"github.com/headgate/headgate/internal/routes"
	"github.com/headgate/headgate/internal/spelling"
	"github.com/headgate/headgate/policy"
	"github.com/headgate/headgate/server/decide"
)

// Path is where proxies ask. Parameters may follow after a slash, in the form of a query, as in
// /v1/auth/denied=401&trust=10.0.0.0/8. They are not in a real query because some proxies append
// the client's query. Each parameter may be given once, except where noted:
//
//	method, uri, host  the names of the headers with the request's method, its URI
//	                   and its host. An empty host means that there is no such header.
//	ip                 the name of the header with the client's address:
//	                   X-Forwarded-For or Forwarded, which are lists, or another
//	                   one with a single address
//	trust              prefixes and addresses of further proxies, separated by
//	                   commas. Their entries in such a list are skipped.
//	key                the headers with an API key, separated by commas, each
//	                   with the scheme before the key if it has one:
//	                   X-Key,Authorization:Token
//	entry              another entry and the header it is taken from, as in
//	                   user:X-Auth-User; any number of times
//	route              the entry "route", instead of the one that the policy's
//	                   patterns find
//	cost               how many units the request takes
//	paths              how the application reads paths of ambiguous forms,
//	                   separated by commas; see docs/forward-auth.md
//	lines              "joined" for a proxy that joins several lines of one name
//	                   with commas: values are then split at commas
//	max_delay          the longest time that an answer is held for a leaky bucket,
//	                   such as 5s; it must be less than the proxy waits
//	denied             the status of a denial, for a proxy that cannot pass on
//	                   429: 401 or 403
const Path = "/v1/auth"

// DefaultMaxDelay is the longest time that an answer is held for a leaky bucket, unless the
// parameter max_delay or [Options] set another. It is half of the second that the proxies in
// docs/forward-auth.md wait. If a proxy gives up, it may let the request through while the units it
// took are given back, so nothing would be limited.
const DefaultMaxDelay = 500 * time.Millisecond

// LongestMaxDelay is the maximum of the parameter max_delay.
const LongestMaxDelay = time.Minute

// Timeout is the header in which Envoy says how many milliseconds it waits for an answer over HTTP.
const Timeout = "X-Envoy-Expected-Rq-Timeout-Ms"

// Options are the settings of a handler or a service. The zero Options are good for tests.
type Options struct {
	// Dialect selects the headers that tell clients their limits.
	Dialect httplimit.Dialect
	// MaxDelay is the longest time that an answer is held for a leaky bucket, unless the parameter
	// max_delay sets another. Zero means DefaultMaxDelay.
	MaxDelay time.Duration
	// Logger gets what the operator should know. Nil means no log.
	Logger *slog.Logger
}

// Handler answers proxies that ask over HTTP. It is safe for concurrent use; make one with [New].
type Handler struct {
	decider decide.Decider
	options Options
	at      string // the endpoint's name in the log
	paths   bool   // the path matters, whatever the policy uses
	plan    atomic.Pointer[plan]
	terms   known
	pool    sync.Pool // of *decide.Request
	// warned and warnedNameless are when a misconfigured proxy, and a request without a client's
	// address, were last logged, in Unix nanoseconds.
	warned, warnedNameless atomic.Int64
	unread                 identity.Unread
}

// plan is what the handler derives from one version of the policy. It is immutable.
type plan struct {
	policy decide.Policy
	names  byForms
	needed map[string]bool // the entries that the policy uses
	// readsPaths says that the path matters, for the entry "path" or "route"; needsPath that the
	// entry "path" is used; and readsMethods that the method matters.
	readsPaths, needsPath, readsMethods bool
}

// New returns a handler that asks decider.
func New(decider decide.Decider, options Options) *Handler {
	if options.MaxDelay == 0 {
		options.MaxDelay = DefaultMaxDelay
	}
	if options.Logger == nil {
		options.Logger = slog.New(slog.DiscardHandler)
	}
	h := &Handler{decider: decider, options: options, at: Path}
	h.pool.New = func() any { return new(decide.Request) }
	return h
}

// ServeHTTP answers one request. Its method and body do not matter.
func (h *Handler) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	t, problems := h.terms.of(strings.TrimPrefix(strings.TrimPrefix(r.URL.EscapedPath(), Path), "/"))
	if problems == nil {
		problems = t.check(r.Header)
	}
	if problems != nil {
		h.misconfigured(w, r, problems)
		return
	}
	ask := h.pool.Get().(*decide.Request)
	q := t.asked(r)
	q.from = r.RemoteAddr
	ctx, release := r.Context(), func() {}
	if !q.until.IsZero() {
		ctx, release = context.WithDeadline(ctx, q.until)
	}
	h.answer(ctx, w, r, t, &q, ask)
	release()
	// Not deferred: after a panic, the request may still be referenced and must not be reused.
	ask.Reset()
	h.pool.Put(ask)
}

// answer decides the request that a proxy describes, and writes what the client gets: status 200 if
// the request may pass. It returns the outcome, or nil if there is none. r is the proxy's own
// request, whose method decides whether the answer has a body.
func (h *Handler) answer(ctx context.Context, w http.ResponseWriter, r *http.Request, t *terms, q *question, ask *decide.Request) *decide.Outcome {
	refused := h.describe(ctx, t, q, &ask.Ask)
	if refused != nil {
		h.refuse(w, r, t, refused)
		return nil
	}
	ask.Given = decide.GivenDescriptor | decide.GivenCost
	o := ask.Decide(ctx, h.decider)
	switch {
	case o.Kind != decide.Decided:
		h.undecided(w, r, t, ask.Faults, o)
		return nil
	case o.Listed != nil:
		p := httplimit.Problem(notice.Forbidden())
		h.refuse(w, r, t, &p)
		return o
	}
	v := &o.Verdict
	if v.Delay > 0 {
		if err := h.hold(ctx, t, ask, v); err != nil {
			w.WriteHeader(httplimit.StatusClientGone)
			return nil
		}
	}
	httplimit.WriteHeaders(w.Header(), h.options.Dialect, v)
	notice.WriteWarning(w.Header(), h.options.Dialect, v, ask.Policy.Set)
	if len(o.Unenforced) > 0 {
		w.Header()[notice.UnenforcedHeader] = []string{notice.Unenforced(o.Unenforced)}
	}
	if v.Allowed {
		w.WriteHeader(http.StatusOK)
		return o
	}
	p := httplimit.QuotaExceeded(v)
	h.refuse(w, r, t, &p)
	return o
}

// describe makes the ask one about the request, or returns the problem to refuse it with.
func (h *Handler) describe(ctx context.Context, t *terms, q *question, ask *decide.Ask) (refused *httplimit.Problem) {
	plan := h.now()
	refused, nameless := t.describe(q, plan, ask)
	if nameless {
		h.nameless(ctx, t, q)
	}
	if refused == nil && plan.needed["api_key"] {
		if _, ok := ask.Descriptor.Get("api_key"); !ok {
			h.unread.Look(ctx, h.options.Logger, q.header)
		}
	}
	ask.Op, ask.Policy, ask.Cost = headgate.OpTake, plan.policy, q.cost
	return refused
}

// now returns the plan for the policy in force, and makes it anew after a change of the policy.
func (h *Handler) now() *plan {
	now, old := h.decider.Policy(), h.plan.Load()
	if old != nil && old.policy == now {
		return old
	}
	p := &plan{policy: now, needed: make(map[string]bool)}
	for _, name := range now.Entries() {
		p.needed[name] = true
	}
	p.needsPath = h.paths || p.needed["path"]
	p.readsPaths = p.needsPath || p.needed["route"]
	p.readsMethods = p.readsPaths || p.needed["method"]
	p.names.logger = h.options.Logger.With(slog.String("at", h.at))
	h.plan.CompareAndSwap(old, p)
	return p
}

// byForms finds the routes of a policy, for each list of forms that proxies give. It is safe for
// concurrent use.
type byForms struct {
	logger *slog.Logger
	all    sync.Map // of *routes.Names, by forms
	count  atomic.Int64
}

// of returns the names for what a proxy says of its application.
func (b *byForms) of(set *policy.Set, forms spelling.Forms) *routes.Names {
	if n, ok := b.all.Load(forms); ok {
		return n.(*routes.Names)
	}
	n, problems := routes.New(set, forms)
	if b.count.Load() > maxKnown {
		return n
	}
	if other, there := b.all.LoadOrStore(forms, n); there {
		return other.(*routes.Names)
	}
	b.count.Add(1)
	for _, problem := range problems {
		b.logger.Warn("the policy names a route that proxies cannot ask for; its rules do not bind there", slog.String("problem", problem))
	}
	if n.Unsaid() {
		b.logger.Warn("the policy does not say what is behind", slog.String("problem", routes.UnsaidText))
	}
	return n
}

// hold waits for the delay that a leaky bucket gave an admitted request. If the delay is too long,
// the request is denied instead. The error is the context's.
func (h *Handler) hold(ctx context.Context, t *terms, ask *decide.Request, v *headgate.Verdict) error {
	most := cmp.Or(t.maxDelay, h.options.MaxDelay)
	if until, known := ctx.Deadline(); known {
		// A quarter of the time is left for the answer to reach the proxy.
		most = min(most, max(0, time.Until(until)*3/4))
	}
	c := admission.Charge{Store: decide.Counters{Decider: h.decider, Ask: &ask.Ask}, MaxDelay: most, Checks: ask.Checks, Verdict: *v}
	err := c.Hold(ctx)
	*v = c.Verdict
	if c.Lost != nil {
		h.options.Logger.LogAttrs(ctx, slog.LevelError, "the units of a request could not be given back", slog.Any("error", c.Lost))
	}
	return err
}

// undecided answers a request without a verdict. It never lets one pass: where rules fail open,
// there is a verdict.
func (h *Handler) undecided(w http.ResponseWriter, r *http.Request, t *terms, faults decide.Faults, o *decide.Outcome) {
	switch o.Kind {
	case decide.Gone:
		w.WriteHeader(httplimit.StatusClientGone)
	case decide.Faulty:
		// The rules are valid, so the request's values are at fault.
		h.refuse(w, r, t, uncountable(strings.Join(faults.Texts(), "; ")))
	case decide.Refused:
		h.refuse(w, r, t, uncountable(o.Text()))
	default:
		p := httplimit.Problem(notice.ReducedCapacity(admission.UnavailableFor))
		p.Write(w, r)
	}
}
