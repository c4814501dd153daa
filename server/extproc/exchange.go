package extproc

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"net/http"
	"slices"
	"strconv"
	"strings"
	"time"

	corepb "github.com/envoyproxy/go-control-plane/envoy/config/core/v3"
	modepb "github.com/envoyproxy/go-control-plane/envoy/extensions/filters/http/ext_proc/v3"
	pb "github.com/envoyproxy/go-control-plane/envoy/service/ext_proc/v3"
	typepb "github.com/envoyproxy/go-control-plane/envoy/type/v3"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/headgate/headgate/httplimit"
	"github.com/headgate/headgate/internal/admission"
	"github.com/headgate/headgate/internal/llm"
	"github.com/headgate/headgate/internal/notice"
	"github.com/headgate/headgate/policy"
	"github.com/headgate/headgate/server/decide"
)

// exchange is one request and its answer. One goroutine uses it.
type exchange struct {
	s        *Service
	ctx      context.Context // of the stream
	provider llm.Provider
	byPath   bool // the provider's API is that of the request's path

	ask      decide.Request
	maxDelay time.Duration
	charge   admission.Charge

	described bool // the request's headers have come
	decided   bool // about the request
	answered  bool // the answer's headers have come

	// What is known of a call before its body has come.
	call     bool
	protocol llm.Protocol
	encoding []string

	passage *llm.Passage // nil if the request is no call, or not read yet
	meter   *llm.Meter   // nil until the provider has begun a good answer
	status  int          // of the answer; 0 before it
	over    bool         // nothing more is to come that changes the settlement
}

// process returns the answer to a message. An error ends the stream.
func (x *exchange) process(m *pb.ProcessingRequest) (*pb.ProcessingResponse, error) {
	switch part := m.GetRequest().(type) {
	case *pb.ProcessingRequest_RequestHeaders:
		return x.requestHeaders(part.RequestHeaders, attribute(m, "source.address"))
	case *pb.ProcessingRequest_RequestBody:
		return x.requestBody(part.RequestBody.GetBody())
	case *pb.ProcessingRequest_ResponseHeaders:
		return x.answerHeaders(part.ResponseHeaders, attribute(m, "response.code_details"))
	case *pb.ProcessingRequest_ResponseBody:
		return x.answerBody(part.ResponseBody), nil
	case *pb.ProcessingRequest_RequestTrailers:
		return &pb.ProcessingResponse{Response: &pb.ProcessingResponse_RequestTrailers{RequestTrailers: new(pb.TrailersResponse)}}, nil
	case *pb.ProcessingRequest_ResponseTrailers:
		x.ended()
		return &pb.ProcessingResponse{Response: &pb.ProcessingResponse_ResponseTrailers{ResponseTrailers: new(pb.TrailersResponse)}}, nil
	}
	return nil, status.Error(codes.InvalidArgument, "the message has no part of a request or an answer")
}

// attribute returns an attribute that the filter was told to send, or "".
func attribute(m *pb.ProcessingRequest, name string) string {
	for _, all := range m.GetAttributes() {
		if v := all.GetFields()[name]; v != nil {
			return v.GetStringValue()
		}
	}
	return ""
}

// requestHeaders describes the request, and decides it unless it is a call, whose body comes first.
func (x *exchange) requestHeaders(head *pb.HttpHeaders, peer string) (*pb.ProcessingResponse, error) {
	if x.described {
		return nil, x.s.mistaken(x.ctx, "the headers of a request have come twice")
	}
	x.described = true
	header := read(head)
	if host, _, err := net.SplitHostPort(peer); err == nil {
		peer = host
	}
	var refused *httplimit.Problem
	var err error
	if x.maxDelay, refused, err = x.s.options.Describe(x.ctx, peer, header, &x.ask.Ask); err != nil {
		return nil, err
	}
	path, readable := x.ask.Descriptor.Get("path")
	if x.byPath && strings.HasSuffix(path, "/messages") {
		x.provider.API = llm.Anthropic
	}
	switch {
	case refused != nil:
		return x.refuse((*notice.Problem)(refused), ""), nil
	case !readable:
		return x.refuse(&notice.Problem{Title: "The path is too long", Status: http.StatusRequestURITooLong, Detail: fmt.Sprintf("It may have %d bytes.", policy.MaxValue)}, ""), nil
	}
	var problem *notice.Problem
	if x.protocol, x.call, problem = x.provider.Asked(strings.Join(header[":method"], ""), path); problem != nil {
		return x.refuse(problem, ""), nil
	}
	mode := modepb.ProcessingMode{ResponseHeaderMode: modepb.ProcessingMode_SEND}
	if x.call {
		if x.encoding = header["content-encoding"]; head.GetEndOfStream() {
			return x.requestBody(nil)
		}
		mode.RequestBodyMode = modepb.ProcessingMode_BUFFERED
	} else if refusal, err := x.decide(); refusal != nil || err != nil {
		return refusal, err
	}
	return &pb.ProcessingResponse{
		Response:     &pb.ProcessingResponse_RequestHeaders{RequestHeaders: new(pb.HeadersResponse)},
		ModeOverride: &mode,
	}, nil
}

// requestBody reads the call, decides it, and returns the body for the provider.
func (x *exchange) requestBody(body []byte) (*pb.ProcessingResponse, error) {
	if !x.call || x.passage != nil {
		return nil, x.s.mistaken(x.ctx, "the body of a request has come that was not asked for; the filter's request_body_mode must be NONE, with allow_mode_override")
	}
	passage, err := x.provider.Begin(x.protocol, x.ask.Policy.Set, x.ask.Descriptor, x.encoding, body, MaxBody)
	switch {
	case errors.Is(err, llm.ErrTooLarge):
		return x.refuse(&notice.Problem{Title: "The request is too large", Status: http.StatusRequestEntityTooLarge, Detail: fmt.Sprintf("Its body may have %d bytes.", MaxBody)}, ""), nil
	case err != nil:
		problem, field := llm.Uncounted(err)
		return x.refuse(&problem, field), nil
	}
	x.passage = passage
	x.ask.Descriptor = slices.DeleteFunc(x.ask.Descriptor, func(e policy.Entry) bool { return e.Name == "model" })
	if passage.Usage.Model != "" {
		x.ask.Descriptor = append(x.ask.Descriptor, policy.Entry{Name: "model", Value: passage.Usage.Model})
	}
	if refusal, err := x.decide(); refusal != nil || err != nil {
		return refusal, err
	}
	header := make(http.Header)
	passage.Headers(header)
	common := &pb.CommonResponse{HeaderMutation: set(header)}
	if !passage.Encoded && x.encoding != nil {
		common.HeaderMutation.RemoveHeaders = []string{"content-encoding"}
	}
	if !bytes.Equal(passage.Body, body) {
		common.HeaderMutation.SetHeaders = append(common.HeaderMutation.SetHeaders, option("content-length", strconv.Itoa(len(passage.Body))))
		common.BodyMutation = &pb.BodyMutation{Mutation: &pb.BodyMutation_Body{Body: passage.Body}}
	}
	passage.Body, passage.Sent = nil, time.Now() // The provider gets it from Envoy.
	return &pb.ProcessingResponse{Response: &pb.ProcessingResponse_RequestBody{RequestBody: &pb.BodyResponse{Response: common}}}, nil
}

// decide has the request decided, with what a call may use, and holds it for the delay of a leaky
// bucket. It returns the refusal of a request that may not pass. An error ends the stream.
func (x *exchange) decide() (refusal *pb.ProcessingResponse, err error) {
	x.decided = true
	x.ask.Given, x.ask.Outcome = decide.GivenDescriptor|decide.GivenCost, true
	if x.passage != nil {
		x.ask.Usage, x.ask.Reserve = &x.passage.Usage, true
	}
	x.ask.Bind(x.s.decider)
	if x.passage != nil {
		x.passage.Reserve(&x.s.habits, x.ask.Checks)
	}
	o := x.ask.Take(x.ctx, x.s.decider)
	counters := decide.Counters{Decider: x.s.decider, Ask: &x.ask.Ask}
	x.charge = admission.Charge{
		Store: counters, Ledger: counters, MaxDelay: x.maxDelay,
		Checks: x.ask.Checks, Verdict: o.Verdict, Reservation: x.ask.Reservation,
	}
	problem := notice.Problem{}
	switch o.Kind {
	case decide.Decided:
	case decide.Gone:
		return nil, status.FromContextError(x.ctx.Err()).Err()
	case decide.Faulty:
		problem = notice.Uncountable(strings.Join(x.ask.Faults.Texts(), "; "))
	case decide.Refused:
		problem = notice.Uncountable(o.Text())
	default:
		problem = notice.ReducedCapacity(admission.UnavailableFor)
	}
	if o.Listed != nil {
		problem = notice.Forbidden()
	}
	if problem.Status != 0 {
		return x.refuse(&problem, ""), nil
	}
	if x.charge.Verdict.Delay > 0 {
		err := x.charge.Hold(x.ctx)
		if x.charge.Lost != nil {
			x.s.options.Logger.LogAttrs(x.ctx, slog.LevelError, "the units of a request could not be given back", slog.Any("error", x.charge.Lost))
		}
		if err != nil {
			return nil, status.FromContextError(err).Err()
		}
	}
	if !x.charge.Verdict.Allowed {
		problem = notice.QuotaExceeded(&x.charge.Verdict)
		return x.refuse(&problem, ""), nil
	}
	return nil, nil
}

// refuse returns the refusal that the provider's clients know. field is the one that is wrong, or "".
func (x *exchange) refuse(problem *notice.Problem, field string) *pb.ProcessingResponse {
	h := make(http.Header)
	x.limits(h)
	body := x.provider.Refuse(h, problem, field, &x.charge.Verdict, x.charge.Checks, x.ask.Policy.Set)
	return &pb.ProcessingResponse{Response: &pb.ProcessingResponse_ImmediateResponse{ImmediateResponse: &pb.ImmediateResponse{
		Status: &typepb.HttpStatus{Code: typepb.StatusCode(problem.Status)}, Headers: set(h), Body: body, Details: "headgate",
	}}}
}

// limits tells the client about its limits, if they were decided about.
func (x *exchange) limits(h http.Header) {
	v := &x.charge.Verdict
	if len(v.Decisions) == 0 {
		return
	}
	httplimit.WriteHeaders(h, x.s.options.Dialect, v)
	notice.WriteWarning(h, x.s.options.Dialect, v, x.ask.Policy.Set)
	x.provider.API.Limits(h, v, x.ask.Policy.Set, time.Now())
	if len(x.ask.Unenforced) > 0 {
		h[notice.UnenforcedHeader] = []string{notice.Unenforced(x.ask.Unenforced)}
	}
}

// answerHeaders makes the answer's headers those for the client, and asks for its body if the usage is
// in it.
func (x *exchange) answerHeaders(head *pb.HttpHeaders, details string) (*pb.ProcessingResponse, error) {
	switch {
	case x.answered:
		return nil, x.s.mistaken(x.ctx, "the headers of an answer have come twice")
	case !x.decided && details == upstream:
		return nil, x.s.mistaken(x.ctx, "the provider has answered a request that was not decided; the filter must have request_header_mode SEND and allow_mode_override")
	}
	x.answered = true
	before := read(head)
	x.status, _ = strconv.Atoi(strings.Join(before[":status"], "")) // Envoy's own, always a number
	h := make(http.Header, len(before))
	for name, lines := range before {
		h[http.CanonicalHeaderKey(name)] = lines
	}
	x.meter = x.provider.Answered(x.status, h, x.passage)
	if x.passage != nil && x.status >= http.StatusInternalServerError {
		x.passage.Rejected = refusedBy(details)
	}
	x.limits(h)
	mutation := new(pb.HeaderMutation)
	for name, lines := range before {
		now, stays := h[http.CanonicalHeaderKey(name)]
		if !stays {
			mutation.RemoveHeaders = append(mutation.RemoveHeaders, name)
		} else if &now[0] == &lines[0] {
			delete(h, http.CanonicalHeaderKey(name)) // as it was
		}
	}
	mutation.SetHeaders = set(h).GetSetHeaders()
	answer := &pb.ProcessingResponse{Response: &pb.ProcessingResponse_ResponseHeaders{ResponseHeaders: &pb.HeadersResponse{Response: &pb.CommonResponse{HeaderMutation: mutation}}}}
	if x.meter == nil || head.GetEndOfStream() {
		x.ended()
		return answer, nil
	}
	answer.ModeOverride = &modepb.ProcessingMode{
		ResponseHeaderMode: modepb.ProcessingMode_SEND, ResponseBodyMode: modepb.ProcessingMode_STREAMED, ResponseTrailerMode: modepb.ProcessingMode_SEND,
	}
	return answer, nil
}

// upstream is what Envoy says of an answer that is the provider's.
const upstream = "via_upstream"

// refusedBy reports whether a status of 500 and more means that the call has used nothing. details
// are Envoy's: the status is the provider's, or the provider never got the call.
func refusedBy(details string) bool {
	const reset = "upstream_reset_before_response_started{"
	switch details {
	case upstream, "no_healthy_upstream", "cluster_not_found", "upstream_host_not_found":
		return true
	}
	why, found := strings.CutPrefix(details, reset)
	return found && (strings.HasPrefix(why, "remote_connection_failure") || strings.HasPrefix(why, "local_connection_failure") ||
		strings.HasPrefix(why, "connection_timeout") || strings.HasPrefix(why, "overflow"))
}

// answerBody passes on a piece of the answer.
func (x *exchange) answerBody(piece *pb.HttpBody) *pb.ProcessingResponse {
	common := new(pb.CommonResponse)
	if x.meter != nil {
		out := x.meter.Pass(piece.GetBody())
		if piece.GetEndOfStream() {
			out = append(bytes.Clone(out), x.meter.End(true)...)
		}
		switch {
		case bytes.Equal(out, piece.GetBody()):
		case len(out) == 0:
			common.BodyMutation = &pb.BodyMutation{Mutation: &pb.BodyMutation_ClearBody{ClearBody: true}}
		default:
			common.BodyMutation = &pb.BodyMutation{Mutation: &pb.BodyMutation_Body{Body: out}}
		}
	}
	x.over = x.over || piece.GetEndOfStream()
	return &pb.ProcessingResponse{Response: &pb.ProcessingResponse_ResponseBody{ResponseBody: &pb.BodyResponse{Response: common}}}
}

// ended notes that the answer has ended by itself.
func (x *exchange) ended() {
	if x.over = true; x.meter != nil {
		x.meter.End(true)
	}
}

// settle settles the reservation by what has come of the answer, once.
func (x *exchange) settle() {
	if x.charge.Reservation.ID == "" || !x.charge.Unsettled() {
		return
	}
	if !x.over && x.meter != nil {
		x.meter.End(false)
	}
	var units []int64
	known := true
	if x.passage != nil {
		units, known = x.passage.Settle(&x.charge.Reservation, x.status)
	} else {
		units = x.ask.Policy.Settle(&x.charge.Reservation, -1, nil, x.status)
	}
	result := Settled
	if !known {
		result = Estimated
	}
	late, err := x.charge.Settle(x.ctx, units)
	switch {
	case err != nil:
		result = Failed
		x.s.options.Logger.LogAttrs(x.ctx, slog.LevelError, "the cost of a request could not be settled", slog.Any("error", err))
	case late:
		result = Late
	}
	if err == nil && x.passage != nil && !x.passage.Rejected {
		x.s.decider.Spent(x.ctx, x.passage.Spending(&x.charge.Reservation, units, known, late))
	}
	x.s.options.Settled(result)
}

// read returns headers by their names, as Envoy sends them.
func read(head *pb.HttpHeaders) map[string][]string {
	h := make(map[string][]string)
	for _, v := range head.GetHeaders().GetHeaders() {
		value := v.GetValue()
		if raw := v.GetRawValue(); raw != nil {
			value = string(raw)
		}
		if v.GetKey() != "" {
			h[v.GetKey()] = append(h[v.GetKey()], value)
		}
	}
	return h
}

// set returns a mutation that gives the headers these values.
func set(h map[string][]string) *pb.HeaderMutation {
	m := new(pb.HeaderMutation)
	for name, lines := range h {
		m.SetHeaders = append(m.SetHeaders, option(strings.ToLower(name), strings.Join(lines, ", ")))
	}
	return m
}

func option(name, value string) *corepb.HeaderValueOption {
	return &corepb.HeaderValueOption{
		Header:       &corepb.HeaderValue{Key: name, RawValue: []byte(value)},
		AppendAction: corepb.HeaderValueOption_OVERWRITE_IF_EXISTS_OR_ADD,
	}
}
