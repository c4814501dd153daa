package gateway

import (
	"bytes"
	"context"
	"errors"
	"io"
	"net/http"
	"sync/atomic"
	"time"

	"github.com/headgate/headgate/config/gatewayfile"
	"github.com/headgate/headgate/httplimit"
	"github.com/headgate/headgate/internal/admission"
	"github.com/headgate/headgate/internal/llm"
	"github.com/headgate/headgate/internal/notice"
	"github.com/headgate/headgate/policy/inprogress"
	"github.com/headgate/headgate/policy/models"
)

// metering is what an exchange does besides, if its upstream is a provider of language models. Between
// the first stage and the second it reads the call, because the rules count by it. Then it forwards
// the call under the provider's key, and watches the answer pass, whose usage is settled in the end.
type metering struct {
	id       *identified
	options  *gatewayfile.LLM // nil if the upstream is no such provider
	called   bool             // the request is a call
	protocol llm.Protocol     // of the call
	call     *llm.Passage     // nil until the call is read, and if it is refused
	wrong    string           // the field for which the call was refused, if it was one
	draining *draining        // nil if nothing is drained
}

// begin finds out whether the request goes to a provider, and is a call.
func (m *metering) begin() {
	id := m.id
	if id.route == nil || id.route.pool.LLM == nil {
		return
	}
	if m.options = id.route.pool.LLM; id.refusal != nil {
		return
	}
	var problem *notice.Problem
	if m.protocol, m.called, problem = m.options.Asked(id.r.Method, id.r.URL.Path); problem != nil {
		id.refuse((*httplimit.Problem)(problem))
	}
}

// large reports whether the request is a call with a body that may be worth not being read. For a
// small one, the additional question to the store would cost more.
func (m *metering) large() bool {
	const small = 64 << 10
	return m.called && m.id.refusal == nil && (m.id.r.ContentLength < 0 || m.id.r.ContentLength > small)
}

// read reads the call, if the request is one. It returns the body that was read.
func (m *metering) read(w *writer) *body {
	id := m.id
	if !m.called || id.refusal != nil {
		return nil
	}
	var b *body
	var raw []byte
	var err error
	if hasBody(id.r) {
		b = newBody(id.r, id.r.Body, w.control, &id.g.options.Clients, id.route.maxBody)
		raw, err = io.ReadAll(b)
	}
	if err == nil {
		m.call, err = m.options.Begin(m.protocol, id.plan.policy.Set, id.facts, id.r.Header["Content-Encoding"], raw, id.route.maxBody)
	}
	switch {
	case err == nil:
	case errors.Is(err, errTooLarge), errors.Is(err, llm.ErrTooLarge):
		id.refuse(bodyTooLarge(id.route.maxBody))
	case errors.Is(err, errTooSlow):
		id.refuse(bodySlow)
	case b != nil && b.failure() != nil:
		id.refuse(bodyBroken)
	default:
		var problem notice.Problem
		problem, m.wrong = llm.Uncounted(err)
		id.refuse((*httplimit.Problem)(&problem))
	}
	return b
}

// reserves returns what the call may use, or nil if the request is no call, or is refused anyway.
func (m *metering) reserves() *models.Usage {
	if m.call == nil || m.id.refusal != nil {
		return nil
	}
	return &m.call.Usage
}

// model is the entry "model" of the request.
func (id *identified) model() string {
	if id.llm.call == nil {
		return ""
	}
	return id.llm.call.Usage.Model
}

// send puts the call's body into the request for the provider.
func (m *metering) send(r *http.Request) {
	if m.call == nil {
		return
	}
	m.call.Sent = time.Now()
	// Another target may have to get it.
	r.GetBody = func() (io.ReadCloser, error) {
		b := new(sent)
		b.from.Store(bytes.NewReader(m.call.Body))
		return b, nil
	}
	r.Body, _ = r.GetBody()
	r.ContentLength, r.TransferEncoding, r.Trailer = int64(len(m.call.Body)), nil, nil
}

// sent is the body of a call for the provider. The request that has it lives as long as its answer,
// so it lets go of its content at the end.
type sent struct{ from atomic.Pointer[bytes.Reader] }

// Read implements [io.Reader].
func (b *sent) Read(p []byte) (int, error) {
	from := b.from.Load()
	if from == nil {
		return 0, io.EOF
	}
	n, err := from.Read(p)
	if from.Len() == 0 {
		b.from.Store(nil)
	}
	return n, err
}

// Close implements [io.Closer]. The transport may call it during a Read.
func (b *sent) Close() error {
	b.from.Store(nil)
	return nil
}

// authorize makes the headers of the request those of the provider's own client.
func (m *metering) authorize(h http.Header) {
	if m.options == nil {
		return
	}
	for _, name := range m.id.g.names.keys.Names() {
		delete(h, name)
	}
	m.options.Headers(h, m.call)
}

// answered looks at the beginning of the provider's answer, whose body is read through the meter.
func (m *metering) answered(res *http.Response) {
	if m.options == nil {
		return
	}
	if meter := m.options.Answered(res.StatusCode, res.Header, m.call); meter != nil {
		res.Body = meter.Read(res.Body)
	}
}

// draining is an answer that is read to its end even if the client has gone. What asks for it ends
// some time after the client, and the proxy does not close it.
type draining struct {
	within time.Duration
	ctx    context.Context // of the request to the provider
	cancel context.CancelFunc
	body   io.ReadCloser // nil until the answer has begun
	ended  bool          // nothing more comes of it
}

// lasting returns the context of the request to the provider: that of the client's request, unless
// its answer is to be drained.
func (m *metering) lasting(client context.Context) context.Context {
	if m.call == nil || m.options.Drain == 0 {
		return client
	}
	d := &draining{within: m.options.Drain}
	d.ctx, d.cancel = context.WithCancel(context.WithoutCancel(client))
	m.draining = d
	context.AfterFunc(client, func() {
		if !inprogress.Lost(client) {
			d.wait()
		}
		d.cancel()
	})
	return d.ctx
}

// wait waits for the end of the request, as long as it is drained.
func (d *draining) wait() {
	t := time.NewTimer(d.within)
	defer t.Stop()
	select {
	case <-t.C:
	case <-d.ctx.Done():
	}
}

// keep returns the body of the answer for the proxy.
func (m *metering) keep(body io.ReadCloser) io.ReadCloser {
	if m.draining == nil {
		return body
	}
	m.draining.body = body
	return m.draining
}

// Read implements [io.Reader].
func (d *draining) Read(p []byte) (int, error) {
	n, err := d.body.Read(p)
	d.ended = d.ended || err != nil
	return n, err
}

// Close implements [io.Closer]. The rest is read when the proxy has ended.
func (d *draining) Close() error { return nil }

// drain reads the rest of the answer if the client has gone. It must be called when the exchange
// ends.
func (m *metering) drain() {
	d := m.draining
	if d == nil {
		return
	}
	defer d.cancel()
	if d.body == nil {
		return
	}
	if !d.ended {
		t := time.AfterFunc(d.within, d.cancel)
		defer t.Stop()
		_, _ = io.Copy(io.Discard, d) // What it has used is known then, or not.
	}
	_ = d.body.Close()
}

// unsent notes that the provider never got the call, if so.
func (m *metering) unsent(never bool) {
	if m.call != nil {
		m.call.Rejected = never
	}
}

// answer writes a refusal as the provider's clients know it.
func (m *metering) answer(w http.ResponseWriter, p *httplimit.Problem, c *admission.Charge) {
	text := m.options.Refuse(w.Header(), (*notice.Problem)(p), m.wrong, &c.Verdict, c.Checks, m.id.plan.policy.Set)
	w.WriteHeader(p.Status)
	if m.id.r.Method != http.MethodHead {
		_, _ = w.Write(text) // The client may have gone.
	}
}
