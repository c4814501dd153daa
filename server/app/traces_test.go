package app

import (
	"context"
	"encoding/hex"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	collector "go.opentelemetry.io/proto/otlp/collector/trace/v1"
	span "go.opentelemetry.io/proto/otlp/trace/v1"
	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/grpc/health/grpc_health_v1"
	"google.golang.org/grpc/metadata"
	"google.golang.org/protobuf/proto"
)

// collected takes the spans that a server sends.
type collected struct {
	mu    sync.Mutex // guards spans
	spans []*span.Span
}

func (c *collected) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	body, err := io.ReadAll(r.Body)
	var request collector.ExportTraceServiceRequest
	if err != nil || proto.Unmarshal(body, &request) != nil || r.URL.Path != "/v1/traces" {
		w.WriteHeader(http.StatusBadRequest)
		return
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	for _, resource := range request.GetResourceSpans() {
		for _, scope := range resource.GetScopeSpans() {
			c.spans = append(c.spans, scope.GetSpans()...)
		}
	}
}

// of are the spans of a trace by their names, with their attributes as text.
func (c *collected) of(trace string) map[string]string {
	c.mu.Lock()
	defer c.mu.Unlock()
	all := make(map[string]string)
	for _, s := range c.spans {
		if hex.EncodeToString(s.GetTraceId()) == trace {
			var list []string
			for _, a := range s.GetAttributes() {
				list = append(list, fmt.Sprintf("%s=%v", a.GetKey(), a.GetValue()))
			}
			slices.Sort(list)
			all[s.GetName()] = strings.Join(list, " ")
		}
	}
	return all
}

// TestTraces: a trace goes in through each door, tells what was decided and by which rule, and
// goes on to the upstream server. No span holds what a client has sent.
func TestTraces(t *testing.T) {
	t.Parallel()
	to := new(collected)
	receiver := httptest.NewServer(to)
	defer receiver.Close()
	headers := make(chan string, 1)
	upstream := httptest.NewServer(http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) { headers <- r.Header.Get("Traceparent") }))
	defer upstream.Close()
	file := filepath.Join(t.TempDir(), "limits.yaml")
	write(t, file, "rules:\n  - name: login\n    match: { ip: present }\n    per: [ip]\n    limits: [5 per 1h]\n")
	r := start(t, Settings{
		PolicyFile: file, GRPCListen: "127.0.0.1:0", OTLP: receiver.URL + "/v1/traces",
		Gateway: &GatewaySettings{Listen: "127.0.0.1:0", Upstreams: []string{upstream.URL}},
	})
	parent := func(n int) (trace, header string) {
		trace = fmt.Sprintf("%032x", 0xabc+n)
		return trace, "00-" + trace + "-b7ad6b7169203331-01"
	}
	ask := func(method, url, header, body string) {
		t.Helper()
		request, err := http.NewRequestWithContext(t.Context(), method, url, strings.NewReader(body))
		if err != nil {
			t.Fatal(err)
		}
		request.Header.Set("Traceparent", header)
		request.Header.Set("Content-Type", "application/json")
		response, err := http.DefaultClient.Do(request)
		if err != nil {
			t.Fatal(err)
		}
		_, _ = io.Copy(io.Discard, response.Body) // The connection is used again.
		_ = response.Body.Close()
	}
	const check = `{"descriptor":{"ip":"203.0.113.66"}}`
	viaHTTP, header := parent(1)
	ask("POST", r.base+"/v1/check", header, check)
	// After it, the connection waits on standby.
	_, header = parent(5)
	ask("POST", r.base+"/v1/check", header, check)
	viaStandby, header := parent(6)
	ask("POST", r.base+"/v1/check", header, check)
	probed, header := parent(2)
	ask("GET", r.base+"/healthz", header, "")
	viaGateway, header := parent(3)
	ask("GET", "http://"+r.Addr("gateway").String()+"/203.0.113.66", header, "")
	if got := <-headers; !strings.Contains(got, viaGateway) || got == header {
		t.Errorf("the upstream server gets %q", got)
	}
	viaGRPC, header := parent(4)
	conn, err := grpc.NewClient(r.Addr("grpc").String(), grpc.WithTransportCredentials(insecure.NewCredentials()))
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close()
	ctx, cancel := context.WithTimeout(metadata.AppendToOutgoingContext(t.Context(), "traceparent", header), within)
	defer cancel()
	if _, err := grpc_health_v1.NewHealthClient(conn).Check(ctx, new(grpc_health_v1.HealthCheckRequest)); err != nil {
		t.Fatal(err)
	}
	r.stop() // A server that ends sends what it has.
	if err := <-r.ended; err != nil {
		t.Error(err)
	}
	r.ended <- nil
	const decided = `headgate.limit=string_value:"5 per 1h" headgate.outcome=string_value:"allowed" headgate.rule=string_value:"login"`
	text := func(all map[string]string) string { return strings.ReplaceAll(fmt.Sprint(all), "  ", " ") }
	for _, tt := range []struct{ trace, door string }{{viaHTTP, "headgate http"}, {viaStandby, "headgate http"}, {viaGateway, "headgate gateway"}} {
		all := to.of(tt.trace)
		for _, name := range []string{tt.door, "headgate.take"} {
			if got := strings.ReplaceAll(all[name], "  ", " "); !strings.Contains(strings.ReplaceAll(got, ": ", ":"), decided) {
				t.Errorf("%s: the span %s has %s", tt.door, name, got)
			}
		}
		if got := all[tt.door]; !strings.Contains(got, "http.response.status_code") || !strings.Contains(got, "url.scheme") || strings.Contains(got, "/v1/check") != (tt.door == "headgate http") {
			t.Errorf("the span %s has %s", tt.door, got)
		}
		if strings.Contains(text(all), "203.0.113.66") {
			t.Errorf("%s: a span holds a key: %v", tt.door, all)
		}
	}
	if all := to.of(viaGRPC); len(all) != 1 {
		t.Errorf("gRPC: %v", all)
	}
	if all := to.of(probed); len(all) != 0 {
		t.Errorf("a probe is traced: %v", all)
	}
}

// TestTracesRESP: each command that asks for a decision is a span above that of the store's
// call, also those of a pipeline and of a transaction.
func TestTracesRESP(t *testing.T) {
	t.Parallel()
	to := new(collected)
	receiver := httptest.NewServer(to)
	defer receiver.Close()
	r := start(t, Settings{RESPListen: "127.0.0.1:0", OTLP: receiver.URL + "/v1/traces", AccessLog: true})
	conn, err := new(net.Dialer).DialContext(t.Context(), "tcp", r.Addr("resp").String())
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close()
	if err := conn.SetDeadline(time.Now().Add(within)); err != nil {
		t.Fatal(err)
	}
	const check = "HG.CHECK auth.createToken key-of-anna\r\n"
	const body = `{"checks":[{"rule":"auth.createToken","key":"key-of-anna"}]}`
	post := fmt.Sprintf("*3\r\n$7\r\nHG.POST\r\n$9\r\n/v1/check\r\n$%d\r\n%s\r\n", len(body), body)
	if _, err := io.WriteString(conn, "PING\r\n"+check+post+post+"CL.THROTTLE key-of-anna 5 10 60\r\nMULTI\r\n"+check+"EXEC\r\nQUIT\r\n"); err != nil {
		t.Fatal(err)
	}
	if answers, err := io.ReadAll(conn); err != nil || strings.Contains(string(answers), "-ERR") {
		t.Fatalf("%q, %v", answers, err)
	}
	r.stop()
	if err := <-r.ended; err != nil {
		t.Error(err)
	}
	r.ended <- nil
	for text, want := range map[string]int{"msg=request method=POST path=/v1/check status=200 took=": 2, "command=HG.POST": 0, "command=PING failed=false": 1, "from= ": 0} {
		if got := lines(r.log, text); got != want {
			t.Errorf("the log has %q %d times, want %d:\n%s", text, got, want, r.log)
		}
	}
	to.mu.Lock()
	defer to.mu.Unlock()
	parents, takes := make(map[string]string), []string{}
	for _, s := range to.spans {
		if strings.Contains(s.String(), "key-of-anna") {
			t.Errorf("a span holds a key: %v", s)
		}
		if s.GetName() == "headgate.take" {
			takes = append(takes, hex.EncodeToString(s.GetParentSpanId()))
			continue
		}
		if s.GetName() == "headgate resp" {
			for _, want := range []string{"/v1/check", "http.response.status_code"} {
				if !strings.Contains(s.String(), want) {
					t.Errorf("the span of HG.POST has no %s: %v", want, s)
				}
			}
			if len(s.GetParentSpanId()) > 0 {
				t.Errorf("the span of HG.POST has a parent: %v", s)
			}
		}
		if !strings.Contains(s.String(), "headgate.outcome") {
			t.Errorf("the span %s does not say what became of it", s.GetName())
		}
		parents[hex.EncodeToString(s.GetSpanId())] = s.GetName()
	}
	var names []string
	for _, parent := range takes {
		names = append(names, parents[parent])
	}
	slices.Sort(names)
	if want := []string{"CL.THROTTLE", "HG.CHECK", "HG.CHECK", "headgate resp", "headgate resp"}; !slices.Equal(names, want) || len(parents) != len(want) {
		t.Errorf("the commands with a call to the store are %v of %v, want %v", names, parents, want)
	}
}

// TestTracesAway: a collector that does not answer is logged once, and harms nobody.
func TestTracesAway(t *testing.T) {
	t.Parallel()
	r := start(t, Settings{OTLP: "http://127.0.0.1:1/v1/traces"})
	for range 3 {
		r.do(t, "POST", "/v1/check", `{"checks":[{"rule":"auth.createToken","key":"anna"}]}`)
	}
	if err := r.traces.provider.ForceFlush(t.Context()); err != nil {
		t.Error(err)
	}
	for end := time.Now().Add(within); strings.Count(r.log.String(), "traces cannot be sent") != 1; time.Sleep(time.Millisecond) {
		if time.Now().After(end) {
			t.Fatalf("the log is:\n%s", r.log.String())
		}
	}
	if _, err := New(t.Context(), Settings{OTLP: "localhost:4318"}); err == nil || !strings.Contains(err.Error(), "--otlp: ") {
		t.Errorf("a URL without a scheme: %v", err)
	}
}
