package forwardauth

import (
	"cmp"
	"context"
	"log/slog"
	"net/http"
	"slices"
	"strings"
	"time"

	pb "github.com/envoyproxy/go-control-plane/envoy/service/auth/v3"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/metadata"
	"google.golang.org/grpc/peer"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/encoding/protowire"

	"github.com/headgate/headgate"
	"github.com/headgate/headgate/httplimit"
	"github.com/headgate/headgate/server/decide"
	"github.com/headgate/headgate/server/wire"
)

// Metadata is the name of the gRPC metadata in which Envoy sends parameters. They have the same
// form as behind [Path].
const Metadata = "headgate-auth"

// Service implements envoy.service.auth.v3.Authorization, which Envoy's filter ext_authz asks over
// gRPC. It is safe for concurrent use; make one with [NewService].
type Service struct {
	handler *Handler
	calls   *wire.Unary[*checking]
}

// NewService returns a service that asks decider.
func NewService(decider decide.Decider, options Options) *Service {
	s := &Service{handler: New(decider, options)}
	s.handler.at = pb.Authorization_ServiceDesc.ServiceName
	s.calls = wire.NewUnary(s, pb.Authorization_Check_FullMethodName, func() *checking { return &checking{answer: recorded{header: make(http.Header)}} }, s.answer)
	return s
}

// Register adds the service to a gRPC server, which must have the codec of package wire.
func (s *Service) Register(to grpc.ServiceRegistrar) {
	s.calls.Register(to, pb.Authorization_ServiceDesc, "Check")
}

// checking is the memory for one check, which later checks reuse.
type checking struct {
	request checkRequest
	ask     decide.Request
	answer  recorded
	names   []string // of the answer's headers
}

// recorded is an [http.ResponseWriter] that keeps the answer instead of sending it.
type recorded struct {
	header http.Header
	status int
	body   []byte
}

// Header implements [http.ResponseWriter], as do WriteHeader and Write.
func (r *recorded) Header() http.Header { return r.header }

func (r *recorded) WriteHeader(status int) { r.status = status }

func (r *recorded) Write(b []byte) (int, error) {
	r.body = append(r.body, b...)
	return len(b), nil
}

// Request implements [wire.Call].
func (c *checking) Request() wire.Message { return &c.request }

// Reset implements [wire.Call].
func (c *checking) Reset() {
	c.request.reset()
	c.ask.Reset()
	clear(c.answer.header)
	c.answer = recorded{header: c.answer.header, body: c.answer.body[:0]}
	c.names = c.names[:0]
}

// withBody stands for any request whose answer has a body. Envoy omits the body itself if the
// client sent HEAD.
var withBody = &http.Request{Method: http.MethodGet}

func (s *Service) answer(ctx context.Context, c *checking) (any, error) {
	t, q, err := s.handler.question(ctx, &c.request)
	if err != nil {
		return nil, err
	}
	o := s.handler.answer(ctx, &c.answer, withBody, t, &q, &c.ask)
	if c.answer.status == httplimit.StatusClientGone {
		return nil, status.FromContextError(ctx.Err()).Err()
	}
	return c.write(o), nil
}

// question returns the question that Envoy asks by a call over gRPC. The error is for an Envoy that is
// not configured for it, and is logged.
func (h *Handler) question(ctx context.Context, c *checkRequest) (t *terms, q question, err error) {
	var problems []string
	switch texts := metadata.ValueFromIncomingContext(ctx, Metadata); len(texts) {
	case 0:
		t, problems = h.terms.of("")
	case 1:
		t, problems = h.terms.of(texts[0])
	default:
		problems = []string{"the metadata " + Metadata + " are there more than once"}
	}
	if problems == nil {
		q, problems = t.checked(c)
	}
	if p, ok := peer.FromContext(ctx); ok {
		q.from = p.Addr.String()
	}
	if problems != nil {
		h.logMisconfigured(ctx, q.from, problems)
		err = status.Error(codes.InvalidArgument, strings.Join(problems, "; "))
	}
	return t, q, err
}

// Describer reads requests for another door that Envoy asks over gRPC, by the same [Metadata]. It is
// safe for concurrent use; make one with [NewDescriber].
type Describer struct{ handler *Handler }

// NewDescriber returns a describer for the policies of decider. at is the name of the door's service,
// for the log.
func NewDescriber(decider decide.Decider, at string, logger *slog.Logger) *Describer {
	h := New(decider, Options{Logger: logger})
	h.at, h.paths = at, true
	return &Describer{h}
}

// Describe makes the ask one about the request with these headers, whose names are as Envoy sends
// them, pseudo-headers among them. peer is the address that connected to Envoy, or "". maxDelay is how
// long the request may be held. refused is the problem of a request that must not pass, or nil. The
// error is for an Envoy that is not configured for Headgate, and is logged.
func (d *Describer) Describe(ctx context.Context, peer string, header map[string][]string, ask *decide.Ask) (maxDelay time.Duration, refused *httplimit.Problem, err error) {
	c := checkRequest{peer: peer, http: true, method: first(header[":method"]), path: first(header[":path"]), host: first(header[":authority"])}
	for name, lines := range header {
		for _, line := range lines {
			if name[0] != ':' {
				c.headers = append(c.headers, pair{name, line})
			}
		}
	}
	t, q, err := d.handler.question(ctx, &c)
	if err != nil {
		return 0, nil, err
	}
	return cmp.Or(t.maxDelay, DefaultMaxDelay), d.handler.describe(ctx, t, &q, ask), nil
}

// The numbers of fields and values// The numbers of fields and values of an envoy.service.auth.v3.CheckResponse.
const (
	fieldStatus, fieldDenied, fieldOK, fieldMetadata = 1, 2, 3, 4
	okHeaders, deniedHeaders, deniedBody             = 6, 2, 3
	// addIfAbsent is the append_action that adds a header only if the application has not set it.
	addIfAbsent = 1
	// usual is enough for most answers, in bytes.
	usual = 512
)

// write encodes the answer. The outcome may be nil.
func (c *checking) write(o *decide.Outcome) wire.Written {
	w := wire.Writer{B: make([]byte, 0, usual)}
	passes := c.answer.status == http.StatusOK
	mark := w.Begin(fieldStatus)
	if !passes {
		w.Number(1, uint64(codes.PermissionDenied))
	}
	w.End(mark)
	if passes {
		mark = w.Begin(fieldOK)
		c.headers(&w, okHeaders, addIfAbsent)
	} else {
		mark = w.Begin(fieldDenied)
		inner := w.Begin(fieldStatus)
		w.Number(1, uint64(c.answer.status))
		w.End(inner)
		c.headers(&w, deniedHeaders, 0)
		w.B = wire.AppendText(w.B, deniedBody, string(c.answer.body))
	}
	w.End(mark)
	if o != nil {
		mark = w.Begin(fieldMetadata)
		writeMetadata(&w, o)
		w.End(mark)
	}
	return w.B
}

// headers writes the answer's headers, each as a HeaderValueOption.
func (c *checking) headers(w *wire.Writer, field protowire.Number, action uint64) {
	for name := range c.answer.header {
		// Envoy sets the length of the body itself.
		if name != "Content-Length" {
			c.names = append(c.names, name)
		}
	}
	slices.Sort(c.names)
	for _, name := range c.names {
		outer := w.Begin(field)
		inner := w.Begin(1)
		w.Text(1, strings.ToLower(name))
		w.Text(2, c.answer.header[name][0])
		w.End(inner)
		w.Number(3, action)
		w.End(outer)
	}
}

// writeMetadata writes the metadata for access logs and other filters: what decided the request, and which
// rules in shadow would have denied it.
func writeMetadata(w *wire.Writer, o *decide.Outcome) {
	v := &o.Verdict
	w.BoolEntry("allowed", v.Allowed)
	if o.Listed != nil {
		w.TextEntry("list", o.Listed.Name)
	} else if d := v.Deciding(); d != nil {
		w.TextEntry("rule", d.Rule.Name())
		w.TextEntry("limit", d.Limit.String())
		w.NumberEntry("remaining", d.Remaining)
		if !v.Allowed && v.RetryAfter != headgate.Never {
			w.NumberEntry("retry_after_ms", o.RetryAfterMS())
		}
	}
	l := w.ListEntry("shadow_denied")
	for i := range v.Decisions {
		if d := &v.Decisions[i]; d.Shadow && !d.Allowed {
			l.Text(d.Rule.Name())
		}
	}
	l.End()
	l = w.ListEntry("unenforced")
	for _, name := range o.Unenforced {
		l.Text(name)
	}
	l.End()
}
