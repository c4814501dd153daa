package httplimit_test

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"io"
	"net/http"
	"net/http/httptest"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/headgate/headgate"
	"github.com/headgate/headgate/flow"
	"github.com/headgate/headgate/flow/adaptive"
	"github.com/headgate/headgate/flow/permits"
	"github.com/headgate/headgate/flow/shed"
	"github.com/headgate/headgate/httplimit"
	"github.com/headgate/headgate/store/memory"
)

// spy is a gate that lets everything in until it has an error, and notes what it is told.
type spy struct {
	mu       sync.Mutex
	err      error
	asked    []flow.Request
	outcomes []flow.Outcome
	inUse    int
}

type spied struct {
	flow.Slot
	of *spy
}

func (s *spy) Acquire(ctx context.Context, r flow.Request) (flow.Permit, error) {
	return s.TryAcquire(ctx, r)
}

func (s *spy) TryAcquire(_ context.Context, r flow.Request) (flow.Permit, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.asked = append(s.asked, r)
	if s.err != nil {
		return flow.Permit{}, s.err
	}
	s.inUse++
	h := &spied{of: s}
	return h.Issue(h), nil
}

func (h *spied) GiveBack(o flow.Outcome) {
	h.of.mu.Lock()
	defer h.of.mu.Unlock()
	h.of.inUse--
	h.of.outcomes = append(h.of.outcomes, o)
}

func (h *spied) Bind(ctx context.Context, _ flow.Permit) context.Context { return ctx }

// told waits until the gate was told of that many ends, and returns them.
func (s *spy) told(t *testing.T, n int) []flow.Outcome {
	t.Helper()
	for end := time.Now().Add(30 * time.Second); ; time.Sleep(time.Millisecond) {
		s.mu.Lock()
		all := slices.Clone(s.outcomes)
		s.mu.Unlock()
		if len(all) >= n {
			return all
		}
		if time.Now().After(end) {
			t.Fatalf("the gate was told of %v, want %d ends", all, n)
		}
	}
}

func through(t testing.TB, gate flow.Gate, load httplimit.Load, options ...httplimit.Option) func(http.Handler) http.Handler {
	t.Helper()
	m, err := httplimit.New(nil, append(options, httplimit.Through(gate, load))...)
	if err != nil {
		t.Fatal(err)
	}
	return m
}

// What the gate learns of how requests end, over real connections.
func TestThroughLearns(t *testing.T) {
	t.Parallel()
	release := make(chan struct{})
	defer close(release)
	status := func(n int) http.HandlerFunc {
		return func(w http.ResponseWriter, _ *http.Request) { w.WriteHeader(n) }
	}
	for name, c := range map[string]struct {
		handler http.HandlerFunc
		want    flow.Outcome
		cancel  bool
	}{
		"nothing written": {func(http.ResponseWriter, *http.Request) {}, flow.Success, false},
		"200":             {func(w http.ResponseWriter, _ *http.Request) { _, _ = io.WriteString(w, "hello") }, flow.Success, false},
		"304":             {status(304), flow.Success, false},
		"404":             {status(404), flow.Ignore, false},
		"429":             {status(429), flow.Ignore, false},
		"500":             {status(500), flow.Ignore, false},
		"503":             {status(503), flow.Overload, false},
		"504":             {status(504), flow.Overload, false},
		"panic":           {func(http.ResponseWriter, *http.Request) { panic(http.ErrAbortHandler) }, flow.Ignore, false},
		"panic after 200": {func(w http.ResponseWriter, _ *http.Request) { w.WriteHeader(200); panic(http.ErrAbortHandler) }, flow.Ignore, false},
		"handler knows": {func(w http.ResponseWriter, r *http.Request) {
			httplimit.Done(r.Context(), flow.Overload)
			w.WriteHeader(500)
		}, flow.Overload, false},
		"flushed":             {func(w http.ResponseWriter, _ *http.Request) { _, _ = io.WriteString(w, "a"); w.(http.Flusher).Flush() }, flow.Ignore, false},
		"cancelled":           {func(_ http.ResponseWriter, r *http.Request) { <-r.Context().Done() }, flow.Canceled, true},
		"server-sent events":  {stream("text/event-stream; charset=utf-8", release), flow.Ignore, false},
		"hijacked":            {hijack(release), flow.Ignore, false},
		"slow to read a body": {func(_ http.ResponseWriter, r *http.Request) { _, _ = io.Copy(io.Discard, r.Body) }, flow.Ignore, false},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			gate := &spy{}
			s := httptest.NewServer(through(t, gate, httplimit.Load{})(c.handler))
			// A handler of a stream goes on until the test ends.
			defer s.CloseClientConnections()
			ctx, cancel := context.WithCancel(t.Context())
			defer cancel()
			var body io.Reader
			if name == "slow to read a body" {
				body = &slow{left: 5}
			}
			r, err := http.NewRequestWithContext(ctx, http.MethodPost, s.URL, body)
			if err != nil {
				t.Fatal(err)
			}
			go func() {
				if res, err := s.Client().Do(r); err == nil {
					defer res.Body.Close()
					_, _ = io.Copy(io.Discard, res.Body)
				}
			}()
			if c.cancel {
				for gate.held() == 0 {
					time.Sleep(time.Millisecond)
				}
				cancel()
			}
			if got := gate.told(t, 1); len(got) != 1 || got[0] != c.want || gate.held() != 0 {
				t.Errorf("the gate was told %v, and %d are in progress; want %v", got, gate.held(), c.want)
			}
		})
	}
}

func (s *spy) held() int {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.inUse
}

// slow is a body whose client takes its time.
type slow struct{ left int }

func (s *slow) Read(p []byte) (int, error) {
	if s.left--; s.left < 0 {
		return 0, io.EOF
	}
	time.Sleep(10 * time.Millisecond)
	p[0] = 'x'
	return 1, nil
}

func stream(kind string, until chan struct{}) http.HandlerFunc {
	return func(w http.ResponseWriter, r *http.Request) {
		w.Header().Set("Content-Type", kind)
		w.WriteHeader(http.StatusOK)
		_ = http.NewResponseController(w).Flush()
		select {
		case <-until:
		case <-r.Context().Done():
		}
	}
}

func hijack(until chan struct{}) http.HandlerFunc {
	return func(w http.ResponseWriter, _ *http.Request) {
		conn, rw, err := http.NewResponseController(w).Hijack()
		if err != nil {
			panic(err)
		}
		defer conn.Close()
		_, _ = rw.WriteString("HTTP/1.1 101 Switching Protocols\r\nConnection: Upgrade\r\nUpgrade: x\r\n\r\n")
		_ = rw.Flush()
		go func() { <-until; _ = conn.Close() }()
		_, _ = bufio.NewReader(conn).ReadByte()
	}
}

// Class and tenant come from the service, or from peers that are trusted.
func TestThroughBelievesPeersOnly(t *testing.T) {
	t.Parallel()
	describe := func(*http.Request) flow.Request { return flow.Request{Tenant: "mine", Class: flow.SheddablePlus} }
	for _, c := range []struct {
		name, remote string
		load         httplimit.Load
		header       http.Header
		want         flow.Request
	}{
		{"nothing is known", "10.0.0.1:1", httplimit.Load{}, claims("critical_plus", "theirs"), flow.Request{}},
		{"the service", "10.0.0.1:1", httplimit.Load{Describe: describe}, claims("critical_plus", "theirs"), describe(nil)},
		{"a client", "192.0.2.1:1", httplimit.Load{Describe: describe, Peers: true}, claims("critical_plus", "theirs"), describe(nil)},
		{"a peer", "10.0.0.1:1", httplimit.Load{Describe: describe, Peers: true}, claims("critical_plus", "theirs"), flow.Request{Tenant: "theirs", Class: flow.CriticalPlus}},
		{"a peer that says nothing", "10.0.0.1:1", httplimit.Load{Describe: describe, Peers: true}, nil, describe(nil)},
		{"a peer with an unknown class", "10.0.0.1:1", httplimit.Load{Describe: describe, Peers: true}, claims("urgent", ""), describe(nil)},
		{
			"a peer that hands on two", "10.0.0.1:1",
			httplimit.Load{Describe: describe, Peers: true},
			http.Header{httplimit.ClassHeader: {"critical_plus", "sheddable"}, httplimit.TenantHeader: {"a", "b"}},
			describe(nil),
		},
		{"a long tenant", "10.0.0.1:1", httplimit.Load{Peers: true}, claims("", strings.Repeat("x", 257)), flow.Request{}},
	} {
		gate := &spy{}
		h := through(t, gate, c.load, httplimit.TrustProxies(httplimit.XForwardedFor, "10.0.0.0/8"))(http.NotFoundHandler())
		r := httptest.NewRequest(http.MethodGet, "/", nil)
		r.RemoteAddr, r.Header = c.remote, c.header
		h.ServeHTTP(httptest.NewRecorder(), r)
		if len(gate.asked) != 1 || gate.asked[0] != c.want {
			t.Errorf("%s: the gate was asked %+v, want %+v", c.name, gate.asked, c.want)
		}
	}
}

func claims(class, tenant string) http.Header {
	return http.Header{httplimit.ClassHeader: {class}, httplimit.TenantHeader: {tenant}}
}

// How rejections are answered.
func TestThroughRefuses(t *testing.T) {
	t.Parallel()
	rule := headgate.MustRule("mail", headgate.Per(1, time.Hour))
	limit := rule.Limits()[0]
	for _, c := range []struct {
		name    string
		err     error
		options []httplimit.Option
		status  int
		marked  bool
		least   int // of Retry-After
	}{
		{"shed", &flow.Rejection{Gate: "db", RetryAfter: 4 * time.Second}, nil, 503, true, 4},
		{"shed, and nobody knows for how long", &flow.Rejection{Gate: "db"}, nil, 503, true, 1},
		{"retries are worth it", &flow.Rejection{Gate: "db", RetryAfter: time.Second, Retry: true}, nil, 503, false, 1},
		{"never", &flow.Rejection{Gate: "db", Reason: flow.ReasonTooLarge, RetryAfter: headgate.Never}, nil, 503, true, 0},
		{"a rate", &flow.Rejection{
			Gate: "db", Reason: flow.ReasonRate, RetryAfter: time.Minute, Retry: true,
			Cause: &headgate.DeniedError{Decision: headgate.Decision{Rule: rule, Limit: &limit, RetryAfter: time.Minute}},
		}, nil, 429, false, 60},
		{"the client has gone", context.Canceled, nil, 200, false, 0}, // its context has not ended
		{"the gate's store fails, open", errors.New("no store"), nil, 200, false, 0},
		{"the gate's store fails, closed", errors.New("no store"), []httplimit.Option{httplimit.OnStoreError(httplimit.FailClosed)}, 503, false, 5},
		{"a request that cannot be", &headgate.InvalidError{}, nil, 500, false, 0},
	} {
		gate := &spy{err: c.err}
		var shed *flow.Rejection
		served := 0
		h := through(t, gate, httplimit.Load{}, append(c.options, httplimit.Observe(httplimit.Hooks{
			Shed: func(_ *http.Request, r *flow.Rejection) { shed = r },
		}))...)(http.HandlerFunc(func(http.ResponseWriter, *http.Request) { served++ }))
		w := httptest.NewRecorder()
		h.ServeHTTP(w, httptest.NewRequest(http.MethodGet, "/", nil))
		after, _ := strconv.Atoi(w.Header().Get("Retry-After"))
		marked := w.Header().Get(httplimit.RetryHeader) == "no" && w.Header().Get("X-Envoy-Ratelimited") == "true"
		if w.Code != c.status || marked != c.marked || after < c.least || (c.least == 0) != (after == 0) || after > c.least+max(2, c.least/2)+1 {
			t.Errorf("%s: %d, %v; want %d, marked %v, and to come back after %d s", c.name, w.Code, w.Header(), c.status, c.marked, c.least)
		}
		if (served == 1) != (c.status == 200) {
			t.Errorf("%s: the handler was called %d times", c.name, served)
		}
		if want, _ := errors.AsType[*flow.Rejection](c.err); shed != want {
			t.Errorf("%s: the hook was told %v", c.name, shed)
		}
		if c.status < 500 || c.name == "a request that cannot be" {
			continue
		}
		var p httplimit.Problem
		if err := json.Unmarshal(w.Body.Bytes(), &p); err != nil || p.Type != httplimit.TypeReducedCapacity || p.Status != 503 {
			t.Errorf("%s: the problem is %s, %v", c.name, w.Body, err)
		}
	}
}

// What the gate refuses is not charged, and what the limits deny gives its permit back. A
// request that waits for a leaky bucket is not in progress.
func TestThroughAndLimits(t *testing.T) {
	t.Parallel()
	store := memory.New()
	rule := headgate.MustRule("r", headgate.Sliding(2, time.Hour))
	gate := &spy{}
	m, err := httplimit.New(store, httplimit.Limit(httplimit.Everyone(), rule), httplimit.Through(gate, httplimit.Load{
		Exempt: func(r *http.Request) bool { return r.URL.Path == "/healthz" },
	}))
	if err != nil {
		t.Fatal(err)
	}
	h := m(http.HandlerFunc(func(http.ResponseWriter, *http.Request) {}))
	get := func(path string) int {
		w := httptest.NewRecorder()
		h.ServeHTTP(w, httptest.NewRequest(http.MethodGet, path, nil))
		return w.Code
	}
	gate.err = &flow.Rejection{Gate: "db"}
	if code := get("/"); code != 503 || left(t, store, rule) != 2 {
		t.Errorf("a request that was shed: %d, %d units left of 2", code, left(t, store, rule))
	}
	if code := get("/healthz"); code != 200 || left(t, store, rule) != 1 {
		t.Errorf("a health check: %d, %d units left of 1", code, left(t, store, rule))
	}
	gate.err = nil
	if get("/") != 200 || get("/") != 429 {
		t.Error("want one request more to fit")
	}
	if want := []flow.Outcome{flow.Success, flow.Unused}; !slices.Equal(gate.outcomes, want) || len(gate.asked) != 3 {
		t.Errorf("the gate was asked %d times and told %v, want %v", len(gate.asked), gate.outcomes, want)
	}

	slowly := headgate.MustRule("leaky", headgate.Limit{Algorithm: headgate.LeakyBucket, Count: 100, Period: time.Second, Burst: 10})
	still := memory.New(memory.Clock(func() int64 { return 1_700_000_000_000_000 }))
	m, err = httplimit.New(still, httplimit.Limit(httplimit.Everyone(), slowly), httplimit.Through(gate, httplimit.Load{}))
	if err != nil {
		t.Fatal(err)
	}
	h = m(http.HandlerFunc(func(http.ResponseWriter, *http.Request) {}))
	gate.outcomes = nil
	for range 2 {
		if code := get("/"); code != 200 {
			t.Errorf("a request that fits the bucket: %d", code)
		}
	}
	if want := []flow.Outcome{flow.Success, flow.Unused, flow.Success}; !slices.Equal(gate.outcomes, want) {
		t.Errorf("the gate was told %v, want %v", gate.outcomes, want)
	}
}

// Real gates: what is too much is refused, in shadow it passes, and all permits come back.
func TestThroughRealGates(t *testing.T) {
	t.Parallel()
	one, err := permits.New(permits.Config{Name: "one", Limit: 1, Shared: true})
	if err != nil {
		t.Fatal(err)
	}
	knee, err := adaptive.NewKnee(adaptive.KneeConfig{Initial: 1, Max: 1})
	if err != nil {
		t.Fatal(err)
	}
	limit := adaptive.New("limit", knee)
	queue, err := shed.New(limit, shed.Config{Name: "queue", Interval: time.Millisecond})
	if err != nil {
		t.Fatal(err)
	}
	for name, c := range map[string]struct {
		gate flow.Gate
		want int
	}{"permits": {one, 503}, "adaptive with a queue": {queue, 503}, "shadow": {flow.Shadow(one), 200}} {
		entered, leave := make(chan struct{}), make(chan struct{})
		var self http.Handler
		self = through(t, c.gate, httplimit.Load{})(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			if r.URL.Path != "/slow" {
				return
			}
			// A request that leads back to its own gate does not wait for itself.
			inner := httptest.NewRecorder()
			self.ServeHTTP(inner, httptest.NewRequestWithContext(r.Context(), http.MethodGet, "/inner", nil))
			if inner.Code != http.StatusOK {
				t.Errorf("%s: within itself %d", name, inner.Code)
			}
			close(entered)
			<-leave
		}))
		var all sync.WaitGroup
		all.Go(func() {
			self.ServeHTTP(httptest.NewRecorder(), httptest.NewRequest(http.MethodGet, "/slow", nil))
		})
		<-entered
		w := httptest.NewRecorder()
		self.ServeHTTP(w, httptest.NewRequest(http.MethodGet, "/", nil))
		if w.Code != c.want {
			t.Errorf("%s: the second request is answered with %d, want %d", name, w.Code, c.want)
		}
		close(leave)
		all.Wait()
		w = httptest.NewRecorder()
		self.ServeHTTP(w, httptest.NewRequest(http.MethodGet, "/", nil))
		if w.Code != http.StatusOK {
			t.Errorf("%s: %d when nothing is in progress", name, w.Code)
		}
	}
	if one.Stats().InUse != 0 || queue.Stats().InUse != 0 {
		t.Error("permits were not given back")
	}
}

func TestThroughIsChecked(t *testing.T) {
	t.Parallel()
	gate := flow.Chain()
	for name, options := range map[string][]httplimit.Option{
		"no gate":                  {httplimit.Through(nil, httplimit.Load{})},
		"two gates":                {httplimit.Through(gate, httplimit.Load{}), httplimit.Through(gate, httplimit.Load{})},
		"peers, and no proxies":    {httplimit.Through(gate, httplimit.Load{Peers: true})},
		"limits without a store":   {httplimit.Through(gate, httplimit.Load{}), httplimit.Limit(httplimit.Everyone(), headgate.MustRule("r", headgate.PerSecond(1)))},
		"neither limits nor gates": {},
	} {
		if _, err := httplimit.New(nil, options...); !errors.Is(err, headgate.ErrInvalid) {
			t.Errorf("%s: %v", name, err)
		}
	}
}
