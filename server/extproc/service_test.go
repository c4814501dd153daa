package extproc_test

import (
	"context"
	"fmt"
	"io"
	"net/http"
	"slices"
	"strings"
	"testing"
	"time"

	corepb "github.com/envoyproxy/go-control-plane/envoy/config/core/v3"
	pb "github.com/envoyproxy/go-control-plane/envoy/service/ext_proc/v3"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/metadata"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/types/known/structpb"

	"github.com/headgate/headgate"
	"github.com/headgate/headgate/httplimit"
	"github.com/headgate/headgate/policy"
	"github.com/headgate/headgate/policy/models"
	"github.com/headgate/headgate/server/decide"
	"github.com/headgate/headgate/server/extproc"
	"github.com/headgate/headgate/store/memory"
)

// envoy is the stream of one request: it sends what it has, and keeps what it is told.
type envoy struct {
	grpc.ServerStream

	ctx    context.Context
	sends  []*pb.ProcessingRequest
	breaks error // the end of the stream; nil is an orderly one
	told   []*pb.ProcessingResponse
}

func (e *envoy) Context() context.Context { return e.ctx }

func (e *envoy) Recv() (*pb.ProcessingRequest, error) {
	if len(e.sends) == 0 {
		if e.breaks != nil {
			return nil, e.breaks
		}
		return nil, io.EOF
	}
	next := e.sends[0]
	e.sends = e.sends[1:]
	return next, nil
}

func (e *envoy) Send(answer *pb.ProcessingResponse) error {
	e.told = append(e.told, answer)
	return nil
}

func heads(pairs ...string) *corepb.HeaderMap {
	m := new(corepb.HeaderMap)
	for i := 0; i < len(pairs); i += 2 {
		m.Headers = append(m.Headers, &corepb.HeaderValue{Key: pairs[i], RawValue: []byte(pairs[i+1])})
	}
	return m
}

// request begins with the headers of a request, which is a call unless they say otherwise.
func request(pairs ...string) *pb.ProcessingRequest {
	if len(pairs) == 0 || pairs[0] != ":method" {
		pairs = append([]string{":method", "POST", ":path", "/v1/chat/completions"}, pairs...)
	}
	return &pb.ProcessingRequest{Request: &pb.ProcessingRequest_RequestHeaders{RequestHeaders: &pb.HttpHeaders{Headers: heads(pairs...)}}}
}

func body(text string) *pb.ProcessingRequest {
	return &pb.ProcessingRequest{Request: &pb.ProcessingRequest_RequestBody{RequestBody: &pb.HttpBody{Body: []byte(text), EndOfStream: true}}}
}

// answer begins with the status, and what Envoy says of it.
func answer(status, details string, pairs ...string) *pb.ProcessingRequest {
	m := &pb.ProcessingRequest{Request: &pb.ProcessingRequest_ResponseHeaders{ResponseHeaders: &pb.HttpHeaders{Headers: heads(append([]string{":status", status}, pairs...)...)}}}
	if details != "" {
		m.Attributes = map[string]*structpb.Struct{"envoy.filters.http.ext_proc": {Fields: map[string]*structpb.Value{"response.code_details": structpb.NewStringValue(details)}}}
	}
	return m
}

func piece(text string, last bool) *pb.ProcessingRequest {
	return &pb.ProcessingRequest{Request: &pb.ProcessingRequest_ResponseBody{ResponseBody: &pb.HttpBody{Body: []byte(text), EndOfStream: last}}}
}

func trailers() *pb.ProcessingRequest {
	return &pb.ProcessingRequest{Request: &pb.ProcessingRequest_ResponseTrailers{ResponseTrailers: &pb.HttpTrailers{}}}
}

// line says in a line what Envoy is told: which part of which message, what it is to send next, what
// becomes of the body, and how headers change.
func line(r *pb.ProcessingResponse) string {
	var words []string
	add := func(format string, args ...any) { words = append(words, fmt.Sprintf(format, args...)) }
	headers := func(m *pb.HeaderMutation) {
		var all []string
		for _, h := range m.GetSetHeaders() {
			switch name := h.GetHeader().GetKey(); name {
			case "x-ratelimit-reset", "x-ratelimit-reset-tokens", "retry-after": // of the clock
			default:
				all = append(all, name+"="+string(h.GetHeader().GetRawValue()))
			}
		}
		for _, name := range m.GetRemoveHeaders() {
			all = append(all, "-"+name)
		}
		slices.Sort(all)
		words = append(words, all...)
	}
	common := func(c *pb.CommonResponse) {
		headers(c.GetHeaderMutation())
		switch m := c.GetBodyMutation().GetMutation().(type) {
		case *pb.BodyMutation_Body:
			add("%q", m.Body)
		case *pb.BodyMutation_ClearBody:
			add("nothing")
		}
	}
	if m := r.GetModeOverride(); m != nil {
		add("wants %s %s", m.GetRequestBodyMode(), m.GetResponseBodyMode())
	}
	switch part := r.GetResponse().(type) {
	case *pb.ProcessingResponse_RequestHeaders:
		common(part.RequestHeaders.GetResponse())
	case *pb.ProcessingResponse_RequestBody:
		common(part.RequestBody.GetResponse())
	case *pb.ProcessingResponse_ResponseHeaders:
		common(part.ResponseHeaders.GetResponse())
	case *pb.ProcessingResponse_ResponseBody:
		common(part.ResponseBody.GetResponse())
	case *pb.ProcessingResponse_ImmediateResponse:
		add("%d", part.ImmediateResponse.GetStatus().GetCode())
		headers(part.ImmediateResponse.GetHeaders())
		add("%s", strings.TrimSpace(string(part.ImmediateResponse.GetBody())))
	}
	return strings.Join(words, " ")
}

// describe stands for the reading of a request by the parameters of Envoy's filter.
func describe(set *policy.Set) func(context.Context, string, map[string][]string, *decide.Ask) (time.Duration, *httplimit.Problem, error) {
	return func(_ context.Context, peer string, h map[string][]string, ask *decide.Ask) (time.Duration, *httplimit.Problem, error) {
		ask.Op, ask.Cost, ask.Policy = headgate.OpTake, 1, decide.Policy{Set: set, Version: 1}
		ask.Descriptor = append(ask.Descriptor, policy.Entry{Name: "path", Value: h[":path"][0]}, policy.Entry{Name: "ip", Value: peer})
		if h["ambiguous"] != nil {
			return 0, &httplimit.Problem{Title: "Ambiguous", Status: http.StatusBadRequest}, nil
		}
		return time.Second, nil, nil
	}
}

const (
	call   = `{"model":"m","max_tokens":10}`
	stream = `{"model":"m","max_tokens":10,"stream":true}`
	asked  = `{"stream_options":{"include_usage":true},"model":"m","max_tokens":10,"stream":true}`
	usage  = `"usage":{"prompt_tokens":5,"completion_tokens":3}`
	free   = "x-ratelimit-limit-tokens=1000 x-ratelimit-limit=1000 x-ratelimit-remaining-tokens=%d x-ratelimit-remaining=%d"
)

// What Envoy is told of each message, what stays charged of 1000 tokens, and how that was settled.
func TestProcess(t *testing.T) {
	t.Parallel()
	toProvider := "accept-encoding=identity content-type=application/json"
	left := func(n int) string { return fmt.Sprintf(free, n, n) }
	for _, tt := range []struct {
		name, parameters string
		sends            []*pb.ProcessingRequest
		breaks           error
		told             []string
		charged          int64
		settled          string
	}{
		{
			name:    "an answer",
			sends:   []*pb.ProcessingRequest{request(), body(call), answer("200", "via_upstream", "content-type", "application/json", "x-ratelimit-limit-requests", "9"), piece(`{`+usage, false), piece(`}`, true)},
			told:    []string{"wants BUFFERED NONE", toProvider, "wants NONE STREAMED -x-ratelimit-limit-requests " + left(961), "", ""},
			charged: 8, settled: "settled",
		},
		{
			name: "a stream that is asked for usage, and gets no more than it asked for",
			sends: []*pb.ProcessingRequest{
				request(), body(stream), answer("200", "via_upstream", "content-type", "text/event-stream", "content-length", "9"),
				piece("data: {\"choices\":[1]}\n\n", false), piece("data: {\"choices\":[],"+usage+"}\n\n", false), piece("data: [DONE]\n\n", true),
			},
			told:    []string{"wants BUFFERED NONE", "accept-encoding=identity content-length=83 content-type=application/json " + fmt.Sprintf("%q", asked), "wants NONE STREAMED -content-length " + left(947), "", "nothing", ""},
			charged: 8, settled: "settled",
		},
		{
			name:    "an answer that ends with trailers",
			sends:   []*pb.ProcessingRequest{request(), body(call), answer("200", "via_upstream"), piece(`{`+usage+`}`, false), trailers()},
			told:    []string{"wants BUFFERED NONE", toProvider, "wants NONE STREAMED " + left(961), "", ""},
			charged: 8, settled: "settled",
		},
		{
			name: "a stream that breaks", breaks: status.Error(codes.Canceled, "reset"),
			sends:   []*pb.ProcessingRequest{request(), body(asked), answer("200", "via_upstream", "content-type", "text/event-stream"), piece("data: {\"choices\":[1]}\n\n", false)},
			told:    []string{"wants BUFFERED NONE", toProvider, "wants NONE STREAMED " + left(907), ""},
			charged: 93, settled: "estimated",
		},
		{
			name: "the same, settled by what was seen", parameters: "unfinished=seen", breaks: status.Error(codes.Canceled, "reset"),
			sends:   []*pb.ProcessingRequest{request(), body(asked), answer("200", "via_upstream", "content-type", "text/event-stream"), piece("data: {\"choices\":[1]}\n\n", false)},
			told:    []string{"wants BUFFERED NONE", toProvider, "wants NONE STREAMED " + left(907), ""},
			charged: 84, settled: "estimated",
		},
		{name: "no answer", sends: []*pb.ProcessingRequest{request(), body(call)}, told: []string{"wants BUFFERED NONE", toProvider}, charged: 39, settled: "estimated"},
		{
			name:  "a refusal of the provider",
			sends: []*pb.ProcessingRequest{request(), body(call), answer("400", "")},
			told:  []string{"wants BUFFERED NONE", toProvider, left(961)}, settled: "settled",
		},
		{
			name:  "a failure of the provider",
			sends: []*pb.ProcessingRequest{request(), body(call), answer("500", "via_upstream")},
			told:  []string{"wants BUFFERED NONE", toProvider, left(961)}, settled: "settled",
		},
		{
			name:  "a provider that cannot be reached",
			sends: []*pb.ProcessingRequest{request(), body(call), answer("503", "upstream_reset_before_response_started{remote_connection_failure|delayed_connect_error:_Connection_refused}")},
			told:  []string{"wants BUFFERED NONE", toProvider, left(961)}, settled: "settled",
		},
		{
			name:    "a provider that takes too long for Envoy",
			sends:   []*pb.ProcessingRequest{request(), body(call), answer("504", "response_timeout")},
			told:    []string{"wants BUFFERED NONE", toProvider, left(961)},
			charged: 39, settled: "estimated",
		},
		{
			name:    "a failure of which Envoy does not say whose it is",
			sends:   []*pb.ProcessingRequest{request(), body(call), answer("503", "")},
			told:    []string{"wants BUFFERED NONE", toProvider, left(961)},
			charged: 39, settled: "estimated",
		},
		{
			name:  "a call that never fits",
			sends: []*pb.ProcessingRequest{request(), body(`{"model":"m","max_tokens":2000}`)},
			told:  []string{"wants BUFFERED NONE", `429 cache-control=no-store content-type=application/json ` + left(1000) + ` x-should-retry=false {"error":{"message":"The limit \"1000 per calendar year\" of the rule \"tokens\" has 1000 tokens left, and the call may need 2031. It never fits: ask for less output, or send less.","type":"requests","param":null,"code":"rate_limit_exceeded"}}`},
		},
		{
			name:  "a call for Anthropic that cannot be counted",
			sends: []*pb.ProcessingRequest{request(":method", "POST", ":path", "/v1/messages"), body(`{"model":"m"}`)},
			told:  []string{"wants BUFFERED NONE", `400 content-type=application/json {"error":{"type":"invalid_request_error","message":"The call cannot be counted: Say how much output the call may have, in max_tokens: neither the call nor the policy bounds it."},"type":"error"}`},
		},
		{
			name: "a provider named by the parameters", parameters: "api=anthropic",
			sends: []*pb.ProcessingRequest{request(":method", "GET", ":path", "/other")},
			told:  []string{`404 content-type=application/json {"error":{"type":"not_found_error","message":"There is nothing here: The gateway passes on calls to chat completions, responses, embeddings and messages, and the list of models."},"type":"error"}`},
		},
		{
			name:  "a list of models",
			sends: []*pb.ProcessingRequest{request(":method", "GET", ":path", "/v1/models"), answer("200", "via_upstream")},
			told:  []string{"wants NONE NONE", ""},
		},
		{
			name: "what is no call and passes", parameters: "other_paths=pass",
			sends: []*pb.ProcessingRequest{request(":method", "POST", ":path", "/other"), answer("200", "via_upstream")},
			told:  []string{"wants NONE NONE", ""},
		},
		{
			name:  "a request that is read in two ways",
			sends: []*pb.ProcessingRequest{request("ambiguous", "x")},
			told:  []string{`400 content-type=application/json {"error":{"message":"Ambiguous.","type":"invalid_request_error","param":null,"code":null}}`},
		},
	} {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			limit := headgate.Limit{Algorithm: headgate.FixedWindow, Count: 1000, Align: headgate.AlignYear}
			set, err := policy.New([]policy.Rule{{Limits: headgate.MustRule("tokens", limit), Counts: models.Tokens}})
			if err != nil {
				t.Fatal(err)
			}
			d := &decide.Over{Rules: func() decide.Policy { return decide.Policy{Set: set, Version: 1} }, Store: memory.New()}
			began := time.Now()
			d.Spending = func(_ context.Context, s *models.Spending) {
				if s.FirstChunk > time.Since(began) {
					t.Errorf("observers are told that the first chunk took %v", s.FirstChunk)
				}
			}
			var settled []string
			s := extproc.New(d, extproc.Options{Describe: describe(set), Settled: func(how extproc.Settlement) { settled = append(settled, how.String()) }})
			e := &envoy{ctx: t.Context(), sends: tt.sends, breaks: tt.breaks}
			if tt.parameters != "" {
				e.ctx = metadata.NewIncomingContext(e.ctx, metadata.Pairs(extproc.Metadata, tt.parameters))
			}
			if err := s.Process(e); status.Code(err) != status.Code(tt.breaks) {
				t.Errorf("the stream ended with %v", err)
			}
			var told []string
			for _, r := range e.told {
				told = append(told, line(r))
			}
			if !slices.Equal(told, tt.told) {
				t.Errorf("told\n%s\nwant\n%s", strings.Join(told, "\n"), strings.Join(tt.told, "\n"))
			}
			if got := strings.Join(settled, " "); got != tt.settled {
				t.Errorf("settled %q, want %q", got, tt.settled)
			}
			peek := decide.Request{Ask: decide.Ask{Op: headgate.OpPeek, Named: []decide.Named{{Rule: "tokens", Cost: 1, Given: decide.GivenRule | decide.GivenKey}}}, Given: decide.GivenChecks}
			if got := 1000 - peek.Decide(t.Context(), d).Verdict.Decisions[0].Remaining; got != tt.charged {
				t.Errorf("charged %d, want %d", got, tt.charged)
			}
			if s.Streams() != 0 {
				t.Error("a stream is open")
			}
		})
	}
}

// Envoys that are not configured for it are told what is wrong, and nothing is charged.
func TestMisconfigured(t *testing.T) {
	t.Parallel()
	set, err := policy.New(nil)
	if err != nil {
		t.Fatal(err)
	}
	d := &decide.Over{Rules: func() decide.Policy { return decide.Policy{Set: set, Version: 1} }, Store: memory.New()}
	watching := request()
	watching.ObservabilityMode = true
	for _, tt := range []struct {
		parameters []string
		sends      []*pb.ProcessingRequest
		want       string
	}{
		{[]string{"api=openai", "api=anthropic"}, nil, "the metadata headgate-llm are there more than once"},
		{[]string{"api=%"}, nil, `the metadata headgate-llm cannot be read: invalid URL escape "%"`},
		{[]string{"key=x"}, nil, `"key" is no parameter of headgate-llm, which are api, other_paths, over_max_output, unfinished`},
		{[]string{"api=openai&api=openai"}, nil, `"api" of headgate-llm is "openai, openai", must be one of openai, anthropic, compatible`},
		{[]string{"unfinished=maybe"}, nil, `"unfinished" of headgate-llm is "maybe", must be one of reserved, seen`},
		{nil, []*pb.ProcessingRequest{watching}, "observability_mode is on, in which Envoy does not wait for a decision; use a rule with mode: shadow"},
		{nil, []*pb.ProcessingRequest{body(call)}, "the body of a request has come that was not asked for; the filter's request_body_mode must be NONE, with allow_mode_override"},
		{nil, []*pb.ProcessingRequest{new(pb.ProcessingRequest)}, "the message has no part of a request or an answer"},
		{nil, []*pb.ProcessingRequest{request(), request()}, "the headers of a request have come twice"},
		{nil, []*pb.ProcessingRequest{request(), body(call), answer("200", ""), answer("200", "")}, "the headers of an answer have come twice"},
		{nil, []*pb.ProcessingRequest{request(), answer("200", "via_upstream")}, "the provider has answered a request that was not decided; the filter must have request_header_mode SEND and allow_mode_override"},
	} {
		e := &envoy{ctx: t.Context(), sends: tt.sends}
		for _, p := range tt.parameters {
			md, _ := metadata.FromIncomingContext(e.ctx)
			e.ctx = metadata.NewIncomingContext(e.ctx, metadata.Join(md, metadata.Pairs(extproc.Metadata, p)))
		}
		err := extproc.New(d, extproc.Options{Describe: describe(set)}).Process(e)
		if got := status.Convert(err); got.Code() != codes.InvalidArgument || got.Message() != tt.want {
			t.Errorf("%v: %v", tt.parameters, err)
		}
	}
}
