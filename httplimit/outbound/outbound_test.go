package outbound

import (
	"bytes"
	"container/list"
	"context"
	"errors"
	"io"
	"math/rand/v2"
	"net/http"
	"net/http/httptest"
	"reflect"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/headgate/headgate"
	"github.com/headgate/headgate/flow"
	"github.com/headgate/headgate/flow/adaptive"
	"github.com/headgate/headgate/flow/permits"
	"github.com/headgate/headgate/store/memory"
)

func TestReadHint(t *testing.T) {
	t.Parallel()
	now := time.Date(2026, 11, 22, 10, 0, 0, 0, time.UTC)
	epoch := strconv.FormatInt(now.Unix()+60, 10)
	for name, c := range map[string]struct {
		status int
		header string
		want   Hint
	}{
		"nothing":             {200, "", Hint{}},
		"seconds":             {429, "Retry-After: 7", Hint{Wait: 7 * time.Second, Limited: true}},
		"a fraction, Shopify": {429, "Retry-After: 2.5\nX-Shopify-Shop-Api-Call-Limit: 40/40", Hint{Wait: 2500 * time.Millisecond, Limited: true, Windows: []Window{{40, 0, 20 * time.Second, 0}}}},
		"milliseconds":        {429, "Retry-After: 7\nRetry-After-Ms: 6500", Hint{Wait: 6500 * time.Millisecond, Limited: true}},
		"a date":              {503, "Retry-After: Sun, 22 Nov 2026 10:00:30 GMT", Hint{Wait: 30 * time.Second}},
		"a date by the answer's clock": {
			503, "Date: Sun, 22 Nov 2026 09:00:00 GMT\nRetry-After: Sun, 22 Nov 2026 09:00:30 GMT",
			Hint{Wait: 30 * time.Second},
		},
		"a date that is over": {503, "Retry-After: Sun, 22 Nov 2025 10:00:30 GMT", Hint{}},
		"a redirect":          {301, "Retry-After: 7", Hint{}},
		"far too long":        {429, "Retry-After: 1e30", Hint{Wait: longest, Limited: true}},
		"not a time":          {429, "Retry-After: -5\nX-RateLimit-Remaining: -1", Hint{Limited: true}},
		"draft 11": {
			200, "RateLimit-Policy: \"burst\";q=100;w=60, \"daily\";q=1000;w=86400\nRateLimit: \"burst\";r=50;t=30, \"daily\";r=7;t=3600",
			Hint{Windows: []Window{{100, 50, 30 * time.Second, time.Minute}, {1000, 7, time.Hour, 24 * time.Hour}}},
		},
		"draft 7":       {200, "RateLimit: limit=10, remaining=4, reset=5", Hint{Windows: []Window{{10, 4, 5 * time.Second, 0}}}},
		"triple":        {200, "RateLimit-Limit: 10\nRateLimit-Remaining: 4\nRateLimit-Reset: 5", Hint{Windows: []Window{{10, 4, 5 * time.Second, 0}}}},
		"GitHub":        {403, "X-RateLimit-Limit: 60\nX-RateLimit-Remaining: 0\nX-RateLimit-Reset: " + epoch, Hint{Limited: true, Windows: []Window{{60, 0, time.Minute, 0}}}},
		"GitHub, again": {403, "Retry-After: 60", Hint{Wait: time.Minute, Limited: true}},
		"forbidden":     {403, "X-RateLimit-Limit: 60\nX-RateLimit-Remaining: 9\nX-RateLimit-Reset: " + epoch, Hint{Windows: []Window{{60, 9, time.Minute, 0}}}},
		"milliseconds since 1970": {
			200, "X-RateLimit-Remaining: 3\nX-RateLimit-Reset: " + epoch + "000",
			Hint{Windows: []Window{{-1, 3, time.Minute, 0}}},
		},
		"durations":       {200, "X-RateLimit-Limit-Requests: 60\nX-RateLimit-Remaining-Requests: 5\nX-RateLimit-Reset-Requests: 1m30s", Hint{Windows: []Window{{60, 5, 90 * time.Second, 0}}}},
		"Stripe":          {429, "Stripe-Should-Retry: false", Hint{Limited: true, NoRetry: true}},
		"Headgate's mark": {503, "Headgate-Retry: no\nRetry-After: 1", Hint{Wait: time.Second, NoRetry: true}},
	} {
		h := make(http.Header)
		for line := range strings.Lines(c.header) {
			k, v, _ := strings.Cut(strings.TrimSpace(line), ": ")
			h.Add(k, v)
		}
		if got := ReadHint(c.status, h, now); !reflect.DeepEqual(got, c.want) {
			t.Errorf("%s: %+v, want %+v", name, got, c.want)
		}
	}
}

func FuzzReadHint(f *testing.F) {
	f.Add("7", `"a";r=1;t=2`, `"a";q=3`, "5", "3/40")
	f.Fuzz(func(t *testing.T, after, limit, quota, reset, shopify string) {
		h := http.Header{
			"Retry-After": {after}, "Ratelimit": {limit}, "Ratelimit-Policy": {quota}, "X-Ratelimit-Remaining": {after},
			"X-Ratelimit-Reset": {reset}, "X-Shopify-Shop-Api-Call-Limit": {shopify},
		}
		hint := ReadHint(429, h, time.Now())
		if hint.Wait < 0 || hint.Wait > longest || len(hint.Windows) > maxWindows {
			t.Errorf("%+v", hint)
		}
		for _, w := range hint.Windows {
			if w.Remaining < 0 || w.Limit < -1 || w.Reset < 0 || w.Reset > longest {
				t.Errorf("%+v", w)
			}
		}
	})
}

// partnerServer is a partner with the handler.
func partnerServer(t testing.TB, h http.HandlerFunc) *httptest.Server {
	t.Helper()
	s := httptest.NewServer(h)
	t.Cleanup(s.Close)
	return s
}

func mustNew(t testing.TB, store headgate.Store, c Config) *http.Client {
	t.Helper()
	base := &http.Transport{MaxIdleConnsPerHost: 100}
	t.Cleanup(base.CloseIdleConnections)
	tr, err := New(store, base, c)
	if err != nil {
		t.Fatal(err)
	}
	return &http.Client{Transport: tr}
}

// do makes a call and reads its answer.
func do(t testing.TB, c *http.Client, method, url string, body io.Reader) (*http.Response, string, error) {
	t.Helper()
	r, err := http.NewRequestWithContext(t.Context(), method, url, body)
	if err != nil {
		t.Fatal(err)
	}
	res, err := c.Do(r)
	if err != nil {
		return nil, "", err
	}
	defer res.Body.Close()
	text, err := io.ReadAll(res.Body)
	if err != nil {
		t.Fatal(err)
	}
	return res, string(text), nil
}

// At 100 % failure, at once, there are at most 1.1 attempts for each call, and the floor.
func TestRetriesDoNotAmplify(t *testing.T) {
	t.Parallel()
	for name, h := range map[string]http.HandlerFunc{
		"503":                 func(w http.ResponseWriter, _ *http.Request) { w.WriteHeader(503) },
		"429":                 func(w http.ResponseWriter, _ *http.Request) { w.WriteHeader(429) },
		"a broken connection": func(http.ResponseWriter, *http.Request) { panic(http.ErrAbortHandler) },
	} {
		var attempts atomic.Int64
		s := partnerServer(t, func(w http.ResponseWriter, r *http.Request) { attempts.Add(1); h(w, r) })
		// As a POST with a key it is sent by us alone: net/http repeats a GET by itself.
		c := mustNew(t, nil, Config{Backoff: time.Microsecond})
		const calls = 500
		for range calls {
			r, _ := http.NewRequestWithContext(t.Context(), http.MethodPut, s.URL, strings.NewReader("x"))
			if res, err := c.Do(r); err == nil {
				_ = res.Body.Close()
			}
		}
		if n := attempts.Load(); n > calls*11/10+10 {
			t.Errorf("%s: %d attempts for %d calls", name, n, calls)
		}
		t.Logf("%s: %d attempts for %d calls", name, attempts.Load(), calls)
	}
}

// At 5 % random failure, nearly all calls succeed.
func TestRetriesHelp(t *testing.T) {
	t.Parallel()
	random := rand.New(rand.NewPCG(1, 2))
	var mu sync.Mutex
	s := partnerServer(t, func(w http.ResponseWriter, _ *http.Request) {
		mu.Lock()
		defer mu.Unlock()
		if random.Float64() < 0.05 {
			w.WriteHeader(503)
		}
	})
	c := mustNew(t, nil, Config{Backoff: time.Microsecond})
	good := 0
	const calls = 5000
	for range calls {
		if res, _, err := do(t, c, http.MethodGet, s.URL, nil); err == nil && res.StatusCode == 200 {
			good++
		}
	}
	if good < calls*999/1000 {
		t.Errorf("%d of %d calls succeeded", good, calls)
	}
	t.Logf("%d of %d calls succeeded", good, calls)
}

// Five layers with three tries each, before a service that fails: those above do not retry
// what those below have given up. With nearly half of the calls failing nobody is throttled,
// so that it is the marks that hold retries back.
func TestFiveLayers(t *testing.T) {
	t.Parallel()
	for _, share := range []float64{1, 0.45} {
		var attempts atomic.Int64
		random := rand.New(rand.NewPCG(3, 4))
		next := partnerServer(t, func(w http.ResponseWriter, _ *http.Request) {
			attempts.Add(1)
			if random.Float64() < share {
				w.WriteHeader(503)
			}
		}).URL
		for range 4 {
			to, c := next, mustNew(t, nil, Config{Backoff: time.Microsecond, Floor: -1})
			next = partnerServer(t, func(w http.ResponseWriter, _ *http.Request) {
				res, _, err := do(t, c, http.MethodGet, to, nil)
				if err != nil { // The layer throttles itself.
					w.Header().Set("Headgate-Retry", "no")
					w.WriteHeader(503)
					return
				}
				w.Header()["Headgate-Retry"] = res.Header["Headgate-Retry"]
				w.WriteHeader(res.StatusCode)
			}).URL
		}
		c := mustNew(t, nil, Config{Backoff: time.Microsecond, Floor: -1})
		const calls = 500
		for range calls {
			_, _, _ = do(t, c, http.MethodGet, next, nil)
		}
		if n := attempts.Load(); n > calls*11/10 {
			t.Errorf("%v of the attempts fail: %d attempts for %d calls", share, n, calls)
		}
		t.Logf("%v of the attempts fail: %d attempts for %d calls", share, attempts.Load(), calls)
	}
}

// Who may be retried, with which body, and what the caller gets.
func TestRetry(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		name, method, key string
		body              io.Reader
		mark              string
		want              int
	}{
		{"GET", "GET", "", nil, "", 3},
		{"PUT with a body", "PUT", "", strings.NewReader("hello"), "", 3},
		{"PUT with a body that is read once", "PUT", "", io.MultiReader(strings.NewReader("hello")), "", 1},
		{"POST", "POST", "", strings.NewReader("hello"), "", 1},
		{"POST with a key", "POST", "k", bytes.NewReader([]byte("hello")), "", 3},
		{"marked", "GET", "", nil, "no", 1},
	} {
		var bodies []string
		s := partnerServer(t, func(w http.ResponseWriter, r *http.Request) {
			text, _ := io.ReadAll(r.Body)
			bodies = append(bodies, string(text))
			if c.mark != "" {
				w.Header().Set("Headgate-Retry", c.mark)
			}
			w.WriteHeader(503)
			_, _ = io.WriteString(w, "busy")
		})
		r, err := http.NewRequestWithContext(t.Context(), c.method, s.URL, c.body)
		if err != nil {
			t.Fatal(err)
		}
		if c.key != "" {
			r.Header.Set("Idempotency-Key", c.key)
		}
		res, err := mustNew(t, nil, Config{Backoff: time.Microsecond}).Do(r)
		if err != nil {
			t.Fatal(err)
		}
		text, _ := io.ReadAll(res.Body)
		_ = res.Body.Close()
		if len(bodies) != c.want || string(text) != "busy" {
			t.Errorf("%s: %d attempts, want %d; the answer is %q", c.name, len(bodies), c.want, text)
		}
		if got := res.Header.Get("Headgate-Retry"); (got == "no") != (c.want == 3 || c.mark != "") {
			t.Errorf("%s: the mark is %q", c.name, got)
		}
		for _, b := range bodies {
			if c.body != nil && b != "hello" {
				t.Errorf("%s: the bodies were %q", c.name, bodies)
			}
		}
	}
}

// A pause that one process was asked for holds for all, and a call without time fails at once.
func TestPauseIsShared(t *testing.T) {
	t.Parallel()
	var attempts atomic.Int64
	s := partnerServer(t, func(w http.ResponseWriter, _ *http.Request) {
		attempts.Add(1)
		w.Header().Set("Retry-After", "60")
		w.WriteHeader(429)
	})
	store := memory.New()
	var paused []time.Duration
	first := mustNew(t, store, Config{Hooks: Hooks{Paused: func(_ string, d time.Duration) { paused = append(paused, d) }}})
	second := mustNew(t, store, Config{MaxWait: time.Second})
	res, _, err := do(t, first, http.MethodGet, s.URL, nil)
	if err != nil || res.StatusCode != 429 || len(paused) != 1 || paused[0] != time.Minute {
		t.Fatalf("%v, %v, paused %v", res, err, paused)
	}
	for name, c := range map[string]*http.Client{"the one that was told": first, "another": second} {
		began := time.Now()
		_, _, err := do(t, c, http.MethodGet, s.URL, nil)
		denied, ok := errors.AsType[*headgate.DeniedError](err)
		if !ok || denied.Decision.RetryAfter < 50*time.Second || denied.Decision.RetryAfter > 67*time.Second {
			t.Errorf("%s: %v after %v", name, err, time.Since(began))
		}
	}
	// Three that are told the same do not make three minutes of it.
	for range 3 {
		third := mustNew(t, store, Config{})
		_, _, _ = do(t, third, http.MethodGet, s.URL, nil)
	}
	if n := attempts.Load(); n != 1 {
		t.Errorf("%d attempts", n)
	}
}

// A call waits for its limits while there is time, and all transports share them.
func TestLimitsAreShared(t *testing.T) {
	t.Parallel()
	var attempts atomic.Int64
	s := partnerServer(t, func(http.ResponseWriter, *http.Request) { attempts.Add(1) })
	store := memory.New()
	rule := headgate.MustRule("partner", headgate.Sliding(3, time.Hour))
	limits := []Limit{{Rules: []*headgate.Rule{rule}}}
	for i := range 5 {
		_, _, err := do(t, mustNew(t, store, Config{Limits: limits}), http.MethodGet, s.URL, nil)
		if errors.Is(err, headgate.ErrDenied) != (i >= 3) {
			t.Errorf("call %d: %v", i+1, err)
		}
	}
	if attempts.Load() != 3 {
		t.Errorf("%d attempts", attempts.Load())
	}
	quick := headgate.MustRule("quick", headgate.Limit{Count: 20, Period: time.Second, Burst: 1})
	waited := 0
	c := mustNew(t, memory.New(), Config{Limits: []Limit{{Key: func(r *http.Request) string { return r.Header.Get("Account") }, Rules: []*headgate.Rule{quick}}}, Hooks: Hooks{Waited: func(*http.Request, time.Duration) { waited++ }}})
	for range 5 {
		r, _ := http.NewRequestWithContext(t.Context(), http.MethodGet, s.URL, nil)
		r.Header.Set("Account", "a")
		res, err := c.Do(r)
		if err != nil {
			t.Fatal(err)
		}
		_ = res.Body.Close()
	}
	if attempts.Load() != 8 {
		t.Errorf("%d attempts, %d waits", attempts.Load(), waited)
	}
}

// Calls are spread before the partner has to refuse.
func TestSlowsDown(t *testing.T) {
	t.Parallel()
	p := newPartner(nil, nil, false)
	now := time.Now()
	p.heed(&Hint{Windows: []Window{{Limit: 100, Remaining: 50, Reset: time.Minute}}}, now, time.Hour)
	for range 3 {
		if wait := p.due(now); wait != 0 {
			t.Errorf("with half of the limit left, a call waits for %v", wait)
		}
		p.take(new(call), now)
	}
	p.heed(&Hint{Windows: []Window{{Limit: 100, Remaining: 5, Reset: time.Minute}}}, now, time.Hour)
	if wait := p.due(now); wait != 0 {
		t.Errorf("with 5 of 100 left, the first call waits for %v", wait)
	}
	p.take(new(call), now)
	if wait := p.due(now); wait != 10*time.Second {
		t.Errorf("with 5 of 100 left, the second call waits for %v", wait)
	}
	if pause, _ := p.heed(&Hint{Windows: []Window{{Limit: 100, Remaining: 0, Reset: time.Minute}}}, now, 30*time.Second); pause != 30*time.Second {
		t.Errorf("nothing left: a pause of %v", pause)
	}
	if wait := p.due(now); wait != 30*time.Second {
		t.Errorf("in a pause of 30s, a call waits for %v", wait)
	}
	// Not all go in the moment in which it ends.
	for range 20 {
		p := newPartner(nil, nil, false)
		p.heed(&Hint{Wait: 30 * time.Second}, now, time.Minute)
		end := now.Add(30 * time.Second)
		if wait := p.due(end); wait < 0 || wait > 1500*time.Millisecond {
			t.Errorf("after a pause of 30s, a call waits for %v", wait)
		}
		if wait := p.due(now.Add(31501 * time.Millisecond)); wait != 0 {
			t.Errorf("1.5s after a pause of 30s, a call waits for %v", wait)
		}
	}
}

// A quota for a month, of which little is left, does not stop calls for longer than a pause.
func TestSlowsDownWithinBounds(t *testing.T) {
	t.Parallel()
	for _, w := range []Window{{Limit: 1000, Remaining: 150, Reset: 20 * 24 * time.Hour}, {Limit: -1, Remaining: 1, Reset: longest}} {
		p := newPartner(nil, nil, false)
		now := time.Now()
		p.heed(&Hint{Windows: []Window{w}}, now, 5*time.Minute)
		p.take(new(call), now)
		if wait := p.due(now); wait < 4*time.Minute || wait > 5*time.Minute {
			t.Errorf("%+v: the second call waits for %v", w, wait)
		}
	}
}

// Bodies can be read after the answer, whatever ends the attempts.
func TestTimeoutsAndHedging(t *testing.T) {
	t.Parallel()
	var attempts atomic.Int64
	release := make(chan struct{})
	s := partnerServer(t, func(w http.ResponseWriter, r *http.Request) {
		if attempts.Add(1) == 1 {
			select {
			case <-release:
			case <-r.Context().Done():
			}
			return
		}
		_, _ = io.WriteString(w, "first half, ")
		_ = http.NewResponseController(w).Flush()
		time.Sleep(20 * time.Millisecond)
		_, _ = io.WriteString(w, "second half")
	})
	t.Cleanup(func() { close(release) })
	estimator, err := adaptive.NewKnee(adaptive.KneeConfig{})
	if err != nil {
		t.Fatal(err)
	}
	gate := adaptive.New("partner", estimator)
	c := mustNew(t, nil, Config{Hedge: time.Millisecond, Timeout: 30 * time.Second, TryTimeout: 20 * time.Second, Gate: func(string) flow.Gate { return gate }})
	res, text, err := do(t, c, http.MethodGet, s.URL, nil)
	if err != nil || res.StatusCode != 200 || text != "first half, second half" {
		t.Errorf("hedged: %q, %v", text, err)
	}
	for end := time.Now().Add(time.Minute); gate.Stats().InUse > 0 && time.Now().Before(end); {
		time.Sleep(time.Millisecond)
	}
	// The gate does not take the attempt that has lost for a caller who has left.
	if done := gate.Stats().Done; done[flow.Success] != 1 || done[flow.Ignore] != 1 {
		t.Errorf("the gate was told %v", done)
	}
	attempts.Store(0)
	c = mustNew(t, nil, Config{TryTimeout: 3 * time.Second, Backoff: time.Microsecond, Tries: 10})
	if _, text, err = do(t, c, http.MethodGet, s.URL, nil); err != nil || text != "first half, second half" {
		t.Errorf("with a time for each try: %q, %v", text, err)
	}
	attempts.Store(0)
	c = mustNew(t, nil, Config{Timeout: 20 * time.Millisecond})
	if _, _, err := do(t, c, http.MethodGet, s.URL, nil); !errors.Is(err, context.DeadlineExceeded) {
		t.Errorf("with a time for all: %v", err)
	}
}

// A gate for each partner: its permits come back, and what it refuses is not sent.
func TestGate(t *testing.T) {
	t.Parallel()
	s := partnerServer(t, func(w http.ResponseWriter, _ *http.Request) { _, _ = io.WriteString(w, "hello") })
	gate, err := permits.New(permits.Config{Name: "partner", Limit: 1, Shared: true})
	if err != nil {
		t.Fatal(err)
	}
	c := mustNew(t, nil, Config{Gate: func(string) flow.Gate { return gate }})
	for range 3 {
		if _, text, err := do(t, c, http.MethodGet, s.URL, nil); err != nil || text != "hello" {
			t.Errorf("%q, %v", text, err)
		}
	}
	p, err := gate.TryAcquire(t.Context(), flow.Request{})
	if err != nil {
		t.Fatalf("permits were not given back: %v", err)
	}
	if _, _, err := do(t, c, http.MethodGet, s.URL, nil); !errors.Is(err, flow.ErrShed) {
		t.Errorf("with a full gate: %v", err)
	}
	p.Done(flow.Ignore)
}

// broken is a store that does not answer.
type broken struct{}

func (broken) Take(context.Context, headgate.Op, []headgate.Check, []headgate.Decision) ([]headgate.Decision, error) {
	return nil, headgate.ErrUnavailable
}

func TestStoreFails(t *testing.T) {
	t.Parallel()
	s := partnerServer(t, func(http.ResponseWriter, *http.Request) {})
	told := 0
	hooks := Hooks{Failed: func(*http.Request, error) { told++ }}
	if _, _, err := do(t, mustNew(t, broken{}, Config{Hooks: hooks}), http.MethodGet, s.URL, nil); err != nil || told != 1 {
		t.Errorf("open: %v, told %d times", err, told)
	}
	if _, _, err := do(t, mustNew(t, broken{}, Config{FailClosed: true}), http.MethodGet, s.URL, nil); !errors.Is(err, headgate.ErrUnavailable) {
		t.Errorf("closed: %v", err)
	}
}

func TestConfigIsChecked(t *testing.T) {
	t.Parallel()
	rule := headgate.MustRule("r", headgate.PerSecond(1))
	for name, c := range map[string]Config{
		"no rule": {Limits: []Limit{{}}}, "nil rule": {Limits: []Limit{{Rules: []*headgate.Rule{nil}}}},
		"twice": {Limits: []Limit{{Rules: []*headgate.Rule{rule, rule}}}}, "tries": {Tries: 11}, "budget": {Budget: 1.5},
		"backoff": {Backoff: time.Minute, MaxBackoff: time.Second}, "pause": {MaxPause: time.Hour},
		"timeouts": {TryTimeout: time.Minute, Timeout: time.Second}, "hedge": {Hedge: -1},
	} {
		if _, err := New(memory.New(), nil, c); !errors.Is(err, headgate.ErrInvalid) {
			t.Errorf("%s: %v", name, err)
		}
	}
	if _, err := New(nil, nil, Config{Limits: []Limit{{Rules: []*headgate.Rule{rule}}}}); !errors.Is(err, headgate.ErrInvalid) {
		t.Errorf("limits without a store: %v", err)
	}
}

// However many partners there are, memory is bounded.
func TestPartnersAreBounded(t *testing.T) {
	t.Parallel()
	ps := partners{all: make(map[string]*list.Element), make: func(string) *partner { return newPartner(nil, nil, false) }}
	for i := range 3 * maxPartners {
		ps.of(strconv.Itoa(i))
		ps.of("0")
	}
	if len(ps.all) != maxPartners || ps.order.Len() != maxPartners || ps.all[strconv.Itoa(3*maxPartners-1)] == nil || ps.all["0"] == nil {
		t.Errorf("%d partners are kept", len(ps.all))
	}
}
