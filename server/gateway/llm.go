package gateway

import (
	"bytes"
	"compress/gzip"
	"errors"
	"io"
	"net/http"
	"strconv"
	"strings"
	"time"

	"github.com/headgate/headgate"
	"github.com/headgate/headgate/config/gatewayfile"
	"github.com/headgate/headgate/httplimit"
	"github.com/headgate/headgate/internal/admission"
	"github.com/headgate/headgate/internal/llm"
	"github.com/headgate/headgate/policy"
)

// metering is what an exchange does besides, if its upstream is a provider of language models. Between
// the first stage and the second it reads the call, because the rules count by it. Then it forwards
// the call under the provider's key, and watches the answer pass, whose usage is settled in the end.
type metering struct {
	id       *identified
	options  *gatewayfile.LLM // nil if the upstream is no such provider
	call     *llm.Call        // nil if the request is no call
	usage    policy.Usage     // what the call may use at most
	body     []byte           // of the request, for the provider
	encoded  bool             // body has the Content-Encoding that the client sent
	meter    *llm.Meter       // nil until the provider has begun a good answer
	rejected bool             // the provider has refused the call, or it never got it
	wrong    string           // the field for which the call was refused, if it was one
}

// The problems of requests to a provider.
var (
	noCall    = &httplimit.Problem{Title: "There is nothing here", Status: http.StatusNotFound, Detail: "The gateway passes on calls to chat completions, responses, embeddings and messages, and the list of models."}
	errNoBody = &llm.CallError{Text: "The call has no body."}
	errCoded  = &llm.CallError{Text: "The Content-Encoding must be gzip, or there must be none."}
	errBroke  = &llm.CallError{Text: "The body is not the gzip that it is said to be."}
)

// mistaken returns the problem of a call that cannot be counted.
func mistaken(err error) *httplimit.Problem {
	p := &httplimit.Problem{Title: "The call cannot be counted", Status: http.StatusBadRequest}
	if wrong, ok := errors.AsType[*llm.CallError](err); ok {
		p.Detail = wrong.Text
	}
	return p
}

// read reads the call, if the request goes to a provider and is one. It returns the body that was
// read.
func (m *metering) read(w *writer) *body {
	id := m.id
	if id.route == nil || id.route.pool.LLM == nil {
		return nil
	}
	if m.options = id.route.pool.LLM; id.refusal != nil {
		return nil
	}
	protocol, ok := llm.Of(id.r.Method, id.r.URL.Path)
	switch {
	case ok:
	case m.options.PassOthers, strings.HasSuffix(id.r.URL.Path, "/models") && (id.r.Method == http.MethodGet || id.r.Method == http.MethodHead):
		return nil
	default:
		id.refuse(noCall)
		return nil
	}
	if !hasBody(id.r) {
		id.refuse(mistaken(errNoBody))
		return nil
	}
	b := newBody(id.r, id.r.Body, w.control, &id.g.options.Clients, id.route.maxBody)
	raw, err := io.ReadAll(b)
	if err == nil {
		err = m.parse(protocol, raw)
	}
	switch {
	case err == nil:
	case errors.Is(err, errTooLarge):
		id.refuse(bodyTooLarge(id.route.maxBody))
	case errors.Is(err, errTooSlow):
		id.refuse(bodySlow)
	case b.failure() != nil:
		id.refuse(bodyBroken)
	default:
		if mistake, ok := errors.AsType[*llm.CallError](err); ok {
			m.wrong = mistake.Field
		}
		id.refuse(mistaken(err))
	}
	return b
}

// parse finds out what the call is, and what it may use.
func (m *metering) parse(protocol llm.Protocol, raw []byte) error {
	plain, encoded, err := decoded(m.id.r.Header["Content-Encoding"], raw, m.id.route.maxBody)
	if err != nil {
		return err
	}
	call, err := llm.Read(protocol, plain)
	if err != nil {
		return err
	}
	model := m.id.plan.policy.Model(call.Model)
	if m.usage, err = call.Estimate(&model, !m.options.RefuseOutput); err != nil {
		return err
	}
	m.call, m.body = call, raw
	if made := call.Body(m.options.API, model.Name, m.usage.Output/call.Choices); encoded && !bytes.Equal(made, plain) || !encoded {
		m.body, encoded = made, false
	}
	m.encoded = encoded
	return nil
}

// decoded returns the content of a body that may be compressed.
func decoded(encoding []string, raw []byte, most int64) (plain []byte, encoded bool, err error) {
	switch strings.ToLower(strings.Join(encoding, ",")) {
	case "", "identity":
		return raw, false, nil
	case "gzip":
	default:
		return nil, true, errCoded
	}
	from, err := gzip.NewReader(bytes.NewReader(raw))
	if err == nil {
		plain, err = io.ReadAll(io.LimitReader(from, most+1))
	}
	switch {
	case int64(len(plain)) > most:
		return nil, true, errTooLarge
	case err != nil:
		return nil, true, errBroke
	}
	return plain, true, nil
}

// reserves returns what the call may use, or nil if the request is no call, or is refused anyway.
func (m *metering) reserves() *policy.Usage {
	if m.call == nil || m.id.refusal != nil {
		return nil
	}
	return &m.usage
}

// model is the entry "model" of the request.
func (id *identified) model() string { return id.llm.usage.Model }

// send puts the call's body into the request for the provider.
func (m *metering) send(r *http.Request) {
	if m.call == nil {
		return
	}
	// Another target may have to get it.
	r.GetBody = func() (io.ReadCloser, error) { return io.NopCloser(bytes.NewReader(m.body)), nil }
	r.Body, _ = r.GetBody()
	r.ContentLength, r.TransferEncoding, r.Trailer = int64(len(m.body)), nil, nil
}

// authorize makes the headers of the request those of the provider's own client.
func (m *metering) authorize(h http.Header) {
	if m.options == nil {
		return
	}
	for _, name := range m.id.g.names.keys.Names() {
		delete(h, name)
	}
	m.options.API.Authorize(h, m.options.Key)
	if m.call == nil {
		return
	}
	// The usage must be readable. The call was read as JSON, and some servers would read a form.
	h["Accept-Encoding"] = []string{"identity"}
	h["Content-Type"] = []string{"application/json"}
	if !m.encoded {
		delete(h, "Content-Encoding")
	}
}

// answered looks at the beginning of the provider's answer, whose body is read through the meter.
func (m *metering) answered(res *http.Response) {
	if m.options == nil {
		return
	}
	if res.StatusCode != http.StatusTooManyRequests {
		// The provider's limits are those of all clients together. Each is told its own.
		for name := range res.Header {
			if strings.HasPrefix(name, "X-Ratelimit-") || strings.HasPrefix(name, "Anthropic-Ratelimit-") {
				delete(res.Header, name)
			}
		}
	}
	if m.call == nil {
		return
	}
	if m.rejected = res.StatusCode >= http.StatusBadRequest; !m.rejected {
		events := admission.IsEvents(res.Header["Content-Type"])
		if events {
			delete(res.Header, "Content-Length") // The meter may take an event out.
		}
		m.meter = m.call.Meter(res.Body, events)
		res.Body = m.meter
	}
}

// units returns what the reserved checks of the call have cost, and whether that is known.
func (m *metering) units(r *headgate.Reservation, status int) (units []int64, known bool) {
	set := m.id.plan.policy.Set
	if m.rejected {
		return make([]int64, len(r.Checks)), true
	}
	if m.meter == nil {
		return set.SettleUsage(r, -1, nil, status), false
	}
	used, complete := m.meter.Usage()
	switch {
	case complete:
	case m.options.SettleSeen && m.meter.Stream:
		if used.Input == 0 {
			used.Input = m.usage.Input
		}
		used.Output = max(used.Output, m.meter.Events)
	default:
		return set.SettleUsage(r, -1, nil, status), false
	}
	used.Model = m.usage.Model
	return set.SettleUsage(r, -1, &used, status), complete
}

// answer writes a refusal as the provider's clients know it.
func (m *metering) answer(w http.ResponseWriter, p *httplimit.Problem, c *admission.Charge) {
	h, now := w.Header(), time.Now()
	text := p.Title + "."
	if p.Detail != "" {
		text = p.Title + ": " + p.Detail
	}
	if p.Status == http.StatusTooManyRequests && !c.Verdict.Allowed && len(c.Verdict.Decisions) > 0 {
		text = llm.Denial(&c.Verdict, c.Checks, m.id.plan.policy.Set, now)
	}
	if p.RetryAfterMS > 0 {
		h.Set("Retry-After", strconv.FormatInt((p.RetryAfterMS+999)/1000, 10))
	}
	h.Set("Content-Type", "application/json")
	w.WriteHeader(p.Status)
	if m.id.r.Method != http.MethodHead {
		_, _ = w.Write(m.options.API.Error(p.Status, text, m.wrong)) // The client may have gone.
	}
}

// limits tells the client its limits in the provider's headers.
func (m *metering) limits(h http.Header, v *headgate.Verdict) {
	if m.options != nil {
		m.options.API.Limits(h, v, m.id.plan.policy.Set, time.Now())
	}
}
