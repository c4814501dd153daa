package httplimit

import (
	"bufio"
	"context"
	"errors"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"testing"
	"time"

	"github.com/headgate/headgate"
)

// paced admits one request a second, with up to four waiting.
func paced() *headgate.Rule {
	return headgate.MustRule("paced", headgate.Limit{Algorithm: headgate.LeakyBucket, Count: 1, Period: time.Second, Burst: 4})
}

// delayed is a middleware whose waiting is the test's: slept records what it
// was asked for, and wait says how it ends.
func delayed(t *testing.T, c *clock, slept *[]time.Duration, wait func(context.Context) error, opts ...Option) http.Handler {
	t.Helper()
	sleep := func(s *settings) {
		s.Sleep = func(ctx context.Context, d time.Duration) error {
			*slept = append(*slept, d)
			return wait(ctx)
		}
	}
	m, err := NewGate(c.store(), append(opts, sleep)...)
	if err != nil {
		t.Fatal(err)
	}
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) { m.serve(w, r, hello) })
}

func TestDelayHoldsTheRequest(t *testing.T) {
	t.Parallel()
	var slept []time.Duration
	h := delayed(t, newClock(), &slept, func(context.Context) error { return nil }, Limit(ByIP(), paced()), MaxDelay(2*time.Second))
	for i, tt := range []struct {
		code  int
		slept time.Duration // 0 is not at all
		retry string
	}{
		{200, 0, ""},
		{200, time.Second, ""},
		{200, 2 * time.Second, ""},
		{429, 0, "1"}, // it would wait for 3 s and may wait for 2: in 1 s it fits
		{429, 0, "1"}, // the one before has left nothing behind
	} {
		slept = nil
		w := ask(h, "1.1.1.1:1")
		var got time.Duration
		for _, d := range slept {
			got += d
		}
		if left := w.Header().Get("X-RateLimit-Remaining"); tt.code == 429 && left != "1" {
			t.Errorf("request %d: %s left, want 1 of 4, as what it took is given back", i+1, left)
		}
		if w.Code != tt.code || got != tt.slept || w.Header().Get("Retry-After") != tt.retry {
			t.Errorf("request %d: %d after %v, Retry-After %q; want %d after %v, %q", i+1, w.Code, got, w.Header().Get("Retry-After"), tt.code, tt.slept, tt.retry)
		}
	}
}

func TestDelayZeroNeverHolds(t *testing.T) {
	t.Parallel()
	var slept []time.Duration
	h := delayed(t, newClock(), &slept, func(context.Context) error { return nil }, Limit(ByIP(), paced()), MaxDelay(0))
	first, second := ask(h, "1.1.1.1:1"), ask(h, "1.1.1.1:1")
	if first.Code != 200 || second.Code != 429 || second.Header().Get("Retry-After") != "1" || len(slept) != 0 {
		t.Errorf("%d, then %d with Retry-After %q, held %v", first.Code, second.Code, second.Header().Get("Retry-After"), slept)
	}
}

func TestDelayBeyondTheDeadline(t *testing.T) {
	t.Parallel()
	var slept []time.Duration
	h := delayed(t, newClock(), &slept, func(context.Context) error { return nil }, Limit(ByIP(), headgate.MustRule("paced",
		headgate.Limit{Algorithm: headgate.LeakyBucket, Count: 1, Period: time.Hour, Burst: 4})), MaxDelay(24*time.Hour))
	ask(h, "1.1.1.1:1")
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	r := httptest.NewRequest("GET", "/", nil).WithContext(ctx)
	r.RemoteAddr = "1.1.1.1:1"
	w := httptest.NewRecorder()
	h.ServeHTTP(w, r)
	if w.Code != 429 || len(slept) != 0 {
		t.Errorf("%d, held %v", w.Code, slept)
	}
}

// What a request took that does not wait to the end is given back, under every
// rule and not only the one that delayed it.
func TestDelayGivesBack(t *testing.T) {
	t.Parallel()
	hourly := headgate.MustRule("hourly", headgate.PerHour(10))
	for _, tt := range []struct {
		name string
		wait error
		opts []Option
		code int
	}{
		{"the client went away", context.Canceled, nil, StatusClientGone},
		{"too long", nil, []Option{MaxDelay(time.Millisecond)}, 429},
	} {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			c := newClock()
			var slept []time.Duration
			leave := tt.wait
			opts := append([]Option{Limit(ByIP(), paced()), Limit(Everyone(), hourly)}, tt.opts...)
			h := delayed(t, c, &slept, func(context.Context) error { return leave }, opts...)
			ask(h, "1.1.1.1:1")
			for i := range 3 {
				if w := ask(h, "1.1.1.1:1"); w.Code != tt.code || w.Body.String() == "hello" {
					t.Errorf("request %d: %d %s, want %d", i+2, w.Code, w.Body, tt.code)
				}
			}
			leave = nil
			c.advance(time.Second)
			if w := ask(h, "1.1.1.1:1"); w.Code != 200 || w.Header().Get("X-RateLimit-Remaining") == "" {
				t.Errorf("the next request: %d", w.Code)
			}
			// Two were served; of ten an hour eight are left.
			for i := range 8 {
				if w := ask(h, "2.2.2.2:1"); i == 0 && w.Code != 200 {
					t.Errorf("another client: %d", w.Code)
				}
				c.advance(time.Second)
			}
			if w := ask(h, "3.3.3.3:1"); w.Code != 429 {
				t.Errorf("after ten: %d, want 429", w.Code)
			}
		})
	}
}

func TestRefundThatFails(t *testing.T) {
	t.Parallel()
	c := newClock()
	inner := c.store()
	var refunds []headgate.Check
	store := storeFunc(func(ctx context.Context, op headgate.Op, checks []headgate.Check, dst []headgate.Decision) ([]headgate.Decision, error) {
		if op == headgate.OpRefund {
			refunds = append(refunds, checks...)
			if ctx.Err() != nil {
				t.Error("the refund's context has ended with the request's")
			}
			return dst, headgate.ErrUnavailable
		}
		return inner.Take(ctx, op, checks, dst)
	})
	var failed error
	h := mustNew(t, store, Limit(ByIP(), paced()), Observe(Hooks{Failed: func(_ *http.Request, err error) { failed = err }}))
	ask(h, "192.0.2.1:1")
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	w := httptest.NewRecorder()
	h.ServeHTTP(w, httptest.NewRequest("GET", "/", nil).WithContext(ctx))
	if w.Code != StatusClientGone || !errors.Is(failed, headgate.ErrUnavailable) {
		t.Errorf("%d, error %v", w.Code, failed)
	}
	if len(refunds) != 1 || int64(refunds[0].At) != c.micros.Load() {
		t.Errorf("refunds %+v, want one at %d", refunds, c.micros.Load())
	}
}

// A client that hangs up during the delay, over a real connection.
func TestClientLeavesDuringDelay(t *testing.T) {
	t.Parallel()
	refunded := make(chan struct{}, 1)
	inner := newClock().store()
	store := storeFunc(func(ctx context.Context, op headgate.Op, checks []headgate.Check, dst []headgate.Decision) ([]headgate.Decision, error) {
		out, err := inner.Take(ctx, op, checks, dst)
		if op == headgate.OpRefund {
			refunded <- struct{}{}
		}
		return out, err
	})
	server := httptest.NewServer(mustNew(t, store, Limit(ByIP(), headgate.MustRule("paced",
		headgate.Limit{Algorithm: headgate.LeakyBucket, Count: 1, Period: time.Hour, Burst: 4})), MaxDelay(24*time.Hour)))
	defer server.Close()
	if res, err := server.Client().Get(server.URL); err != nil || res.StatusCode != 200 {
		t.Fatalf("the first request: %v, %v", res, err)
	}
	conn, err := net.Dial("tcp", server.Listener.Addr().String())
	if err != nil {
		t.Fatal(err)
	}
	if _, err := io.WriteString(conn, "GET / HTTP/1.1\r\nHost: example.com\r\n\r\n"); err != nil {
		t.Fatal(err)
	}
	// It is held for an hour; that the peer is gone must end it.
	if err := conn.Close(); err != nil {
		t.Fatal(err)
	}
	<-refunded
}

func TestHijackAndFlush(t *testing.T) {
	t.Parallel()
	m, err := New(newClock().store(), Limit(ByIP(), headgate.MustRule("rule", headgate.PerHour(9))))
	if err != nil {
		t.Fatal(err)
	}
	mux := http.NewServeMux()
	mux.HandleFunc("/flush", func(w http.ResponseWriter, r *http.Request) {
		_, _ = io.WriteString(w, "first\n")
		if err := http.NewResponseController(w).Flush(); err != nil {
			t.Errorf("Flush: %v", err)
		}
		<-r.Context().Done() // the client reads the first line and leaves
	})
	mux.HandleFunc("/hijack", func(w http.ResponseWriter, _ *http.Request) {
		conn, _, err := http.NewResponseController(w).Hijack()
		if err != nil {
			t.Errorf("Hijack: %v", err)
			return
		}
		_, _ = io.WriteString(conn, "HTTP/1.1 101 Switching Protocols\r\nUpgrade: echo\r\nConnection: Upgrade\r\n\r\n")
		_ = conn.Close()
	})
	server := httptest.NewServer(m(mux))
	defer server.Close()
	for path, want := range map[string]int{"/flush": 200, "/hijack": 101} {
		res, err := server.Client().Get(server.URL + path)
		if err != nil {
			t.Fatal(err)
		}
		if res.StatusCode != want {
			t.Errorf("%s: %d, want %d", path, res.StatusCode, want)
		}
		if path == "/flush" {
			if line, err := bufio.NewReader(res.Body).ReadString('\n'); err != nil || line != "first\n" {
				t.Errorf("read %q, %v", line, err)
			}
		}
		_ = res.Body.Close()
	}
}
