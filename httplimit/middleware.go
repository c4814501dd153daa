package httplimit

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"net/netip"
	"strings"
	"sync"
	"time"

	"github.com/headgate/headgate"
	"github.com/headgate/headgate/policy"
)

// middleware is what New has worked out of the options. It is immutable apart
// from the pool and safe for concurrent use.
type middleware struct {
	settings
	store headgate.Store
	// ledger is the store, if requests are settled.
	ledger headgate.Ledger
	own    *policy.Set // the rules of the limits
	// wantsKey says that something looks at the API key of the headers.
	wantsKey bool
	pool     sync.Pool // of *scratch
	sleep    func(context.Context, time.Duration) error
}

// scratch is what one request needs and the next can use again.
type scratch struct {
	facts     policy.Descriptor
	checks    []headgate.Check
	decisions []headgate.Decision
	passage   *Passage // of an admitted request whose charge depends on how it ends
}

func (m *middleware) get() *scratch {
	s, _ := m.pool.Get().(*scratch)
	return s
}

// put returns the scratch to the pool without the request's texts, which it must
// not keep alive.
func (m *middleware) put(s *scratch) {
	clear(s.facts[:cap(s.facts)])
	clear(s.checks)
	s.passage = nil
	m.pool.Put(s)
}

// serve decides on one request and answers it, or has next answer it. Unless the
// charge depends on how it ends, the writer is handed on as it came, so that
// flushing, hijacking and all else works.
func (m *middleware) serve(w http.ResponseWriter, r *http.Request, next http.Handler) {
	p, ok := m.enter(w, r)
	switch {
	case !ok:
	case p == nil:
		next.ServeHTTP(w, r)
	default:
		p.serve(w, r, next)
	}
}

// enter reports whether the request may go on. If not, it has been answered.
func (m *middleware) enter(w http.ResponseWriter, r *http.Request) (p *Passage, ok bool) {
	cost := int64(1)
	if m.cost != nil {
		if cost = m.cost(r); cost == 0 {
			return nil, true
		}
	}
	s := m.get()
	served := m.decide(w, r, s, cost)
	if p = s.passage; served {
		p = nil
	}
	m.put(s)
	return p, !served
}

// decide reports whether it has answered the request itself.
func (m *middleware) decide(w http.ResponseWriter, r *http.Request, s *scratch, cost int64) bool {
	if cost < 0 || cost > headgate.MaxCount {
		return m.broken(w, r, fmt.Errorf("%w: the cost function returned %d for %s %s, must be 0 to %d", headgate.ErrInvalid, cost, r.Method, r.URL.Path, headgate.MaxCount))
	}
	served, err := m.bind(w, r, s, m.find(r, s), cost)
	switch {
	case served:
		return true
	case err != nil:
		return m.broken(w, r, err)
	case len(s.checks) == 0:
		return false
	}
	ctx := r.Context()
	reservation, decisions, err := m.take(ctx, s)
	if err != nil {
		return m.undecided(w, r, s.checks, err)
	}
	s.decisions = decisions
	v := headgate.NewVerdict(decisions)
	if v.Delay > 0 {
		giveBack := func(ctx context.Context, checks []headgate.Check) { m.release(ctx, r, checks, reservation) }
		if err := hold(ctx, &v, s.checks, m.maxDelay, m.sleep, giveBack); err != nil {
			return m.gone(w, r, err)
		}
	}
	WriteHeaders(w.Header(), m.dialect, &v)
	if v.Allowed {
		s.passage = m.newPassage(r, s.checks, decisions, reservation)
		m.warn(w, r, &v)
		return false
	}
	if m.hooks.Denied != nil {
		m.hooks.Denied(r, v)
	}
	m.denied(w, r, v)
	return true
}

// find returns the facts of the request. They stand in the scratch, unless the
// caller's Describe returns a slice of its own.
func (m *middleware) find(r *http.Request, s *scratch) policy.Descriptor {
	s.facts = s.facts[:0]
	for _, f := range m.facts {
		if v := f.Find(m, r); v != "" {
			s.facts = append(s.facts, policy.Entry{Name: f.Name, Value: v})
		}
	}
	if m.describe != nil {
		return m.describe(r, s.facts)
	}
	return s.facts
}

// bind fills in the checks. It reports whether it has answered the request, for
// want of an identity, or of one that is clear.
func (m *middleware) bind(w http.ResponseWriter, r *http.Request, s *scratch, facts policy.Descriptor, cost int64) (served bool, err error) {
	s.checks = s.checks[:0]
	if p, entry := m.unclear(r); p != nil {
		if entry != "" && m.hooks.Missing != nil {
			m.hooks.Missing(r, entry)
		}
		p.Write(w, r)
		return true, nil
	}
	for i := range m.limits {
		l := &m.limits[i]
		entry := l.Key.Lacks(facts)
		if entry == "" {
			continue
		}
		if m.hooks.Missing != nil {
			m.hooks.Missing(r, entry)
		}
		switch m.missing {
		case PassMissing:
			// The rules of a policy do not bind a request that lacks an entry.
			continue
		case CountMissingByIP:
			if key := m.fallbackKey(facts); key != "" {
				for _, rule := range l.Rules {
					s.checks = append(s.checks, headgate.Check{Rule: rule, Key: key, Cost: cost})
				}
				continue
			}
		}
		m.nobody(w, r, entry)
		return true, nil
	}
	if len(m.limits) > 0 {
		if s.checks, err = m.own.Match(facts, cost, s.checks); err != nil {
			return false, err
		}
	}
	if m.set == nil {
		return false, nil
	}
	outcome, err := m.set.Decide(facts, cost, s.checks)
	switch {
	case err != nil:
		return false, err
	case outcome.Denied != nil:
		p := Forbidden()
		p.Write(w, r)
		return true, nil
	case outcome.Allowed == nil:
		s.checks = outcome.Checks
	}
	return false, nil
}

// unclear returns what is to be said against a request that servers read in different
// ways where something looks at it, and the entry that it has no clear value of, if there
// is one; or nil.
func (m *middleware) unclear(r *http.Request) (p *Problem, entry string) {
	if m.wantsKey {
		if p := UnclearAPIKey(r.Header, m.keyHeaders); p != nil {
			return p, factAPIKey.Name
		}
	}
	for _, f := range m.facts {
		if f.Header != "" && len(r.Header[f.Header]) > 1 {
			return severalLines(f.Header, len(r.Header[f.Header])), f.Name
		}
	}
	return m.unclearPath(r), ""
}

// fallbackMark stands before the address in the key of a request that has no
// identity of its own, so that it meets no user or tenant by that name: no
// header can hold it.
const fallbackMark = "\x1fip:"

// fallbackKey returns the key of a request that is counted by its address, or "".
func (m *middleware) fallbackKey(facts policy.Descriptor) string {
	text, _ := facts.Get(factIP.Name)
	a, err := netip.ParseAddr(text)
	if err != nil {
		return ""
	}
	var buf [64]byte
	return string(appendAddr(append(buf[:0], fallbackMark...), a, m.ipv6Bits))
}

// nobody answers a request that has no identity.
func (m *middleware) nobody(w http.ResponseWriter, r *http.Request, entry string) {
	p := Problem{Title: "The request has no identity", Status: http.StatusBadRequest}
	switch entry {
	case factAPIKey.Name:
		p.Status = http.StatusUnauthorized
		p.Detail = "Send an API key in the header " + strings.Join(m.keyHeaders, " or ") + "."
		w.Header().Set("Www-Authenticate", m.challenge())
	case "user":
		p.Status = http.StatusUnauthorized
		p.Detail = "The request comes from no user who is signed in."
		w.Header().Set("Www-Authenticate", m.challenge())
	default:
		p.Detail = fmt.Sprintf("The request has no %s, which its limit is counted by.", entry)
	}
	p.Write(w, r)
}

// challenge is the WWW-Authenticate that every 401 must have.
func (m *middleware) challenge() string {
	for _, name := range m.keyHeaders {
		if name == authorization {
			return "Bearer"
		}
	}
	return `ApiKey header="` + m.keyHeaders[0] + `"`
}

// broken answers a request whose check the program itself made wrong.
func (m *middleware) broken(w http.ResponseWriter, r *http.Request, err error) bool {
	m.failed(r, err)
	p := Problem{Title: "The request could not be handled", Status: http.StatusInternalServerError}
	p.Write(w, r)
	return true
}

// FailsClosed reports whether a rule of the checks says for itself that nobody gets in
// without a decision ([headgate.OnErrorDeny]), whatever is done for all others. Shadows
// have no say.
func FailsClosed(checks []headgate.Check) bool {
	for i := range checks {
		if checks[i].OnError == headgate.OnErrorDeny && !checks[i].Shadow {
			return true
		}
	}
	return false
}

// undecided deals with a request whose checks the store had no answer for. It reports
// whether the request has been answered.
func (m *middleware) undecided(w http.ResponseWriter, r *http.Request, checks []headgate.Check, err error) bool {
	switch ctx := r.Context(); {
	case errors.Is(err, headgate.ErrInvalid):
		return m.broken(w, r, err)
	case ctx.Err() != nil:
		// A client that hangs up while the store is asked must not get past the
		// limit by it, even if failures are open.
		return m.gone(w, r, ctx.Err())
	}
	m.failed(r, err)
	if m.failure == FailOpen && !FailsClosed(checks) {
		if m.unenforced != "" {
			w.Header()[m.unenforced] = []string{"store-unavailable"}
		}
		return false
	}
	p := ReducedCapacity(UnavailableFor)
	p.Write(w, r)
	return true
}

// gone answers a request whose context has ended.
func (m *middleware) gone(w http.ResponseWriter, r *http.Request, err error) bool {
	if errors.Is(err, context.DeadlineExceeded) {
		p := ReducedCapacity(UnavailableFor)
		p.Detail = "The request's deadline came before the rate limiter's decision."
		p.Write(w, r)
		return true
	}
	w.WriteHeader(StatusClientGone)
	return true
}

func (m *middleware) failed(r *http.Request, err error) {
	if m.hooks.Failed != nil {
		m.hooks.Failed(r, err)
	}
}

func (m *middleware) giveBack(ctx context.Context, r *http.Request, checks []headgate.Check) {
	if _, err := m.store.Take(ctx, headgate.OpRefund, checks, nil); err != nil {
		m.failed(r, fmt.Errorf("give back what a request took that did not wait: %w", err))
	}
}
