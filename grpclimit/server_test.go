package grpclimit

import (
	"context"
	"crypto/x509"
	"crypto/x509/pkix"
	"errors"
	"fmt"
	"strings"
	"sync"
	"testing"
	"time"

	"google.golang.org/genproto/googleapis/rpc/errdetails"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	testpb "google.golang.org/grpc/interop/grpc_testing"
	"google.golang.org/grpc/metadata"
	"google.golang.org/grpc/status"

	"github.com/headgate/headgate"
	"github.com/headgate/headgate/internal/admission"
	"github.com/headgate/headgate/policy"
	"github.com/headgate/headgate/store/memory"
)

const unaryMethod = "/grpc.testing.TestService/UnaryCall"

// TestHeaders: what the client of an admitted call is told.
func TestHeaders(t *testing.T) {
	api := limited(t, stopped(), new(service), Limit(Everyone(), headgate.MustRule("mail", headgate.Per(2, time.Hour))))
	var header metadata.MD
	if err := call(t, api, grpc.Header(&header)); err != nil {
		t.Fatal(err)
	}
	if header.Get("x-ratelimit-limit")[0] != "2" || header.Get("x-ratelimit-remaining")[0] != "1" || header.Get("x-ratelimit-reset")[0] != "1800" {
		t.Errorf("the headers are %v", header)
	}
}

// TestDenial: what the client of a denied call is told.
func TestDenial(t *testing.T) {
	s := new(service)
	api := limited(t, stopped(), s, Limit(Everyone(), headgate.MustRule("mail", headgate.Per(1, time.Hour), headgate.Sliding(9, time.Minute))))
	stream := exchange(t, api, 1)
	if header, err := stream.Header(); err != nil || header.Get("x-ratelimit-remaining")[0] != "0" {
		t.Errorf("the headers of a stream are %v, %v", header, err)
	}
	var trailer metadata.MD
	err := call(t, api, grpc.Trailer(&trailer))
	code, reason, delay := said(err)
	if code != codes.ResourceExhausted || reason != ReasonExhausted || delay != time.Hour {
		t.Errorf("got %v, %s, retry in %v", err, reason, delay)
	}
	if got := status.Convert(err).Message(); got != `Rule "mail" admits 1 per 1h; the request fits in 1h0m0s.` {
		t.Errorf("the text is %q", got)
	}
	for _, d := range status.Convert(err).Details() {
		if quota, ok := d.(*errdetails.QuotaFailure); ok {
			v := quota.GetViolations()
			if len(v) != 1 || v[0].GetSubject() != "rule:mail" || v[0].GetDescription() != "1 per 1h" {
				t.Errorf("the violations are %v", v)
			}
		}
	}
	if trailer.Get("retry-after")[0] != "3600" || trailer.Get("x-ratelimit-remaining")[0] != "0" || len(trailer.Get("cache-control")) != 0 {
		t.Errorf("the trailers are %v", trailer)
	}
	denied, err := api.FullDuplexCall(t.Context())
	if err == nil {
		_, err = denied.Recv()
	}
	if code, reason, _ := said(err); code != codes.ResourceExhausted || reason != ReasonExhausted {
		t.Errorf("a stream: %v", err)
	}
	if s.calls.Load() != 1 {
		t.Errorf("%d calls came through", s.calls.Load())
	}
}

// exchange opens a stream and has so many messages answered.
func exchange(t testing.TB, api testpb.TestServiceClient, n int) grpc.BidiStreamingClient[testpb.StreamingOutputCallRequest, testpb.StreamingOutputCallResponse] {
	t.Helper()
	stream, err := api.FullDuplexCall(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	for i := range n {
		if err := stream.Send(new(testpb.StreamingOutputCallRequest)); err != nil {
			t.Fatal(err)
		}
		if _, err := stream.Recv(); err != nil {
			t.Fatalf("message %d: %v", i+1, err)
		}
	}
	return stream
}

func TestNeverFits(t *testing.T) {
	api := limited(t, stopped(), new(service), Limit(Everyone(), one("r")), Cost(func(*Call) int64 { return 2 }))
	var trailer metadata.MD
	_, _, delay := said(call(t, api, grpc.Trailer(&trailer)))
	if delay != -1 || len(trailer.Get("retry-after")) != 0 {
		t.Errorf("a cost that never fits: retry in %v, trailers %v", delay, trailer)
	}
}

func TestDialects(t *testing.T) {
	for dialect, want := range map[Dialect]string{
		XRateLimit: "x-ratelimit-limit", RateLimitTriple: "ratelimit-limit", Draft11: "ratelimit-policy", NoHeaders: "",
	} {
		api := limited(t, stopped(), new(service), Limit(Everyone(), one("r")), Headers(dialect))
		var header metadata.MD
		if err := call(t, api, grpc.Header(&header)); err != nil {
			t.Fatal(err)
		}
		got := ""
		for key := range header {
			if strings.Contains(key, "ratelimit-") && (key == want || want == "") {
				got = key
			}
		}
		if got != want {
			t.Errorf("%v: the headers are %v", dialect, header)
		}
	}
}

// Each row makes two calls under a limit of one: same tells whether they share a
// counter.
func TestIdentity(t *testing.T) {
	type md = []string
	user := ByUser(func(ctx context.Context) string {
		return strings.Join(metadata.ValueFromIncomingContext(ctx, "test-user"), "")
	})
	for _, c := range []struct {
		name string
		key  Key
		a, b md
		same bool
	}{
		{"one address", ByIP(), nil, nil, true},
		{"forwarded", ByIP(), md{"x-forwarded-for", "1.1.1.1"}, md{"x-forwarded-for", "2.2.2.2"}, false},
		{"forwarded and forged", ByIP(), md{"x-forwarded-for", "8.8.8.8, 1.1.1.1"}, md{"x-forwarded-for", "9.9.9.9, 1.1.1.1"}, true},
		{"one /64", ByIP(), md{"x-forwarded-for", "2001:db8::1"}, md{"x-forwarded-for", "2001:db8::2"}, true},
		{"two /64", ByIP(), md{"x-forwarded-for", "2001:db8:1::1"}, md{"x-forwarded-for", "2001:db8:2::1"}, false},
		{"an API key in two places", ByAPIKey(), md{"authorization", "Bearer k1"}, md{"x-api-key", "k1"}, true},
		{"the scheme in other letters", ByAPIKey(), md{"authorization", "bearer  k1"}, md{"authorization", "Bearer k1"}, true},
		{"two API keys", ByAPIKey(), md{"x-api-key", "k1"}, md{"x-api-key", "k2"}, false},
		{"another scheme is no API key", ByAPIKey(), md{"authorization", "Basic k1", "x-api-key", "k2"}, md{"x-api-key", "k2"}, true},
		{"metadata", ByMetadata("X-Tenant"), md{"x-tenant", "a"}, md{"x-tenant", "a"}, true},
		{"other metadata", ByMetadata("X-Tenant"), md{"x-tenant", "a"}, md{"x-tenant", "b"}, false},
		{"a user", user, md{"test-user", "ann"}, md{"test-user", "ann"}, true},
		{"two users", user, md{"test-user", "ann"}, md{"test-user", "bob"}, false},
		{"combined", Combine(user, ByMethod()), md{"test-user", "ann"}, md{"test-user", "ann"}, true},
		{"combined, ambiguous when joined", Combine(ByMetadata("a"), ByMetadata("b")), md{"a", "x|y", "b", "z"}, md{"a", "x", "b", "y|z"}, false},
		{"a method", ByMethod(), nil, nil, true},
		{"a service", ByService(), nil, nil, true},
		{"a function", ByFunc("size", func(c *Call) string { return fmt.Sprint(c.Message.(*testpb.SimpleRequest).GetResponseSize()) }), nil, nil, true},
		{"everyone", Everyone(), md{"test-user", "ann"}, md{"test-user", "bob"}, true},
	} {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			api := limited(t, stopped(), new(service), Limit(c.key, one("r")), TrustProxies(XForwardedFor, "127.0.0.0/8"))
			ask := func(pairs md) error {
				_, err := api.UnaryCall(metadata.AppendToOutgoingContext(t.Context(), pairs...), new(testpb.SimpleRequest))
				return err
			}
			if err := ask(c.a); err != nil {
				t.Fatalf("the first call: %v", err)
			}
			if err := ask(c.b); (status.Code(err) == codes.ResourceExhausted) != c.same {
				t.Errorf("the second call: %v", err)
			}
		})
	}
}

// No spelling of one key is another client's, and none is that of a client without a key.
func TestUnclearAPIKey(t *testing.T) {
	t.Parallel()
	lines := []string{"Bearer k1 1", "Bearer k1 2", "Bearer 1 k1", "bearer  k1  1"}
	api := limited(t, stopped(), new(service), Limit(ByAPIKey(), one("r")), OnMissing(PassMissing))
	for _, line := range lines {
		ctx := metadata.AppendToOutgoingContext(t.Context(), "authorization", line, "x-api-key", line)
		_, err := api.UnaryCall(ctx, new(testpb.SimpleRequest))
		if code, reason, _ := said(err); code != codes.InvalidArgument || reason != ReasonNoIdentity {
			t.Errorf("%q: %v", line, err)
		}
	}
	long := metadata.AppendToOutgoingContext(t.Context(), "x-api-key", strings.Repeat("k", policy.MaxValue+1))
	if _, err := api.UnaryCall(long, new(testpb.SimpleRequest)); status.Code(err) != codes.InvalidArgument {
		t.Errorf("a key that is too long: %v", err)
	}
	two := metadata.AppendToOutgoingContext(t.Context(), "x-api-key", "k1", "x-api-key", "k2")
	if _, err := api.UnaryCall(two, new(testpb.SimpleRequest)); status.Code(err) != codes.InvalidArgument {
		t.Errorf("two keys: %v", err)
	}
	ctx := metadata.AppendToOutgoingContext(t.Context(), "authorization", "Basic k1", "authorization", "Bearer k1 1")
	if _, err := api.UnaryCall(ctx, new(testpb.SimpleRequest)); status.Code(err) != codes.InvalidArgument {
		t.Errorf("in the second line: %v", err)
	}
	for _, name := range []string{"authorization", "x-api-key", "x-tenant"} {
		api := limited(t, stopped(), new(service), Limit(Combine(ByAPIKey(), ByMetadata("X-Tenant")), one("r")), OnMissing(PassMissing))
		ctx := metadata.AppendToOutgoingContext(t.Context(), name, "Bearer", name, "Bearer")
		if _, err := api.UnaryCall(ctx, new(testpb.SimpleRequest)); status.Convert(err).Message() != name+" is there 2 times. Send it once." {
			t.Errorf("two values of %s: %v", name, err)
		}
	}
	api = limited(t, stopped(), new(service), Limit(ByAPIKey(), one("r")), OnMissing(PassMissing), APIKeyMetadata("x-api-key"))
	for i, line := range lines {
		ctx := metadata.AppendToOutgoingContext(t.Context(), "authorization", line, "x-api-key", fmt.Sprint(i))
		if _, err := api.UnaryCall(ctx, new(testpb.SimpleRequest)); err != nil {
			t.Errorf("%q, which nothing looks at: %v", line, err)
		}
	}
	// A stream whose opening costs nothing is told at its first message.
	api = limited(t, stopped(), new(service), MessageLimit(ByAPIKey(), one("r")), OnMissing(PassMissing))
	stream, err := api.StreamingInputCall(metadata.AppendToOutgoingContext(t.Context(), "authorization", lines[0]))
	if err != nil {
		t.Fatal(err)
	}
	_ = stream.Send(new(testpb.StreamingInputCallRequest)) // What went wrong is told by the end.
	if _, err := stream.CloseAndRecv(); status.Code(err) != codes.InvalidArgument {
		t.Errorf("a message: %v", err)
	}
}

// TestUntrusted: without a trusted proxy, metadata do not change who it is.
func TestUntrusted(t *testing.T) {
	api := limited(t, stopped(), new(service), Limit(ByIP(), one("r")))
	for i, want := range []codes.Code{codes.OK, codes.ResourceExhausted} {
		ctx := metadata.AppendToOutgoingContext(t.Context(), "x-forwarded-for", fmt.Sprint("1.1.1.", i))
		if _, err := api.UnaryCall(ctx, new(testpb.SimpleRequest)); status.Code(err) != want {
			t.Errorf("call %d: %v", i+1, err)
		}
	}
}

func TestMethods(t *testing.T) {
	api := limited(t, stopped(), new(service), Limit(ByMethod(), one("r")))
	if err := call(t, api); err != nil {
		t.Fatal(err)
	}
	if _, err := api.EmptyCall(t.Context(), new(testpb.Empty)); err != nil {
		t.Errorf("another method: %v", err)
	}
	if err := call(t, api); status.Code(err) != codes.ResourceExhausted {
		t.Errorf("the same method again: %v", err)
	}
}

func TestCertificates(t *testing.T) {
	for name, c := range map[string]struct {
		cert *x509.Certificate
		want string
	}{
		"a URI":       {spiffe(t, "spiffe://prod/billing"), "spiffe://prod/billing"},
		"a DNS name":  {&x509.Certificate{DNSNames: []string{"billing.internal"}}, "dns:billing.internal"},
		"common name": {&x509.Certificate{Subject: pkix.Name{CommonName: "billing"}}, "cn:billing"},
	} {
		t.Run(name, func(t *testing.T) {
			server, client := certificates(t, c.cert)
			var got string
			store := stopped()
			limit, err := NewServer(store, Limit(ByCertificate(), one("r")), Describe(func(_ *Call, facts policy.Descriptor) policy.Descriptor {
				got, _ = facts.Get("certificate")
				return facts
			}))
			if err != nil {
				t.Fatal(err)
			}
			api := start(t, new(service), append(limit.Options(), grpc.Creds(server)), grpc.WithTransportCredentials(client))
			if err := call(t, api); err != nil {
				t.Fatal(err)
			}
			if got != c.want {
				t.Errorf("the client is %q, want %q", got, c.want)
			}
			if err := call(t, api); status.Code(err) != codes.ResourceExhausted {
				t.Errorf("the second call: %v", err)
			}
		})
	}
	api := limited(t, stopped(), new(service), Limit(ByCertificate(), one("r")))
	if code, reason, _ := said(call(t, api)); code != codes.Unauthenticated || reason != ReasonNoIdentity {
		t.Errorf("no certificate: %v %s", code, reason)
	}
}

func TestMissing(t *testing.T) {
	for name, c := range map[string]struct {
		key  Key
		want codes.Code
	}{
		"an API key": {ByAPIKey(), codes.Unauthenticated}, "a user": {ByUser(func(context.Context) string { return "" }), codes.Unauthenticated},
		"a tenant": {ByMetadata("x-tenant"), codes.InvalidArgument},
	} {
		t.Run(name, func(t *testing.T) {
			missed := 0
			hooks := Observe(Hooks{Missing: func(*Call, string) { missed++ }})
			api := limited(t, stopped(), new(service), Limit(c.key, one("r")), hooks)
			if code, reason, _ := said(call(t, api)); code != c.want || reason != ReasonNoIdentity {
				t.Errorf("got %v %s", code, reason)
			}
			api = limited(t, stopped(), new(service), Limit(c.key, one("r")), OnMissing(PassMissing), hooks)
			if err := errors.Join(call(t, api), call(t, api)); err != nil {
				t.Errorf("passing: %v", err)
			}
			api = limited(t, stopped(), new(service), Limit(c.key, one("r")), OnMissing(CountMissingByIP), hooks)
			if err := call(t, api); err != nil {
				t.Errorf("counted by address: %v", err)
			}
			if err := call(t, api); status.Code(err) != codes.ResourceExhausted {
				t.Errorf("counted by address: %v", err)
			}
			if missed != 5 {
				t.Errorf("the hook was called %d times", missed)
			}
		})
	}
}

func TestStoreError(t *testing.T) {
	var failed []error
	hooks := Observe(Hooks{Failed: func(_ *Call, err error) { failed = append(failed, err) }})
	down := failing{fmt.Errorf("%w: nobody there", headgate.ErrUnavailable)}
	api := limited(t, down, new(service), Limit(Everyone(), one("r")), UnenforcedHeader("X-RateLimit-Unenforced"), hooks)
	var header metadata.MD
	if err := call(t, api, grpc.Header(&header)); err != nil || header.Get("x-ratelimit-unenforced")[0] != "store-unavailable" {
		t.Errorf("open: %v, %v", err, header)
	}
	api = limited(t, down, new(service), Limit(Everyone(), one("r")), OnStoreError(FailClosed), hooks)
	if code, reason, delay := said(call(t, api)); code != codes.Unavailable || reason != ReasonUnavailable || delay != admission.UnavailableFor {
		t.Errorf("closed: %v %s %v", code, reason, delay)
	}
	// A rule that says deny has its way.
	set, err := policy.New([]policy.Rule{{Limits: one("rule"), Hints: headgate.Hints{OnError: headgate.OnErrorDeny}}})
	if err != nil {
		t.Fatal(err)
	}
	if code, reason, _ := said(call(t, limited(t, down, new(service), Policy(set)))); code != codes.Unavailable || reason != ReasonUnavailable {
		t.Errorf("a rule that denies: %v %s", code, reason)
	}
	api = limited(t, failing{&headgate.InvalidError{Subject: "x"}}, new(service), Limit(Everyone(), one("r")), hooks)
	if code, reason, _ := said(call(t, api)); code != codes.Internal || reason != ReasonDefect {
		t.Errorf("a check that cannot be: %v %s", code, reason)
	}
	api = limited(t, stopped(), new(service), Limit(Everyone(), one("r")), Cost(func(*Call) int64 { return -1 }), hooks)
	if code, _, _ := said(call(t, api)); code != codes.Internal {
		t.Errorf("a cost that cannot be: %v", code)
	}
	if len(failed) != 4 {
		t.Errorf("the hook was told %v", failed)
	}
}

// TestCallerGone: who hangs up while the store is asked does not get past the limit.
func TestCallerGone(t *testing.T) {
	limit, err := NewServer(failing{context.Canceled}, Limit(Everyone(), one("r")))
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	_, err = limit.Unary(ctx, nil, &grpc.UnaryServerInfo{FullMethod: unaryMethod}, func(context.Context, any) (any, error) {
		t.Error("it came through")
		return nil, nil
	})
	if status.Code(err) != codes.Canceled {
		t.Errorf("got %v", err)
	}
}

func TestCostOfNothing(t *testing.T) {
	store := stopped()
	api := limited(t, store, new(service), Limit(Everyone(), one("r")), Cost(func(c *Call) int64 {
		if c.Service() == "grpc.testing.TestService" {
			return 0
		}
		return 1
	}))
	for range 3 {
		if err := call(t, api); err != nil {
			t.Error(err)
		}
	}
}

func TestPolicy(t *testing.T) {
	set, err := policy.New([]policy.Rule{
		{
			Limits: headgate.MustRule("calls", headgate.Per(4, time.Hour)),
			Match:  []policy.Condition{policy.Equal("route", unaryMethod), policy.Equal("method", "UnaryCall"), policy.Equal("service", "grpc.testing.TestService")},
			Per:    []policy.Part{{Entry: "user"}},
			Soft:   50,
		},
	}, policy.Denied(policy.ListEntry{Name: "bad", Match: []policy.Condition{policy.Equal("user", "eve")}}),
		policy.Allowed(policy.ListEntry{Name: "good", Match: []policy.Condition{policy.Equal("user", "root")}}))
	if err != nil {
		t.Fatal(err)
	}
	var soft int
	api := limited(t, stopped(), new(service), Policy(set), Fact("user", func(c *Call) string { return strings.Join(c.Metadata("user"), "") }),
		Observe(Hooks{Soft: func(*Call, headgate.Decision) { soft++ }}))
	ask := func(user string) (metadata.MD, error) {
		var header metadata.MD
		_, err := api.UnaryCall(metadata.AppendToOutgoingContext(t.Context(), "user", user), new(testpb.SimpleRequest), grpc.Header(&header))
		return header, err
	}
	for i := range 4 {
		header, err := ask("ann")
		if err != nil {
			t.Fatal(err)
		}
		if warned := len(header.Get("x-ratelimit-warning")) > 0; warned != (i > 0) {
			t.Errorf("call %d: warned %t", i+1, warned)
		}
	}
	if soft != 3 {
		t.Errorf("the hook was called %d times", soft)
	}
	if _, err := ask("ann"); status.Code(err) != codes.ResourceExhausted {
		t.Errorf("a fifth: %v", err)
	}
	if _, err := ask("bob"); err != nil {
		t.Errorf("another user: %v", err)
	}
	if code, reason, _ := said(second(ask("eve"))); code != codes.PermissionDenied || reason != ReasonForbidden {
		t.Errorf("the deny list: %v %s", code, reason)
	}
	for range 6 {
		if _, err := ask("root"); err != nil {
			t.Errorf("the allow list: %v", err)
		}
	}
}

func second[T any](_ T, err error) error { return err }

func TestDelay(t *testing.T) {
	paced := func() *headgate.Rule {
		return headgate.MustRule("paced", headgate.Limit{Algorithm: headgate.LeakyBucket, Count: 1000, Period: time.Second, Burst: 100})
	}
	api := limited(t, memory.New(), new(service), Limit(Everyone(), paced()), Cost(func(*Call) int64 { return 10 }))
	var all sync.WaitGroup
	for range 5 {
		all.Go(func() {
			if err := call(t, api); err != nil {
				t.Error(err)
			}
		})
	}
	all.Wait()
	store := stopped()
	api = limited(t, store, new(service), Limit(Everyone(), paced()), Cost(func(*Call) int64 { return 40 }), MaxDelay(time.Millisecond))
	if err := call(t, api); err != nil {
		t.Fatal(err)
	}
	for range 2 { // what it took is given back each time
		if code, _, delay := said(call(t, api)); code != codes.ResourceExhausted || delay != 39*time.Millisecond {
			t.Errorf("longer than it may be held: %v, retry in %v", code, delay)
		}
	}
}

func TestOnDenied(t *testing.T) {
	var denied []string
	api := limited(t, stopped(), new(service), Limit(Everyone(), one("r")),
		OnDenied(func(c *Call, v headgate.Verdict) error {
			return status.Error(codes.Unavailable, c.Method+" "+v.Deciding().Rule.Name())
		}), Observe(Hooks{Denied: func(c *Call, _ headgate.Verdict) { denied = append(denied, c.Method) }}))
	if err := call(t, api); err != nil {
		t.Fatal(err)
	}
	if s := status.Convert(call(t, api)); s.Code() != codes.Unavailable || s.Message() != unaryMethod+" r" || len(denied) != 1 {
		t.Errorf("got %v, and the hook %v", s, denied)
	}
}

// TestMistakes: all of them are named at once.
func TestMistakes(t *testing.T) {
	set, err := policy.New([]policy.Rule{{Limits: one("r"), Per: []policy.Part{{Entry: "path"}}}})
	if err != nil {
		t.Fatal(err)
	}
	for name, c := range map[string]struct {
		store   headgate.Store
		options []Option
		want    []string
	}{
		"nothing": {nil, nil, []string{"the store is nil", "nothing is limited"}},
		"limits": {
			stopped(),
			[]Option{Limit(Key{}), Limit(Everyone(), nil, one("a")), MessageLimit(ByIP(), one("a")), Limit(ByFunc("bad name", nil), one("b"))},
			[]string{"Limit 1 has an empty Key", "Limit 1 has no rule", "Limit 2 has a nil rule", `MessageLimit 1: the rule "a" is there already`, "bad name", "needs a function"},
		},
		"policy": {stopped(), []Option{Policy(nil), Policy(set), Policy(set)}, []string{"the set is nil", "already", "entries path"}},
		"functions": {
			stopped(),
			[]Option{Limit(Everyone(), one("a")), Cost(nil), MessageCost(nil), Settle(nil), Describe(nil), OnDenied(nil)},
			[]string{"Cost needs", "MessageCost needs", "Settle needs", "Describe needs", "OnDenied needs"},
		},
		"numbers": {
			failing{},
			[]Option{
				Limit(Everyone(), one("a")), IPv6Prefix(0), OnMissing(9), OnStoreError(9), Headers(9), MaxDelay(-1), HoldMessages(0), HashKey(nil), HashKey([]byte("short")),
				APIKeyMetadata(), APIKeyMetadata("a b"), UnenforcedHeader("grpc-status"), TrustProxies("", "0.0.0.0/0"), Settle(func(*Call, End) int64 { return 1 }),
			},
			[]string{
				"IPv6Prefix", "OnMissing", "OnStoreError", "Headers", "MaxDelay", "HoldMessages", "HashKey is empty", "APIKeyMetadata needs", `"a b"`, "grpc-status",
				"source of client addresses", "every address", "Settle needs a store", "hash key",
			},
		},
		"messages": {stopped(), []Option{Limit(Everyone(), one("a")), HoldMessages(time.Second)}, []string{"which nothing limits"}},
	} {
		t.Run(name, func(t *testing.T) {
			_, err := NewServer(c.store, c.options...)
			var invalid *headgate.InvalidError
			if !errors.As(err, &invalid) {
				t.Fatalf("got %v", err)
			}
			all := strings.Join(invalid.Problems.Texts(), "\n")
			for _, want := range c.want {
				if !strings.Contains(all, want) {
					t.Errorf("%q is not said:\n%s", want, all)
				}
			}
			if len(invalid.Problems) != len(c.want) {
				t.Errorf("%d problems, want %d:\n%s", len(invalid.Problems), len(c.want), all)
			}
		})
	}
}

// TestConcurrently: many calls at once never get more than the limit.
func TestConcurrently(t *testing.T) {
	s := new(service)
	api := limited(t, memory.New(), s, Limit(Everyone(), headgate.MustRule("r", headgate.Per(100, time.Hour))))
	var all sync.WaitGroup
	for range 10 {
		all.Go(func() {
			for range 20 {
				if err := call(t, api); err != nil && status.Code(err) != codes.ResourceExhausted {
					t.Error(err)
				}
			}
		})
	}
	all.Wait()
	if n := s.calls.Load(); n != 100 {
		t.Errorf("%d calls came through, want 100", n)
	}
}
