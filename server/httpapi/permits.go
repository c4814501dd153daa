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
		b := appendProblem(s.out[:0], &problem{kind: quota.Type, title: quota.Title, status: quota.Status, detail: quota.Detail})
		s.out = append(appendAcquired(append(b, ','), &a), "}\n"...)
		write(w, typeProblem, quota.Status, s.out)
	default:
		s.out = append(appendAcquired(append(s.out[:0], '{'), &a), "}\n"...)
		writeJSON(w, s.out)
	}
}

// appendAcquired writes the members of the answer without the surrounding braces.
func appendAcquired(b []byte, a *decide.Acquired) []byte {
	b = strconv.AppendBool(append(b, `"allowed":`...), a.Allowed)
	switch {
	case a.Shadow:
		b = append(b, `,"shadow":true`...)
	case a.Open:
		b = appendString(append(b, `,"source":`...), headgate.SourceOpen.String())
	case a.Allowed:
		b = appendPermit(append(b, `,"permit":`...), &a.Lease)
	case a.Waiting:
		b = strconv.AppendInt(append(b, `,"waiting":true,"ahead":`...), int64(a.Ahead), 10)
	}
	b = strconv.AppendInt(append(b, `,"in_use":`...), a.InUse, 10)
	b = strconv.AppendInt(append(b, `,"limit":`...), a.Limit, 10)
	b = strconv.AppendInt(append(b, `,"line":`...), int64(a.Line), 10)
	return strconv.AppendInt(append(b, `,"retry_after_ms":`...), decide.Millis(a.RetryAfter), 10)
}

func appendPermit(b []byte, l *store.Lease) []byte {
	b = appendString(append(b, `{"holder":`...), l.Holder)
	b = strconv.AppendInt(append(b, `,"epoch":`...), l.Epoch, 10)
	b = append(b, `,"slots":[`...)
	for i, slot := range l.Slots {
		if i > 0 {
			b = append(b, ',')
		}
		b = strconv.AppendInt(b, int64(slot), 10)
	}
	// Rounded down, so that a renewal within this time is not too late.
	b = strconv.AppendInt(append(b, `],"expires_in_ms":`...), l.Remaining.Milliseconds(), 10)
	b = strconv.AppendInt(append(b, `,"ttl_ms":`...), l.TTL.Milliseconds(), 10)
	if l.Revoked {
		b = append(b, `,"revoked":true`...)
	}
	return append(b, '}')
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
	s.out = append(appendPermit(append(s.out[:0], `{"permit":`...), &lease), "}\n"...)
	writeJSON(w, s.out)
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
	s.out = append(strconv.AppendBool(append(append(append(s.out[:0], `{"`...), name...), `":`...), is), "}\n"...)
	writeJSON(w, s.out)
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
	b := strconv.AppendInt([]byte(`{"in_use":`), held.InUse(), 10)
	b = strconv.AppendInt(append(b, `,"limit":`...), limit, 10)
	b = append(b, `,"permits":[`...)
	for i := range held.Leases {
		if i > 0 {
			b = append(b, ',')
		}
		b = appendPermit(b, &held.Leases[i])
	}
	b = append(b, `],"waiting":[`...)
	for i := range held.Waiting {
		t := &held.Waiting[i]
		if i > 0 {
			b = append(b, ',')
		}
		b = appendString(append(b, `{"holder":`...), t.Holder)
		b = strconv.AppendInt(append(b, `,"cost":`...), t.Cost, 10)
		b = append(strconv.AppendInt(append(b, `,"expires_in_ms":`...), t.Remaining.Milliseconds(), 10), '}')
	}
	writeJSON(w, append(b, "]}\n"...))
}

// holdersOf reads the rule and the key from the query.
func holdersOf(raw string) (c decide.PermitCall, p *problem) {
	values, err := url.ParseQuery(raw)
	if err != nil {
		return c, &problem{status: http.StatusBadRequest, detail: "the query is not understood; it may have escapes that are not complete"}
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
