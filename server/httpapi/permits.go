package httpapi

import (
	"maps"
	"net/http"
	"net/url"
	"slices"
	"strconv"
	"time"

	"github.com/headgate/headgate"
	"github.com/headgate/headgate/internal/notice"
	"github.com/headgate/headgate/server/decide"
	"github.com/headgate/headgate/store"
)

// answerWithin is the time that is left for sending the answer after the longest wait for a permit.
const answerWithin = 20 * time.Second

// receivePermit reads the body of a call about a permit, like receive.
func (s *scratch) receivePermit(w http.ResponseWriter, r *http.Request, f form, p *problem) bool {
	if !s.receive(w, r, f, p) {
		return false
	}
	s.permit.Faults = s.Faults
	return true
}

// acquirePermit takes a permit.
func (h *Handler) acquirePermit(w http.ResponseWriter, r *http.Request, s *scratch) {
	// The query parameters are those of a peek: only status.
	want, p := readQuery(r.URL.RawQuery, headgate.OpPeek)
	if !s.receivePermit(w, r, formAcquire, p) {
		return
	}
	if s.permit.WaitMS > 0 {
		// The server's timeouts are for calls that are answered at once. An error means that the
		// connection has no deadlines to extend.
		control, end := http.NewResponseController(w), time.Now().Add(decide.MaxPermitWait+answerWithin)
		_ = control.SetReadDeadline(end)
		_ = control.SetWriteDeadline(end)
	}
	a, o := h.options.Permits.Acquire(r.Context(), &s.permit)
	switch {
	case o.Kind != decide.Decided:
		writeUndecided(w, s.permit.Faults, o)
	case want.status && !a.Allowed:
		quota := notice.InProgress(a.Refusal())
		w.Header()["Retry-After"] = []string{strconv.FormatInt(decide.Ceil(a.RetryAfter, time.Second), 10)}
		p := &problem{Type: quota.Type, Title: quota.Title, Status: quota.Status, Detail: quota.Detail}
		writeWith(w, p, struct {
			*problem
			acquired
		}{p, acquiredOf(&a)})
	default:
		writeJSON(w, encode(acquiredOf(&a)))
	}
}

// acquired is the answer to a call that has asked for a permit.
type acquired struct {
	Allowed      bool    `json:"allowed"`
	Shadow       bool    `json:"shadow,omitempty"`
	Source       string  `json:"source,omitempty"`
	Permit       *permit `json:"permit,omitempty"`
	Waiting      bool    `json:"waiting,omitempty"`
	Ahead        *int    `json:"ahead,omitempty"` // nil unless it waits
	InUse        int64   `json:"in_use"`
	Limit        int64   `json:"limit"`
	Line         int     `json:"line"`
	RetryAfterMS int64   `json:"retry_after_ms"`
}

func acquiredOf(a *decide.Acquired) acquired {
	to := acquired{Allowed: a.Allowed, Shadow: a.Shadow, InUse: a.InUse, Limit: a.Limit, Line: a.Line, RetryAfterMS: decide.Millis(a.RetryAfter)}
	switch {
	case a.Shadow:
	case a.Open:
		to.Source = headgate.SourceOpen.String()
	case a.Allowed:
		to.Permit = permitOf(&a.Lease)
	case a.Waiting:
		to.Waiting, to.Ahead = true, &a.Ahead
	}
	return to
}

type permit struct {
	Holder string `json:"holder"`
	Epoch  int64  `json:"epoch"`
	Slots  []int  `json:"slots"`
	// ExpiresInMS is rounded down, so that a renewal within this time is not too late.
	ExpiresInMS int64 `json:"expires_in_ms"`
	TTLMS       int64 `json:"ttl_ms"`
	Revoked     bool  `json:"revoked,omitempty"`
}

func permitOf(l *store.Lease) *permit {
	return &permit{l.Holder, l.Epoch, append([]int{}, l.Slots...), l.Remaining.Milliseconds(), l.TTL.Milliseconds(), l.Revoked}
}

// renewPermit makes a permit last for its full time from now.
func (h *Handler) renewPermit(w http.ResponseWriter, r *http.Request, s *scratch) {
	_, p := readQuery(r.URL.RawQuery, noParameters)
	if !s.receivePermit(w, r, formRenew, p) {
		return
	}
	lease, o := h.options.Permits.Renew(r.Context(), &s.permit)
	if o.Kind != decide.Decided {
		writeUndecided(w, s.permit.Faults, o)
		return
	}
	writeJSON(w, encode(map[string]*permit{"permit": permitOf(&lease)}))
}

// releasePermit gives a permit back.
func (h *Handler) releasePermit(w http.ResponseWriter, r *http.Request, s *scratch) {
	_, p := readQuery(r.URL.RawQuery, noParameters)
	if !s.receivePermit(w, r, formRelease, p) {
		return
	}
	released, o := h.options.Permits.Release(r.Context(), &s.permit)
	s.writeWhether(w, "released", released, o)
}

// revokePermit forbids the renewal of a permit.
func (h *Handler) revokePermit(w http.ResponseWriter, r *http.Request, s *scratch) {
	_, p := readQuery(r.URL.RawQuery, noParameters)
	if !s.receivePermit(w, r, formRevoke, p) {
		return
	}
	s.permit.From = r.RemoteAddr
	revoked, o := h.options.Permits.Revoke(r.Context(), &s.permit)
	s.writeWhether(w, "revoked", revoked, o)
}

// writeWhether answers whether the holder had something to release or revoke.
func (s *scratch) writeWhether(w http.ResponseWriter, name string, is bool, o *decide.Outcome) {
	if o.Kind != decide.Decided {
		writeUndecided(w, s.permit.Faults, o)
		return
	}
	writeJSON(w, encode(map[string]bool{name: is}))
}

// listHolders lists who has permits and who waits.
func (h *Handler) listHolders(w http.ResponseWriter, r *http.Request) {
	c, p := holdersOf(r.URL.RawQuery)
	if p != nil {
		writeProblem(w, p)
		return
	}
	held, limit, o := h.options.Permits.Holders(r.Context(), &c)
	if o.Kind != decide.Decided {
		writeUndecided(w, c.Faults, o)
		return
	}
	type waiting struct {
		Holder      string `json:"holder"`
		Cost        int64  `json:"cost"`
		ExpiresInMS int64  `json:"expires_in_ms"`
	}
	answer := struct {
		InUse   int64     `json:"in_use"`
		Limit   int64     `json:"limit"`
		Permits []*permit `json:"permits"`
		Waiting []waiting `json:"waiting"`
	}{held.InUse(), limit, []*permit{}, []waiting{}}
	for i := range held.Leases {
		answer.Permits = append(answer.Permits, permitOf(&held.Leases[i]))
	}
	for i := range held.Waiting {
		t := &held.Waiting[i]
		answer.Waiting = append(answer.Waiting, waiting{t.Holder, t.Cost, t.Remaining.Milliseconds()})
	}
	writeJSON(w, encode(answer))
}

// holdersOf reads the rule and the key from the query.
func holdersOf(raw string) (c decide.PermitCall, p *problem) {
	values, err := url.ParseQuery(raw)
	if err != nil {
		return c, &problem{Status: http.StatusBadRequest, Detail: "the query is not understood; it may have escapes that are not complete"}
	}
	for _, field := range []struct {
		name string
		f    decide.Given
		to   *string
	}{{"rule", decide.GivenRule, &c.Rule}, {"key", decide.GivenKey, &c.Key}} {
		switch given := values[field.name]; len(given) {
		case 0:
		case 1:
			c.Given |= field.f
			*field.to = given[0]
		default:
			c.Faults.Add(decide.Malformed, decide.Place{List: "query", Name: field.name}, "is given twice")
		}
		delete(values, field.name)
	}
	for _, name := range slices.Sorted(maps.Keys(values)) {
		c.Faults.Add(decide.Malformed, decide.Place{List: "query", Name: name}, "is not a parameter of this path")
	}
	if c.Faults != nil {
		return c, faultsProblem(c.Faults)
	}
	return c, nil
}
