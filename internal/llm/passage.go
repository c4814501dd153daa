package llm

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
	"github.com/headgate/headgate/internal/admission"
	"github.com/headgate/headgate/internal/notice"
	"github.com/headgate/headgate/policy"
	"github.com/headgate/headgate/policy/models"
)

// Provider is how the calls to a provider of language models are counted. It is immutable.
type Provider struct {
	// API is whose manners the provider has.
	API API
	// KeyFile has the key that the provider gets in place of the clients' keys. A gateway file
	// gives it; Key is its content. Without a key, the provider gets none.
	KeyFile, Key string
	// PassOthers passes on requests that are no calls, uncounted. Otherwise only the list of models
	// can be had besides.
	PassOthers bool
	// RefuseOutput refuses calls that ask for more output than their model may give. Otherwise they
	// are changed to ask for no more.
	RefuseOutput bool
	// Heed keeps calls back while the provider refuses them for its own limits, for as long as it says.
	// Only a door that asks the provider itself can do that.
	Heed bool
	// Drain is for how long an answer is read on whose client has gone, to learn what the call has
	// used. Zero means that it is not. Only a door that asks the provider itself can do that.
	Drain time.Duration
	// SettleSeen settles a stream that ends without usage at the parts of the answer that were
	// seen. Otherwise it stays charged as it was reserved.
	SettleSeen bool
}

// Passage is a call on its way through a door: what the door reserves for it, what it sends to the
// provider, and what it settles in the end. It is not safe for concurrent use.
type Passage struct {
	// Usage is what the call may use at most.
	Usage models.Usage
	// Body is the body for the provider, nil once the answer has begun: it may be large, and the
	// answer take long. Encoded says that it still has the Content-Encoding that the client gave it.
	Body    []byte
	Encoded bool
	// Rejected says that the provider has refused the call, or never got it.
	Rejected bool
	// Sent is when the call went to the provider.
	Sent time.Time

	provider *Provider
	set      *policy.Set
	call     *Call  // nil once the answer has begun
	meter    *Meter // nil until the provider has begun a good answer
	habits   *Habits
	declared []declared   // what is to be learnt from
	used     models.Usage // what it was settled at
}

// ErrTooLarge is the error of a body that is larger than it may be when it is unpacked.
var ErrTooLarge = errors.New("llm: the body is too large")

var (
	errNoBody = &CallError{Text: "The call has no body."}
	errCoded  = &CallError{Text: "The Content-Encoding must be gzip, or there must be none."}
	errBroke  = &CallError{Text: "The body is not the gzip that it is said to be."}
)

// Asked returns the protocol of a request to the provider. call is false if it is no call, which
// passes unless there is a problem.
func (p *Provider) Asked(method, path string) (protocol Protocol, call bool, problem *notice.Problem) {
	if protocol, call = Of(method, path); call || p.PassOthers {
		return protocol, call, nil
	}
	if strings.HasSuffix(path, "/models") && (method == http.MethodGet || method == http.MethodHead) {
		return 0, false, nil
	}
	return 0, false, &notice.Problem{Title: "There is nothing here", Status: http.StatusNotFound, Detail: "The gateway passes on calls to chat completions, responses, embeddings and messages, and the list of models."}
}

// Begin reads a call with this Content-Encoding, which is priced by the set for a request with these
// entries, and whose body may have most bytes when it is unpacked. It keeps the body, which must not
// change. The error is a [*CallError] or ErrTooLarge.
func (p *Provider) Begin(protocol Protocol, set *policy.Set, d policy.Descriptor, encoding []string, body []byte, most int64) (*Passage, error) {
	if len(body) == 0 {
		return nil, errNoBody
	}
	plain, encoded, err := decoded(encoding, body, most)
	if err != nil {
		return nil, err
	}
	call, err := Read(protocol, plain)
	if err != nil {
		return nil, err
	}
	model := set.Model(call.Model, d)
	usage, err := call.Estimate(&model, !p.RefuseOutput)
	if err != nil {
		return nil, err
	}
	passage := &Passage{Usage: usage, Body: body, Encoded: encoded, provider: p, set: set, call: call}
	if made := call.Body(p.API, model.Name, usage.Output/call.Choices); encoded && !bytes.Equal(made, plain) || !encoded {
		passage.Body, passage.Encoded = made, false
	}
	return passage, nil
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
		return nil, true, ErrTooLarge
	case err != nil:
		return nil, true, errBroke
	}
	return plain, true, nil
}

// Uncounted returns the problem of a call that Begin has refused, and the field for which it is
// refused, or "".
func Uncounted(err error) (p notice.Problem, field string) {
	p = notice.Problem{Title: "The call cannot be counted", Status: http.StatusBadRequest}
	if wrong, ok := errors.AsType[*CallError](err); ok {
		p.Detail, field = wrong.Text, wrong.Field
	}
	return p, field
}

// Headers makes the headers of a request those of the provider's own client. The passage is nil if
// the request is no call.
func (p *Provider) Headers(h http.Header, passage *Passage) {
	p.API.Authorize(h, p.Key)
	if passage != nil {
		passage.Headers(h)
	}
}

// Headers makes the headers of the call fit its Body.
func (c *Passage) Headers(h http.Header) {
	// The usage must be readable. The call was read as JSON, and some servers would read a form.
	h["Accept-Encoding"] = []string{"identity"}
	h["Content-Type"] = []string{"application/json"}
	if !c.Encoded {
		delete(h, "Content-Encoding")
	}
}

// Answered is called when the provider's answer begins. It removes from the headers what clients
// must not see. The answer's body passes through the meter, which is nil if nothing of it is counted.
// The passage is nil if the request is no call.
func (p *Provider) Answered(status int, h http.Header, passage *Passage) *Meter {
	if status != http.StatusTooManyRequests {
		// The provider's limits are those of all clients together. Each is told its own.
		for name := range h {
			if strings.HasPrefix(name, "X-Ratelimit-") || strings.HasPrefix(name, "Anthropic-Ratelimit-") {
				delete(h, name)
			}
		}
	}
	if passage == nil {
		return nil
	}
	call := passage.call
	passage.call, passage.Body = nil, nil
	if passage.Rejected = status >= http.StatusBadRequest; passage.Rejected {
		return nil
	}
	events := admission.IsEvents(h["Content-Type"])
	if events {
		delete(h, "Content-Length") // The meter may take an event out.
	}
	passage.meter = call.Meter(events)
	return passage.meter
}

// Settle returns what the reserved checks of the call have cost, and whether that is known. If not,
// it is what the call may use at most, even under rules that reserve less. The status is that of the
// answer, or 0.
func (c *Passage) Settle(r *headgate.Reservation, status int) (units []int64, known bool) {
	if c.Rejected {
		return make([]int64, len(r.Checks)), true
	}
	used := c.Usage
	if c.meter != nil {
		seen, complete := c.meter.Usage()
		switch {
		case complete:
			used, known = seen, true
		case c.provider.SettleSeen && c.meter.Stream:
			if used = seen; used.Input == 0 {
				used.Input = c.Usage.Input
			}
			used.Output = max(used.Output, c.meter.Events)
		}
		used.Model = c.Usage.Model
	}
	c.used = used
	units = c.set.Settle(r, -1, &used, status)
	if known {
		c.learn(r, units)
	}
	return units, known
}

// Spending is what observers are told of the call when it was settled. After a late settlement,
// which gives nothing back, it raises units to what was reserved.
func (c *Passage) Spending(r *headgate.Reservation, units []int64, known, late bool) *models.Spending {
	for i := range units {
		if late {
			units[i] = max(units[i], r.Checks[i].Units())
		}
	}
	s := c.set.Spending(c.used, known, r, units)
	if c.meter != nil && c.meter.Stream && !c.meter.First.IsZero() {
		s.FirstChunk = c.meter.First.Sub(c.Sent)
	}
	return s
}

// Refuse makes a problem the refusal that the provider's clients know. It adds to the headers, and
// returns the body. The field is the one that is wrong, or "". The verdict is that about the checks
// by the rules of the set, if there is one.
func (p *Provider) Refuse(h http.Header, problem *notice.Problem, field string, v *headgate.Verdict, checks []headgate.Check, set *policy.Set) []byte {
	text := problem.Title + "."
	if problem.Detail != "" {
		text = problem.Title + ": " + problem.Detail
	}
	if problem.Status == http.StatusTooManyRequests && !v.Allowed && len(v.Decisions) > 0 {
		text = Denial(v, checks, set, time.Now())
	}
	if problem.RetryAfterMS > 0 {
		h.Set("Retry-After", strconv.FormatInt((problem.RetryAfterMS+999)/1000, 10))
	}
	h.Set("Content-Type", "application/json")
	return p.API.Error(problem.Status, text, field)
}
