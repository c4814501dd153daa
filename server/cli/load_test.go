package cli

import (
	"context"
	"encoding/json"
	"fmt"
	"net"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	pb "github.com/envoyproxy/go-control-plane/envoy/service/ratelimit/v3"
	"google.golang.org/grpc"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/types/known/durationpb"

	headgatev1 "github.com/headgate/headgate/api/headgate/v1"
)

// fast is a service that serves all but /denied.
func fast(t *testing.T, asked *atomic.Int64) string {
	t.Helper()
	s := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if asked != nil {
			asked.Add(1)
		}
		if r.URL.Path == "/denied" {
			w.Header().Set("Retry-After", "1")
			w.WriteHeader(http.StatusTooManyRequests)
		}
	}))
	t.Cleanup(s.Close)
	return s.URL
}

// patient has the sender be as late as it likes: the machine may be busy.
var patient = []string{"--max-lag", "10m", "--timeout", "2m", "--quiet"}

func TestLoad(t *testing.T) {
	t.Parallel()
	url := fast(t, nil)
	page := filepath.Join(t.TempDir(), "report.html")
	tests := []struct {
		name string
		args []string
		code int
		want []string
	}{
		{"text", []string{"--rate", "50", "--duration", "2s", url}, CodeOK, []string{"50 a second for 2s: 100 requests scheduled, 100 sent", "200  100  100.0 %", "LATENCY", "OVER TIME"}},
		{"denials", []string{"--rate", "50", "--duration", "1s", url + "/denied"}, CodeOK, []string{"429  50", "LIMITS: 50 denied, 50 of them with a Retry-After of 1s\n"}},
		{"ramp", []string{"--rate", "10", "--ramp-to", "90", "--duration", "1s", url}, CodeOK, []string{"10 to 90 a second for 1s: 50 requests scheduled"}},
		{"steps", []string{"--steps", "20,40", "--duration", "1s", "--html", page, url}, CodeOK, []string{"60 requests scheduled", "RATE  SENT", "  20    20", "  40    40"}},
		{"routes", []string{"--rate", "50", "--duration", "1s", "--route", "GET /a=3", "--route", "GET /b", url}, CodeOK, []string{"TARGET", "GET /a", "GET /b"}},
		{"mix", []string{"--rate", "50", "--duration", "1s", "--mix", replayLog, url}, CodeOK, []string{"GET /favicon.ico", "50 sent"}},
		{"arrivals", []string{"--arrivals", replayLog, "--duration", "1s", "--speed", "100", url}, CodeOK, []string{"a second on average"}},
		{"an expectation that does not hold", []string{"--rate", "50", "--duration", "1s", "--expect", "errors<1%", url + "/denied"}, CodeNo, []string{"--expect errors<1% does not hold: it is 100.00 %"}},
		{"one that does", []string{"--rate", "50", "--duration", "1s", "--expect", "errors<1%", "--expect", "max<10m", url}, CodeOK, nil},
		{"nobody there", []string{"http://127.0.0.1:1/"}, CodeUnavailable, []string{"cannot be reached"}},
		{"not this machine", []string{"http://192.0.2.1/"}, CodeUsage, []string{"not a loopback address: 192.0.2.1\n", "give --remote"}},
		{"no URL", []string{"--rate", "1", "here"}, CodeUsage, []string{`"here"`, "http://127.0.0.1:8080/"}},
		{"no rate", []string{"--rate", "x", url}, CodeUsage, []string{`--rate is "x"`}},
		{"a rate that is none", []string{"--rate", "0", url}, CodeUsage, []string{"the rate is 0 requests a second, must be 0.01 to 1000000"}},
		{"all that is wrong", []string{"--duration=-1s", "--connections=0", "--timeout=0s", "--max-lag=-1s", "--speed=0", "--pid=-1", url}, CodeUsage, []string{"--duration is -1s", "--connections is 0, must be 1 to 20000", "--timeout is 0s", "--max-lag is -1s", "--speed is 0", "--pid is -1"}},
		{"two ways", []string{"--rate", "1", "--search", url}, CodeUsage, []string{"there are --rate and --search, must be one of them"}},
		{"a search without a bound", []string{"--search", url}, CodeUsage, []string{"p95<200ms"}},
		{"an expectation that is none", []string{"--expect", "fast", url}, CodeUsage, []string{"is not such as p95<200ms"}},
		{"cores of nobody", []string{"--expect", "cpu<1", url}, CodeUsage, []string{"needs --pid"}},
		{"a header that is none", []string{"--header", "secret", url}, CodeUsage, []string{"--header is not of the form"}},
		{"a route that is none", []string{"--route", "/a", url}, CodeUsage, []string{"is not such as 'GET /report=3'"}},
		{"no log", []string{"--mix", "no-such.log", url}, CodeUnavailable, []string{"no-such.log"}},
		{"no body", []string{"--data", "@no-such", url}, CodeUsage, []string{"--data", "no-such"}},
		{"no such service", []string{"--grpc", "--data", "{}", url + "/no.Such/Method"}, CodeUsage, []string{`"no.Such" is not known`}},
		{"no such method", []string{"--grpc", "--data", "{}", url + "/grpc.health.v1.Health/Nothing"}, CodeUsage, []string{`no method "Nothing"`}},
		{"a stream", []string{"--grpc", "--data", "{}", url + "/grpc.health.v1.Health/Watch"}, CodeUsage, []string{"only unary"}},
		{"no message", []string{"--grpc", "--data", "{", url + "/grpc.health.v1.Health/Check"}, CodeUsage, []string{"--data is not a grpc.health.v1.HealthCheckRequest"}},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			args := append([]string{"load"}, tt.args...)
			if tt.name != "all that is wrong" {
				args = append(args, patient...)
			}
			code, stdout, stderr := command(t, args...)
			if code != tt.code {
				t.Fatalf("exit code %d, want %d\n%s%s", code, tt.code, stdout, stderr)
			}
			for _, want := range tt.want {
				if !strings.Contains(stdout+stderr, want) {
					t.Errorf("%q is not in\n%s%s", want, stdout, stderr)
				}
			}
			if slices.Contains(args, page) {
				if data, err := os.ReadFile(page); err != nil || !strings.Contains(string(data), "Each rate") {
					t.Errorf("the page: %v", err)
				}
			}
			if strings.Contains(stderr, "secret") {
				t.Errorf("a header is shown: %s", stderr)
			}
		})
	}
}

// TestLoadJSON: the object begins with what matters, and advise reads what a search found.
func TestLoadJSON(t *testing.T) {
	t.Parallel()
	url := fast(t, nil)
	code, stdout, stderr := command(t, append([]string{"load", "--rate", "100", "--duration", "1s", "--json", url}, patient...)...)
	if code != CodeOK || stderr != "" {
		t.Fatalf("exit code %d: %s", code, stderr)
	}
	var got struct {
		Scheduled, Sent int64
		Status          map[string]int64
		Latency         map[string]float64 `json:"latency_ms"`
		Valid           bool
	}
	if err := json.Unmarshal([]byte(stdout), &got); err != nil {
		t.Fatal(err)
	}
	if got.Scheduled != 100 || got.Sent != 100 || got.Status["200"] != 100 || !got.Valid {
		t.Errorf("got %+v", got)
	}
	for _, name := range []string{"p50", "p90", "p99", "p999", "max"} {
		if got.Latency[name] <= 0 {
			t.Errorf("latency %s is %g", name, got.Latency[name])
		}
	}
	at := 0
	for _, name := range []string{"scheduled", "sent", "status", "latency_ms", "valid"} {
		next := strings.Index(stdout, `"`+name+`"`)
		if next < at {
			t.Errorf("%s is not in its place", name)
		}
		at = next
	}

	code, stdout, stderr = command(t, append([]string{"load", "--search", "--from", "20", "--to", "40", "--duration", "1s", "--expect", "max<10m", "--json", url}, patient...)...)
	if code != CodeOK {
		t.Fatalf("exit code %d: %s", code, stderr)
	}
	name := filepath.Join(t.TempDir(), "capacity.json")
	if err := os.WriteFile(name, []byte(stdout), 0o600); err != nil {
		t.Fatal(err)
	}
	code, stdout, stderr = command(t, "advise", "--capacity", name)
	if code != CodeOK || !strings.Contains(stdout, "The service bears 40 requests a second") {
		t.Errorf("exit code %d: %s%s", code, stdout, stderr)
	}
}

// TestLoadInterrupted: a report of what was measured so far is printed.
func TestLoadInterrupted(t *testing.T) {
	t.Parallel()
	var asked atomic.Int64
	url := fast(t, &asked)
	ctx, cancel := context.WithTimeout(t.Context(), 2*time.Minute)
	defer cancel()
	go func() {
		for ctx.Err() == nil && asked.Load() < 10 {
			time.Sleep(10 * time.Millisecond)
		}
		cancel()
	}()
	var out, problems strings.Builder
	code := Run(ctx, append([]string{"load", "--rate", "100", "--duration", "1h", url}, patient...), &out, &problems, "v1")
	if code != CodeNo || !strings.Contains(problems.String(), "interrupted") || !strings.Contains(out.String(), "LATENCY") {
		t.Errorf("exit code %d\n%s%s", code, out.String(), problems.String())
	}
}

// TestLoadAudit: a limiter that lies is found out, and one that does not is not.
func TestLoadAudit(t *testing.T) {
	t.Parallel()
	for _, honest := range []bool{true, false} {
		n := 0
		var until time.Time
		s := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
			if n++; n%5 != 0 && !time.Now().Before(until) {
				return
			}
			if time.Now().After(until) {
				until = time.Now().Add(time.Second)
				if !honest {
					until = until.Add(time.Hour)
				}
			}
			w.Header().Set("Retry-After", "1")
			w.WriteHeader(http.StatusTooManyRequests)
		}))
		code, stdout, stderr := command(t, append([]string{"load", "--audit", s.URL}, patient...)...)
		s.Close()
		want, text := CodeOK, "retry-after  TRUE"
		if !honest {
			want, text = CodeNo, "retry-after  WRONG"
		}
		if code != want || !strings.Contains(stdout, text) {
			t.Errorf("honest %t: exit code %d\n%s%s", honest, code, stdout, stderr)
		}
	}
}

// rateLimits is Envoy's rate limit service with 3 requests in a second.
type rateLimits struct {
	pb.UnimplementedRateLimitServiceServer
	early time.Duration // by how much it announces the reset too early

	mu   sync.Mutex
	from time.Time
	used uint32
}

func (s *rateLimits) ShouldRateLimit(_ context.Context, r *pb.RateLimitRequest) (*pb.RateLimitResponse, error) {
	const limit, period = 3, 3 * time.Second
	s.mu.Lock()
	defer s.mu.Unlock()
	now := time.Now()
	if now.Sub(s.from) >= period {
		s.from, s.used = now, 0
	}
	answer := &pb.RateLimitResponse{OverallCode: pb.RateLimitResponse_OVER_LIMIT}
	if s.used < limit && r.GetDomain() == "api" {
		s.used++
		answer.OverallCode = pb.RateLimitResponse_OK
	}
	answer.Statuses = []*pb.RateLimitResponse_DescriptorStatus{{
		Code: answer.OverallCode, CurrentLimit: &pb.RateLimitResponse_RateLimit{RequestsPerUnit: limit},
		LimitRemaining: limit - s.used, DurationUntilReset: durationpb.New(max(s.from.Add(period).Sub(now)-s.early, 0)),
	}}
	return answer, nil
}

// TestLoadAuditOfRateLimitService: what Envoy would be told is audited, and so is what it would be
// told wrongly.
func TestLoadAuditOfRateLimitService(t *testing.T) {
	t.Parallel()
	for _, early := range []time.Duration{0, 2 * time.Second} {
		l, err := net.Listen("tcp", "127.0.0.1:0")
		if err != nil {
			t.Fatal(err)
		}
		s := grpc.NewServer()
		pb.RegisterRateLimitServiceServer(s, &rateLimits{early: early})
		served := make(chan error)
		go func() { served <- s.Serve(l) }()
		code, stdout, stderr := command(t, append([]string{
			"load", "--audit", "--grpc", "--data", `{"domain": "api", "descriptors": [{"entries": [{"key": "user", "value": "anna"}]}]}`,
			"http://" + l.Addr().String() + pb.RateLimitService_ShouldRateLimit_FullMethodName,
		}, patient...)...)
		s.Stop()
		if err := <-served; err != nil {
			t.Error(err)
		}
		want, text := CodeOK, "reset        TRUE"
		if early > 0 {
			want, text = CodeNo, "reset        WRONG"
		}
		if code != want || !strings.Contains(stdout, text) || !strings.Contains(stdout, "the limit advertised is 3") {
			t.Errorf("%v too early: exit code %d\n%s%s", early, code, stdout, stderr)
		}
	}
}

// TestVerdictHint: what Headgate's own service answers over gRPC is audited as what others say in headers.
func TestVerdictHint(t *testing.T) {
	t.Parallel()
	for want, m := range map[string]*headgatev1.Verdict{
		"{0s false false [{10 7 3s 0s}]}":  {Allowed: true, Decisions: []*headgatev1.Decision{{Capacity: 10, Remaining: 7, ResetAfterMs: 3000}, {Capacity: 5, Shadow: true}}},
		"{1.5s true false [{10 0 5s 0s}]}": {RetryAfterMs: 1500, Decisions: []*headgatev1.Decision{{Capacity: 10, ResetAfterMs: 5000}}},
		"{0s true false []}":               {RetryAfterMs: -1},
	} {
		message, err := proto.Marshal(m)
		if err != nil {
			t.Fatal(err)
		}
		if h, err := verdictHint(message); err != nil || fmt.Sprint(h) != want {
			t.Errorf("got %v, %v, want %s", h, err, want)
		}
	}
	if h, err := verdictHint([]byte("no message")); err == nil {
		t.Errorf("what is no message says %v", h)
	}
}

// TestLoadAuditWithoutLimiter: an audit that finds no limiter is no success, or a test in CI would
// be green without one. One that says nothing is known by what it does.
func TestLoadAuditWithoutLimiter(t *testing.T) {
	t.Parallel()
	for _, limited := range []bool{false, true} {
		var mu sync.Mutex
		var next time.Time
		s := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
			mu.Lock()
			defer mu.Unlock()
			if now := time.Now(); limited && now.Before(next) {
				w.WriteHeader(http.StatusServiceUnavailable)
			} else {
				next = now.Add(200 * time.Millisecond)
			}
		}))
		code, stdout, stderr := command(t, append([]string{"load", "--audit", s.URL}, patient...)...)
		s.Close()
		want, text := CodeNo, "no request was denied"
		if limited {
			want, text = CodeOK, "were admitted and" // A busy machine may not see more.
		}
		if code != want || !strings.Contains(stdout+stderr, text) {
			t.Errorf("limited %t: exit code %d\n%s%s", limited, code, stdout, stderr)
		}
	}
}

// TestLoadLive: what stands on a terminal is drawn anew, and goes at the end.
func TestLoadLive(t *testing.T) {
	var b strings.Builder
	v := &loadView{w: &b, terminal: true}
	v.say("one")
	v.end()
	if got := b.String(); got != "headgate: one\n" {
		t.Errorf("got %q", got)
	}
	v.drawn = 4
	v.say("two")
	if want := fmt.Sprintf("\x1b[%dA\r\x1b[Jheadgate: two\n", 4); !strings.HasSuffix(b.String(), want) {
		t.Errorf("got %q", b.String())
	}
}
