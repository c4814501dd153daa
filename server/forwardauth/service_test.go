package forwardauth

import (
	"bytes"
	"context"
	"fmt"
	"log/slog"
	"maps"
	"net"
	"net/http"
	"slices"
	"strings"
	"testing"
	"time"

	core "github.com/envoyproxy/go-control-plane/envoy/config/core/v3"
	pb "github.com/envoyproxy/go-control-plane/envoy/service/auth/v3"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/grpc/metadata"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/proto"

	"github.com/headgate/headgate"
	"github.com/headgate/headgate/httplimit"
	"github.com/headgate/headgate/policy"
	"github.com/headgate/headgate/server/wire"
)

// serveChecks serves ext_authz over gRPC, and returns a client of it.
func serveChecks(t testing.TB, a *asked, options Options) pb.AuthorizationClient {
	t.Helper()
	server := grpc.NewServer(grpc.ForceServerCodecV2(wire.Codec()), grpc.WaitForHandlers(true))
	NewService(a, options).Register(server)
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	ended := make(chan error, 1)
	go func() { ended <- server.Serve(l) }()
	conn, err := grpc.NewClient(l.Addr().String(), grpc.WithTransportCredentials(insecure.NewCredentials()))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		_ = conn.Close()
		server.Stop()
		if err := <-ended; err != nil {
			t.Errorf("Serve: %v", err)
		}
	})
	return pb.NewAuthorizationClient(conn)
}

// checkOf is what Envoy sends about a request: GET /items/7 of 203.0.113.7, with headers as name,
// value pairs, as they came.
func checkOf(header ...string) *pb.CheckRequest {
	h := &pb.AttributeContext_HttpRequest{Method: "GET", Path: "/items/7", Host: "example.com", HeaderMap: new(core.HeaderMap), Protocol: "HTTP/1.1", Size: -1}
	for i := 0; i < len(header); i += 2 {
		h.HeaderMap.Headers = append(h.HeaderMap.Headers, &core.HeaderValue{Key: strings.ToLower(header[i]), RawValue: []byte(header[i+1])})
	}
	return &pb.CheckRequest{Attributes: &pb.AttributeContext{
		Source:      peerAt("203.0.113.7"),
		Destination: peerAt("192.0.2.80"),
		Request:     &pb.AttributeContext_Request{Http: h},
	}}
}

func peerAt(address string) *pb.AttributeContext_Peer {
	return &pb.AttributeContext_Peer{Address: &core.Address{Address: &core.Address_SocketAddress{SocketAddress: &core.SocketAddress{
		Address: address, PortSpecifier: &core.SocketAddress_PortValue{PortValue: 40000},
	}}}}
}

// changed returns the request after a change.
func changed(r *pb.CheckRequest, change func(a *pb.AttributeContext, h *pb.AttributeContext_HttpRequest)) *pb.CheckRequest {
	change(r.GetAttributes(), r.GetAttributes().GetRequest().GetHttp())
	return r
}

// joined has the headers as Envoy sends them unless it is told otherwise.
func joined(headers map[string]string) *pb.CheckRequest {
	return changed(checkOf(), func(_ *pb.AttributeContext, h *pb.AttributeContext_HttpRequest) {
		h.HeaderMap, h.Headers = nil, headers
	})
}

func extended(extensions map[string]string) *pb.CheckRequest {
	return changed(checkOf(), func(a *pb.AttributeContext, _ *pb.AttributeContext_HttpRequest) { a.ContextExtensions = extensions })
}

// check asks with parameters, and returns the status of the answer: 200 if the request may pass.
func check(t *testing.T, client pb.AuthorizationClient, parameters string, r *pb.CheckRequest) (int, *pb.CheckResponse, error) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	if parameters != "" {
		ctx = metadata.AppendToOutgoingContext(ctx, Metadata, parameters)
	}
	answer, err := client.Check(ctx, r)
	if err != nil {
		return 0, nil, err
	}
	if answer.GetStatus().GetCode() == int32(codes.OK) {
		if answer.GetOkResponse() == nil {
			t.Errorf("an answer without a response: %v", answer)
		}
		return http.StatusOK, answer, nil
	}
	return int(answer.GetDeniedResponse().GetStatus().GetCode()), answer, nil
}

// told are the headers of an answer.
func told(headers []*core.HeaderValueOption) string {
	var lines []string
	for _, h := range headers {
		lines = append(lines, fmt.Sprintf("%s: %s (%s)", h.GetHeader().GetKey(), h.GetHeader().GetValue(), h.GetAppendAction()))
	}
	return strings.Join(lines, "\n")
}

func TestCheckAnswers(t *testing.T) {
	t.Parallel()
	a := newAsked(t, []policy.Rule{rule(perHour("client", 1), "ip")})
	client := serveChecks(t, a, Options{})
	code, answer, err := check(t, client, "", checkOf())
	want := `x-ratelimit-limit: 1 (ADD_IF_ABSENT)
x-ratelimit-remaining: 0 (ADD_IF_ABSENT)
x-ratelimit-reset: 3600 (ADD_IF_ABSENT)`
	if got := told(answer.GetOkResponse().GetResponseHeadersToAdd()); code != 200 || got != want || len(answer.GetOkResponse().GetHeaders()) != 0 {
		t.Errorf("the first: %d, %v\n%s", code, err, got)
	}
	if got := fmt.Sprint(answer.GetDynamicMetadata().AsMap()); got != "map[allowed:true limit:1 per 1h remaining:0 rule:client]" {
		t.Errorf("the first: metadata %s", got)
	}
	code, answer, err = check(t, client, "", checkOf())
	want = `cache-control: no-store (APPEND_IF_EXISTS_OR_ADD)
content-type: application/problem+json (APPEND_IF_EXISTS_OR_ADD)
retry-after: 3600 (APPEND_IF_EXISTS_OR_ADD)
x-content-type-options: nosniff (APPEND_IF_EXISTS_OR_ADD)
x-ratelimit-limit: 1 (APPEND_IF_EXISTS_OR_ADD)
x-ratelimit-remaining: 0 (APPEND_IF_EXISTS_OR_ADD)
x-ratelimit-reset: 3600 (APPEND_IF_EXISTS_OR_ADD)`
	denied := answer.GetDeniedResponse()
	if got := told(denied.GetHeaders()); code != 429 || got != want || denied.GetBody() != problem+"\n" {
		t.Errorf("the second: %d, %v\n%s\n%s", code, err, got, denied.GetBody())
	}
	if got := fmt.Sprint(answer.GetDynamicMetadata().AsMap()); got != "map[allowed:false limit:1 per 1h remaining:0 retry_after_ms:3.6e+06 rule:client]" {
		t.Errorf("the second: metadata %s", got)
	}
	other := changed(checkOf(), func(a *pb.AttributeContext, _ *pb.AttributeContext_HttpRequest) { a.Source = peerAt("203.0.113.8") })
	if code, _, err := check(t, client, "", other); code != 200 {
		t.Errorf("another client: %d, %v", code, err)
	}
}

// What the message says, as the parameters have it read, becomes the descriptor.
func TestCheckDescriptor(t *testing.T) {
	t.Parallel()
	const usual = "route=GET /items/{id} method=GET host=example.com path=/items/7"
	through := func(peer string, header ...string) *pb.CheckRequest {
		return changed(checkOf(header...), func(a *pb.AttributeContext, _ *pb.AttributeContext_HttpRequest) { a.Source = peerAt(peer) })
	}
	for _, tt := range []struct {
		name, parameters string
		request          *pb.CheckRequest
		want             string
	}{
		{"plain", "", checkOf(), "ip=203.0.113.7 " + usual},
		{"an API key", "", checkOf("Authorization", "Bearer k1"), "api_key=k1 ip=203.0.113.7 " + usual},
		{"its header", "key=X-Key,x-other", checkOf("Authorization", "Bearer k1", "X-Other", "k2"), "api_key=k2 ip=203.0.113.7 " + usual},
		{"a key of any bytes", "key=X-Key", checkOf("X-Key", "\xff\xfe"), "api_key=\xff\xfe ip=203.0.113.7 " + usual},
		{"joined headers", "entry=user:X-User", joined(map[string]string{"x-api-key": "k1", "x-user": "ann", "cookie": "a=b"}), "api_key=k1 ip=203.0.113.7 " + usual + " user=ann"},
		{"what the client wrote", "", checkOf("X-Forwarded-For", "8.8.8.8"), "ip=203.0.113.7 " + usual},
		{"a proxy that is not trusted", "trust=10.0.0.0/8", checkOf("X-Forwarded-For", "8.8.8.8"), "ip=203.0.113.7 " + usual},
		{"a trusted proxy", "trust=10.0.0.0/8", through("10.1.1.1", "X-Forwarded-For", "8.8.8.8, 203.0.113.9"), "ip=203.0.113.9 " + usual},
		{"trusted proxies, to which Envoy has added its peer", "trust=10.0.0.0/8", through("10.1.1.1", "X-Forwarded-For", "8.8.8.8, 203.0.113.9, 10.2.2.2", "X-Forwarded-For", "10.1.1.1"), "ip=203.0.113.9 " + usual},
		{"a header that Envoy writes", "ip=x-envoy-external-address", checkOf("X-Envoy-External-Address", "203.0.113.5"), "ip=203.0.113.5 " + usual},
		{"IPv6", "", through("2001:db8::7"), "ip=2001:db8::7 " + usual},
		{"a Unix socket", "", changed(checkOf("X-Forwarded-For", "8.8.8.8"), func(a *pb.AttributeContext, _ *pb.AttributeContext_HttpRequest) {
			a.Source.Address = &core.Address{Address: &core.Address_Pipe{Pipe: &core.Pipe{Path: "/run/envoy"}}}
		}), usual},
		{"a trusted Unix socket", "trust=unix", changed(checkOf("X-Forwarded-For", "8.8.8.8"), func(a *pb.AttributeContext, _ *pb.AttributeContext_HttpRequest) {
			a.Source.Address = &core.Address{Address: &core.Address_Pipe{Pipe: &core.Pipe{Path: "/run/envoy"}}}
		}), "ip=8.8.8.8 " + usual},
		{"an unclean path", "", changed(checkOf(), func(_ *pb.AttributeContext, h *pb.AttributeContext_HttpRequest) {
			h.Path, h.Host = "/%69tems//7?x=1", "API.Example.com:8443"
		}), "ip=203.0.113.7 route=GET /items/{id} method=GET host=api.example.com path=/items/7"},
		{"OPTIONS *", "", changed(checkOf(), func(_ *pb.AttributeContext, h *pb.AttributeContext_HttpRequest) { h.Method, h.Path = "OPTIONS", "*" }), "ip=203.0.113.7 route=unmatched method=OPTIONS host=example.com path=*"},
		{"context extensions", "cost=2", extended(map[string]string{"route": "search", "tenant": "t", "cost": "3"}), "ip=203.0.113.7 route=search method=GET host=example.com path=/items/7 tenant=t"},
		{"a route among the parameters", "route=search", checkOf(), "ip=203.0.113.7 route=search method=GET host=example.com path=/items/7"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			items := rule(perHour("items", 9), "ip")
			items.Match = []policy.Condition{policy.Equal("route", "GET /items/{id}", "POST /token")}
			a := newAsked(t, []policy.Rule{items})
			if code, answer, err := check(t, serveChecks(t, a, Options{}), tt.parameters, tt.request); code != 200 || a.descriptor() != tt.want {
				t.Errorf("%d %v %v\n%s\nwant\n%s", code, answer, err, a.descriptor(), tt.want)
			}
		})
	}
}

func TestCheckCost(t *testing.T) {
	t.Parallel()
	a := newAsked(t, []policy.Rule{rule(perHour("client", 10), "ip")})
	client := serveChecks(t, a, Options{Dialect: httplimit.XRateLimit})
	for i, tt := range []struct {
		parameters string
		request    *pb.CheckRequest
		left       string
	}{
		{"", checkOf(), "9"},
		{"cost=2", checkOf(), "7"},
		{"cost=2", extended(map[string]string{"cost": "6"}), "1"},
	} {
		_, answer, err := check(t, client, tt.parameters, tt.request)
		if got := told(answer.GetOkResponse().GetResponseHeadersToAdd()); !strings.Contains(got, "x-ratelimit-remaining: "+tt.left+" ") {
			t.Errorf("request %d: %v\n%s\nwant %s left", i+1, err, got, tt.left)
		}
	}
}

func TestCheckRefusals(t *testing.T) {
	t.Parallel()
	path := func(method, path string) *pb.CheckRequest {
		return changed(checkOf(), func(_ *pb.AttributeContext, h *pb.AttributeContext_HttpRequest) { h.Method, h.Path = method, path })
	}
	for _, tt := range []struct {
		name, parameters string
		request          *pb.CheckRequest
		code             int
		want             string
	}{
		{"a path read in two ways", "", path("GET", "/items/a%2fb"), 400, "read in two ways"},
		{"a method read in two ways", "", path("get", "/items/7"), 400, "small letters"},
		{"CONNECT", "", path("CONNECT", ""), 400, "no valid URI"},
		{"two lines of a key", "", checkOf("X-Api-Key", "a", "X-Api-Key", "b"), 400, "X-Api-Key is there 2 times"},
		{"two lines of an entry", "entry=user:X-User", checkOf("X-User", "a", "X-User", "b"), 400, "X-User is there 2 times"},
		{"two lines, joined by Envoy", "", joined(map[string]string{"x-api-key": "a,b"}), 400, "X-Api-Key is there 2 times"},
		{"two lines, joined by another proxy", "lines=joined", checkOf("Authorization", "Bearer a,b"), 400, "Authorization is there 2 times"},
		{"a header that is a key to some servers", "", checkOf("X_Api-Key", "a"), 400, "x_api-key is the same as X-Api-Key"},
		{"another method", "", checkOf("X-HTTP-Method-Override", "PUT"), 400, "x-http-method-override"},
		{"a host with two ports", "", changed(checkOf(), func(_ *pb.AttributeContext, h *pb.AttributeContext_HttpRequest) { h.Host = "example.com:80:80" }), 400, "Its host is not"},
		{"two keys", "", checkOf("Authorization", "Bearer a b"), 400, "more than one word"},
		{"a long key", "", checkOf("X-Api-Key", strings.Repeat("x", policy.MaxValue+1)), 431, "api_key is too long"},
		{"the deny list", "", checkOf("X-Api-Key", "banned"), 403, "is not allowed"},
	} {
		items := rule(perHour("items", 9), "ip", "api_key")
		items.Match = []policy.Condition{policy.Equal("route", "GET /items/{id}")}
		a := newAsked(t, []policy.Rule{items}, policy.Denied(policy.ListEntry{Name: "banned", Match: []policy.Condition{policy.Equal("api_key", "banned")}}))
		code, answer, err := check(t, serveChecks(t, a, Options{}), tt.parameters, tt.request)
		if body := answer.GetDeniedResponse().GetBody(); code != tt.code || !strings.Contains(body, tt.want) {
			t.Errorf("%s: %d %s %v, want %d and %q", tt.name, code, body, err, tt.code, tt.want)
		}
	}
}

// An Envoy that asks in the wrong way gets an error, which is no answer about the request, and the
// log has the reason.
func TestCheckMisconfigured(t *testing.T) {
	t.Parallel()
	for _, tt := range []struct {
		parameters string
		request    *pb.CheckRequest
		want       []string
	}{
		{"", new(pb.CheckRequest), []string{"not about an HTTP request"}},
		{"", changed(checkOf(), func(_ *pb.AttributeContext, h *pb.AttributeContext_HttpRequest) { h.Method = "" }), []string{"no method"}},
		{"method=X-Method&uri=X-Uri&host=&denied=401", checkOf(), []string{`"method" is for`, `"uri" is for`, `"host" is for`, `"denied" is for`}},
		{"what=1", checkOf(), []string{`"what" is not a parameter`}},
		{"trust=x", checkOf(), []string{`"trust" is wrong`}},
		{"entry=user:X-User", extended(map[string]string{"user": "a", "ip": "1.2.3.4", "": "x", "cost": "0", "route": strings.Repeat("x", policy.MaxValue+1)}), []string{
			`"user" cannot be set`, `"ip" cannot be set`, `"" must have a name`, `"cost" must be a whole number`, `"route" is longer`,
		}},
	} {
		var log bytes.Buffer
		a := newAsked(t, []policy.Rule{rule(perHour("client", 1), "ip")})
		_, answer, err := check(t, serveChecks(t, a, Options{Logger: slog.New(slog.NewTextHandler(&log, nil))}), tt.parameters, tt.request)
		if status.Code(err) != codes.InvalidArgument {
			t.Errorf("%q: %v, %v", tt.parameters, answer, err)
			continue
		}
		for _, want := range tt.want {
			if !strings.Contains(err.Error(), want) || !strings.Contains(log.String(), strings.ReplaceAll(want, `"`, `\"`)) {
				t.Errorf("%q: %v\nlog %s\nlacks %s", tt.parameters, err, log.String(), want)
			}
		}
		if !strings.Contains(log.String(), "at=envoy.service.auth.v3.Authorization") {
			t.Errorf("%q: log %s", tt.parameters, log.String())
		}
	}
}

func TestCheckWithoutTheStore(t *testing.T) {
	t.Parallel()
	a := newAsked(t, []policy.Rule{rule(perHour("client", 1), "ip")})
	a.err = fmt.Errorf("%w: redis.internal:6379 is away", headgate.ErrUnavailable)
	code, answer, err := check(t, serveChecks(t, a, Options{}), "", checkOf())
	denied := answer.GetDeniedResponse()
	if code != 503 || strings.Contains(denied.GetBody(), "redis") || !strings.Contains(told(denied.GetHeaders()), "retry-after: ") {
		t.Errorf("%d %v %v", code, answer, err)
	}
}

// Too long a delay of a leaky bucket is a denial, and what it took is given back.
func TestCheckDelay(t *testing.T) {
	t.Parallel()
	slow := headgate.MustRule("paced", headgate.Limit{Algorithm: headgate.LeakyBucket, Count: 1, Period: time.Hour, Burst: 4})
	a := newAsked(t, []policy.Rule{rule(slow, "ip")})
	client := serveChecks(t, a, Options{})
	for i, want := range []int{200, 429} {
		if code, answer, err := check(t, client, "", checkOf()); code != want {
			t.Errorf("request %d: %d %v %v", i+1, code, answer, err)
		}
	}
	a.mu.Lock()
	defer a.mu.Unlock()
	if want := []headgate.Op{headgate.OpTake, headgate.OpTake, headgate.OpRefund}; !slices.Equal(a.ops, want) {
		t.Errorf("the store was asked for %v, want %v", a.ops, want)
	}
}

// TestCheckDelayBeforeDeadline: the answer must be there before the call's deadline, or Envoy may
// let the request through.
func TestCheckDelayBeforeDeadline(t *testing.T) {
	t.Parallel()
	paced := headgate.MustRule("paced", headgate.Limit{Algorithm: headgate.LeakyBucket, Count: 1, Period: 10 * time.Minute, Burst: 4})
	a := newAsked(t, []policy.Rule{rule(paced, "ip")})
	client := serveChecks(t, a, Options{MaxDelay: time.Hour})
	// An answer after ten minutes would come in time, if nothing else took any.
	ctx, cancel := context.WithTimeout(t.Context(), 11*time.Minute)
	defer cancel()
	for i, want := range []int32{0, int32(codes.PermissionDenied)} {
		answer, err := client.Check(ctx, checkOf())
		if err != nil || answer.GetStatus().GetCode() != want {
			t.Errorf("request %d: %v %v", i+1, answer, err)
		}
	}
}

// FuzzCheck holds what is read against what the generated messages read.
func FuzzCheck(f *testing.F) {
	for _, r := range []*pb.CheckRequest{
		{},
		checkOf("X-User", "a", "x-user", "b"),
		joined(map[string]string{"a": "b", "c": ""}),
		extended(map[string]string{"cost": "5"}),
		changed(checkOf(), func(a *pb.AttributeContext, _ *pb.AttributeContext_HttpRequest) {
			a.Source.Address = &core.Address{Address: &core.Address_Pipe{Pipe: &core.Pipe{Path: "@x"}}}
		}),
	} {
		message, err := proto.Marshal(r)
		if err != nil {
			f.Fatal(err)
		}
		f.Add(message)
	}
	f.Fuzz(func(t *testing.T, message []byte) {
		var got checkRequest
		err := got.ReadWire(message)
		want := new(pb.CheckRequest)
		if proto.Unmarshal(message, want) != nil {
			return // Texts that are not UTF-8 are read here, and not there.
		}
		if err != nil {
			t.Fatalf("an error for what is a message: %v", err)
		}
		attributes := want.GetAttributes()
		h := attributes.GetRequest().GetHttp()
		if got.http != (h != nil) || got.method != h.GetMethod() || got.path != h.GetPath() || got.host != h.GetHost() {
			t.Fatalf("read %+v, want %v", got, want)
		}
		if got, want := asMap(got.extensions), attributes.GetContextExtensions(); !maps.Equal(got, want) && len(got)+len(want) > 0 {
			t.Fatalf("extensions %v, want %v", got, want)
		}
		if h.GetHeaderMap() == nil {
			if got, want := asMap(got.headers), h.GetHeaders(); !maps.Equal(got, want) && len(got)+len(want) > 0 {
				t.Fatalf("headers %v, want %v", got, want)
			}
		} else if len(h.GetHeaders()) == 0 && len(got.headers) != len(h.GetHeaderMap().GetHeaders()) {
			t.Fatalf("headers %v, want %v", got.headers, h.GetHeaderMap())
		}
		got.reset()
		if got.http || got.peer != "" || len(got.headers)+len(got.extensions) != 0 {
			t.Fatalf("after a reset: %+v", got)
		}
	})
}

// asMap is what a map has of the pairs: the last of each name.
func asMap(pairs []pair) map[string]string {
	m := make(map[string]string)
	for _, p := range pairs {
		m[p.name] = p.value
	}
	return m
}

// Over HTTP the parameter lines says that a comma may stand between two lines.
func TestJoinedLines(t *testing.T) {
	t.Parallel()
	h := New(newAsked(t, []policy.Rule{rule(perHour("user", 9), "user")}), Options{})
	for parameters, want := range map[string]int{"entry=user:X-User": 200, "entry=user:X-User&lines=joined": 400} {
		if w := ask(h, parameters, "X-User", "ann,made up"); w.Code != want {
			t.Errorf("%q: %d, want %d", parameters, w.Code, want)
		}
	}
	a := newAsked(t, []policy.Rule{rule(perHour("user", 9), "user")})
	if w := ask(New(a, Options{}), "entry=user:X-User&lines=joined", "X-User", "ann", "X-Forwarded-For", "8.8.8.8, 203.0.113.9"); w.Code != 200 || !strings.HasSuffix(a.descriptor(), " user=ann") || !slices.Contains(strings.Fields(a.descriptor()), "ip=203.0.113.9") {
		t.Errorf("%d %s", w.Code, a.descriptor())
	}
}
