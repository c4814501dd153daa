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
	"github.com/headgate/headgate/internal/notice"
	"github.com/headgate/headgate/internal/routes"
	"github.com/headgate/headgate/server/decide"
)

// Path is where proxies ask. Behind it and a slash may stand parameters, in the
// form of a query, as in /v1/auth/denied=401&trust=10.0.0.0/8. They do not stand
// in a query, because there are proxies that send the query of the client along.
// There are these, each to be given once if nothing else is said:
//
//	method, uri, host  the names of the headers with the request's method, its URI
//	                   and its host. An empty host is none.
//	ip                 the name of the header with the client's address:
//	                   X-Forwarded-For or Forwarded, which are lists, or another
//	                   one with a single address
//	trust              prefixes and addresses of further proxies whose entries in
//	                   such a list are passed over, with commas between them
//	key                the names of the headers with an API key, with commas
//	                   between them
//	entry              another entry and the header it is taken from, as in
//	                   user:X-Auth-User; any number of times
//	route              the entry "route", instead of the one that is found
//	cost               how many units the request takes
//	paths              the forms of paths that the application reads as they say, with
//	                   commas between them; see docs/forward-auth.md
//	lines              "joined" for a proxy that joins several lines of one name
//	                   with commas: a comma is then taken for two lines
//	max_delay          how long at most an answer is held for a leaky bucket, such as
//	                   5s; less than the proxy waits for an answer
//	denied             the status of a denial, for a proxy that cannot pass on
//	                   429: 401 or 403
const Path = "/v1/auth"

// DefaultMaxDelay is how long at most an answer is held for a leaky bucket unless the parameter
// max_delay or [Options] say otherwise. It is half of the second for which the proxies wait that
// docs/forward-auth.md shows: one that gives up may let the request through, and what the request
// took is given back, so that nothing would be limited.
const DefaultMaxDelay = 500 * time.Millisecond

// LongestMaxDelay bounds the parameter max_delay.
const LongestMaxDelay = time.Minute

// Timeout is the header in which Envoy says how many milliseconds it waits for an answer over HTTP.
const Timeout = "X-Envoy-Expected-Rq-Timeout-Ms"

// Options are what a handler may be given. The zero Options are good for a test.
type Options struct {
	// Dialect is how clients are told their limits.
	Dialect httplimit.Dialect
	// MaxDelay is how long at most an answer is held for a leaky bucket where the parameter
	// max_delay is not given. Zero means DefaultMaxDelay.
	MaxDelay time.Duration
	// Logger takes what the operator should know. Nil means none.
	Logger *slog.Logger
}

// Handler answers proxies that ask over HTTP. It is safe for concurrent use; make one with [New].
type Handler struct {
	decider decide.Decider
	options Options
	at      string // where proxies ask, for the log
	plan    atomic.Pointer[plan]
	terms   known
	pool    sync.Pool // of *decide.Request
	// told and nobody are when the log was told last of a mistake and of a request
	// without an address, in nanoseconds since 1970.
	told, nobody atomic.Int64
}

// plan is what is worked out of one version of the policy.
type plan struct {
	policy decide.Policy
	names  *routes.Names
	needed map[string]bool // the entries that the policy looks at
	// readsPaths says that requests are told from each other by their paths,
	// needsPath that something looks at the entry "path", and readsMethods that it
	// matters what the method is.
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
	h.answer(r.Context(), w, r, t, &q, ask)
	// Not deferred: after a panic somebody may still hold the request.
	ask.Reset()
	h.pool.Put(ask)
}

// answer decides on the request that a proxy describes, and writes what the client is to be told: a
// status of 200 if the request may pass. It returns what was decided, or nil. r is the request that
// is answered, whose method says whether there is a body.
func (h *Handler) answer(ctx context.Context, w http.ResponseWriter, r *http.Request, t *terms, q *question, ask *decide.Request) *decide.Outcome {
	plan := h.now()
	refused, nameless := t.describe(q, plan, &ask.Ask)
	if nameless {
		h.nameless(ctx, t, q)
	}
	if refused != nil {
		h.refuse(w, r, t, refused)
		return nil
	}
	ask.Op, ask.Policy, ask.Cost, ask.Given = headgate.OpTake, plan.policy, q.cost, decide.GivenDescriptor|decide.GivenCost
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
		if err := h.hold(ctx, t, q, ask, v); err != nil {
			w.WriteHeader(httplimit.StatusClientGone)
			return nil
		}
	}
	httplimit.WriteHeaders(w.Header(), h.options.Dialect, v)
	notice.WriteWarning(w.Header(), h.options.Dialect, v, plan.policy.Set)
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

// now returns the plan for the policy in force, which is made anew after a change.
func (h *Handler) now() *plan {
	policy, old := h.decider.Policy(), h.plan.Load()
	if old != nil && old.policy == policy {
		return old
	}
	p := &plan{policy: policy, needed: make(map[string]bool)}
	for _, name := range policy.Entries() {
		p.needed[name] = true
	}
	p.needsPath = p.needed["path"]
	p.readsPaths = p.needsPath || p.needed["route"]
	p.readsMethods = p.readsPaths || p.needed["method"]
	var problems []string
	if p.names, problems = routes.New(policy.Set); h.plan.CompareAndSwap(old, p) {
		for _, problem := range problems {
			h.options.Logger.Warn("the policy names a route that proxies cannot ask for; its rules do not bind there", slog.String("at", h.at), slog.String("problem", problem))
		}
	}
	return p
}

// hold has an admitted request wait for its leaky bucket. A wait that would be too long
// becomes a denial. The error is the context's.
func (h *Handler) hold(ctx context.Context, t *terms, q *question, ask *decide.Request, v *headgate.Verdict) error {
	most := cmp.Or(t.maxDelay, h.options.MaxDelay)
	until, known := ctx.Deadline()
	if !q.until.IsZero() && (!known || q.until.Before(until)) {
		until, known = q.until, true
	}
	if known {
		// A quarter of the time is left for the answer to arrive in.
		most = min(most, max(0, time.Until(until)*3/4))
	}
	c := admission.Charge{Store: refunds{ask, h.decider}, MaxDelay: most, Checks: ask.Checks, Verdict: *v}
	err := c.Hold(ctx)
	*v = c.Verdict
	if c.Lost != nil {
		h.options.Logger.LogAttrs(ctx, slog.LevelError, "what a request took could not be given back", slog.Any("error", c.Lost))
	}
	return err
}

// refunds is the store of a request that was decided: all that is left to do is to give
// back what the request took.
type refunds struct {
	ask     *decide.Request
	decider decide.Decider
}

// Take implements [headgate.Store] for [headgate.OpRefund].
func (s refunds) Take(ctx context.Context, _ headgate.Op, checks []headgate.Check, dst []headgate.Decision) ([]headgate.Decision, error) {
	return dst, s.ask.GiveBack(ctx, s.decider, checks)
}

// undecided answers where there is no verdict. What may pass without one is for
// the rules and the service to say: then there is a verdict.
func (h *Handler) undecided(w http.ResponseWriter, r *http.Request, t *terms, faults decide.Faults, o *decide.Outcome) {
	switch o.Kind {
	case decide.Gone:
		w.WriteHeader(httplimit.StatusClientGone)
	case decide.Faulty:
		// The rules are valid: it is the request that they cannot be applied to.
		h.refuse(w, r, t, uncountable(strings.Join(faults.Texts(), "; ")))
	case decide.Refused:
		h.refuse(w, r, t, uncountable(o.Text()))
	default:
		p := httplimit.Problem(notice.ReducedCapacity(admission.UnavailableFor))
		p.Write(w, r)
	}
}
