package load

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"strings"
	"sync/atomic"
	"testing"
	"time"
)

// TestStall: a service that stalls for S once in T has p_q = S − (1−q) T, since all that
// were due meanwhile have waited for it.
func TestStall(t *testing.T) {
	var end time.Time
	h := http.HandlerFunc(func(http.ResponseWriter, *http.Request) {
		from := end.Add(-time.Second)
		if now := time.Now(); now.After(from) && now.Before(end) {
			time.Sleep(end.Sub(now))
		}
	})
	bubble(t, h, Options{}, func(t *testing.T, c *Client) {
		end = time.Now().Add(11 * time.Second)
		m, err := c.Run(t.Context(), Shape{Rate: 400, For: 30 * time.Second}, nil)
		if err != nil {
			t.Fatal(err)
		}
		if m.Scheduled != 12_000 || m.Sent != 12_000 || m.Status["200"] != 12_000 || !m.Valid || m.Held != 400 {
			t.Errorf("got %+v", m)
		}
		if !near(m.Latency.P99, 700, 0.02) || !near(m.Latency.P999, 970, 0.02) || !near(m.Latency.Max, 1000, 0.02) {
			t.Errorf("p99 is %g, p999 %g, max %g; want 700, 970, 1000", m.Latency.P99, m.Latency.P999, m.Latency.Max)
		}
		// 400 were due in that second, and 256 connections were in use.
		if m.Waited < 100 || m.Lag.Max > 0.001 {
			t.Errorf("%d waited, and the sender was late by %g ms", m.Waited, m.Lag.Max)
		}
	})
}

// TestLateSender: what the sender is late by makes the measurement invalid, and is not
// taken for the service's.
func TestLateSender(t *testing.T) {
	for _, tt := range []struct {
		late  time.Duration
		valid bool
	}{{0, true}, {9 * time.Millisecond, true}, {15 * time.Millisecond, false}} {
		bubble(t, workers(1000, 0), Options{nap: func(d time.Duration) { time.Sleep(d + tt.late) }}, func(t *testing.T, c *Client) {
			m, err := c.Run(t.Context(), Shape{Rate: 20, For: 10 * time.Second}, nil)
			if err != nil {
				t.Fatal(err)
			}
			if m.Valid != tt.valid || len(m.Invalid) > 0 == tt.valid || !near(m.Lag.P50, max(ms(tt.late), 0.001), 0.01) {
				t.Errorf("late by %v: valid is %t, lag %+v, %q", tt.late, m.Valid, m.Lag, m.Invalid)
			}
		})
	}
}

// TestStatuses: each class of answers has its own latencies, and a refusal does not make the
// service look fast.
func TestStatuses(t *testing.T) {
	var n atomic.Int64
	h := http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		switch n.Add(1) % 8 {
		case 1, 2:
			time.Sleep(100 * time.Millisecond)
		case 3:
			w.Header().Set("Retry-After", "7")
			w.Header().Set("RateLimit-Policy", `"a";q=10;w=60`)
			w.Header().Set("RateLimit", `"a";r=0;t=7`)
			w.WriteHeader(http.StatusTooManyRequests)
		case 4:
			time.Sleep(10 * time.Millisecond)
			w.WriteHeader(http.StatusBadGateway)
		case 5:
			<-r.Context().Done() // Never.
		case 6:
			panic(http.ErrAbortHandler)
		case 7:
			w.WriteHeader(http.StatusEarlyHints)
			http.Redirect(w, r, "/elsewhere", http.StatusFound)
		case 0:
			conn, _, err := http.NewResponseController(w).Hijack()
			if err == nil {
				fmt.Fprint(conn, "HTTP/1.1 what\r\n\r\n")
				_ = conn.Close()
			}
		}
	})
	bubble(t, h, Options{Timeout: 2 * time.Second, Connections: 2000}, func(t *testing.T, c *Client) {
		m, err := c.Run(t.Context(), Shape{Rate: 100, For: 10 * time.Second}, nil)
		if err != nil {
			t.Fatal(err)
		}
		count := int64(0)
		for _, n := range m.Status {
			count += n
		}
		for _, n := range m.Errors {
			count += n
		}
		if m.Scheduled != 1000 || m.Sent != 1000 || count != 1000 {
			t.Errorf("scheduled %d, sent %d, ended %d", m.Scheduled, m.Sent, count)
		}
		for _, code := range []string{"200", "302", "429", "502"} {
			if m.Status[code] < 50 {
				t.Errorf("status %s: %d times", code, m.Status[code])
			}
		}
		for _, why := range []string{noTime, noWhole, noHTTP} {
			if m.Errors[why] < 50 {
				t.Errorf("%s: %d times", why, m.Errors[why])
			}
		}
		if p := m.ByClass["429"]; p.Max > 1 {
			t.Errorf("429: %+v", p)
		}
		if p := m.ByClass["5xx"]; !near(p.P50, 10, 0.01) {
			t.Errorf("5xx: %+v", p)
		}
		if m.Latency.P50 > 101 || !near(m.Latency.Max, 2000, 0.01) {
			t.Errorf("latencies %+v, want timeouts among them", m.Latency)
		}
		l := m.Limiter
		if l == nil || l.Denied != m.Status["429"] || l.RetryAfter != l.Denied || l.LongestMS != 7000 || len(l.Limits) != 1 || l.Limits[0] != (AdvertisedLimit{10, 60_000, 0}) {
			t.Errorf("limiter %+v", l)
		}
		if m.Served() != m.Status["200"]+m.Status["302"] || !near(m.ErrorShare, 1-float64(m.Served())/1000, 0.001) {
			t.Errorf("%d served, error share %g", m.Served(), m.ErrorShare)
		}
	})
}

// TestHanging: connections and memory are bounded when nothing is answered, and it ends.
func TestHanging(t *testing.T) {
	h := http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) { <-r.Context().Done() })
	bubble(t, h, Options{Connections: 3, Timeout: time.Second}, func(t *testing.T, c *Client) {
		began := time.Now()
		m, err := c.Run(t.Context(), Shape{Rate: 100, For: 5 * time.Second}, nil)
		if err != nil {
			t.Fatal(err)
		}
		if m.Scheduled != 500 || m.Errors[noTime] != 500 || m.ErrorShare != 1 || !near(m.Latency.P50, 1000, 0.01) {
			t.Errorf("got %+v", m)
		}
		if passed := time.Since(began); passed > 7*time.Second {
			t.Errorf("it took %v", passed)
		}
	})
}

// TestInterrupted: what was measured up to then is there at once.
func TestInterrupted(t *testing.T) {
	bubble(t, workers(1000, 3*time.Second), Options{}, func(t *testing.T, c *Client) {
		ctx, cancel := context.WithTimeout(t.Context(), 5*time.Second)
		defer cancel()
		began := time.Now()
		m, err := c.Run(ctx, Shape{Rate: 10, For: time.Hour}, nil)
		if err != nil {
			t.Fatal(err)
		}
		if passed := time.Since(began); passed > 5*time.Second+time.Millisecond {
			t.Errorf("it took %v", passed)
		}
		if !m.Interrupted || m.Scheduled < 49 || m.Scheduled > 51 || m.Status["200"] < 19 || m.Errors[noLeisure] < 29 || m.Latency.Max > 3001 {
			t.Errorf("got %+v", m)
		}
	})
}

// TestHostile: what an answer has does not fill the memory.
func TestHostile(t *testing.T) {
	var sent atomic.Int64
	h := http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		conn, _, err := http.NewResponseController(w).Hijack()
		if err != nil {
			return
		}
		defer conn.Close()
		fmt.Fprint(conn, "HTTP/1.1 200 OK\r\n")
		line := "X: " + strings.Repeat("x", 10_000) + "\r\n"
		for {
			n, err := conn.Write([]byte(line))
			if sent.Add(int64(n)); err != nil {
				return
			}
		}
	})
	bubble(t, h, Options{}, func(t *testing.T, c *Client) {
		m, err := c.Run(t.Context(), Shape{Rate: 1, For: time.Second}, nil)
		if err != nil {
			t.Fatal(err)
		}
		if m.Errors[noHTTP] != 1 || sent.Load() > 2*maxHead {
			t.Errorf("errors %v after %d bytes", m.Errors, sent.Load())
		}
	})
}

// TestClosedMeanwhile: a connection that the server closed while it was idle is no error.
func TestClosedMeanwhile(t *testing.T) {
	h := http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		conn, _, err := http.NewResponseController(w).Hijack()
		if err == nil {
			fmt.Fprint(conn, "HTTP/1.1 200 OK\r\nContent-Length: 0\r\n\r\n")
			_ = conn.Close()
		}
	})
	bubble(t, h, Options{Connections: 1}, func(t *testing.T, c *Client) {
		m, err := c.Run(t.Context(), Shape{Rate: 1, For: 100 * time.Second}, nil)
		if err != nil {
			t.Fatal(err)
		}
		if m.Status["200"] != 100 {
			t.Errorf("got %v and %v", m.Status, m.Errors)
		}
	})
}

// TestShapes: at any time as many requests are due as the rate says, in order.
func TestShapes(t *testing.T) {
	for _, s := range []Shape{
		{Rate: 0.1, For: 30 * time.Second},
		{Rate: 200, For: 30 * time.Second},
		{Rate: 99.7, For: 7 * time.Second},
		{Rate: 10, To: 500, For: time.Minute},
		{Rate: 500, To: 0.01, For: time.Minute},
		{Rate: 1_000_000, For: time.Second},
	} {
		if err := s.Check(); err != nil {
			t.Fatal(err)
		}
		n, before := s.count(), time.Duration(-1)
		if want := (s.Rate + s.to()) / 2 * s.For.Seconds(); float64(n) > want+1e-3 || float64(n) < want-1 {
			t.Errorf("%+v: %d requests, want %g", s, n, want)
		}
		for i := range n {
			due := s.due(i)
			if due < before || due > s.For || i == 0 && due != 0 {
				t.Fatalf("%+v: request %d is due at %v, after %v", s, i, due, before)
			}
			before = due
			if at := due.Seconds(); i%997 == 0 {
				if sum := s.Rate*at + (s.to()-s.Rate)/s.For.Seconds()*at*at/2; sum < float64(i)-0.01 || sum > float64(i)+0.01 {
					t.Fatalf("%+v: at %v, %g requests are due, not %d", s, due, sum, i)
				}
			}
		}
	}
	for _, s := range []Shape{
		{Rate: 0, For: time.Second},
		{Rate: -1, For: time.Second},
		{Rate: 2e6, For: time.Second},
		{Rate: 1},
		{Rate: 1, For: -time.Second},
		{Rate: 1, For: 25 * time.Hour},
		{Rate: 1, To: -1, For: time.Second},
		{Rate: 0.01, For: time.Second},
	} {
		if s.Check() == nil {
			t.Errorf("%+v is taken", s)
		}
	}
}

// TestMix: targets are asked for as often as their weights say, and measured apart.
func TestMix(t *testing.T) {
	h := http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) {
		if r.URL.Path == "/slow" {
			time.Sleep(50 * time.Millisecond)
		}
	})
	targets := []*Target{
		target(t, Request{URL: "http://service/fast?a", Weight: 4}),
		target(t, Request{URL: "http://service/fast", Weight: 5}),
		target(t, Request{URL: "http://service/slow?x=1", Method: "POST", Body: []byte("text")}),
	}
	bubble(t, h, Options{Targets: targets}, func(t *testing.T, c *Client) {
		m, err := c.Run(t.Context(), Shape{Rate: 200, For: 20 * time.Second}, nil)
		if err != nil {
			t.Fatal(err)
		}
		if len(m.Targets) != 2 || m.Targets[0].Target != "GET /fast" || m.Targets[1].Target != "POST /slow" {
			t.Fatalf("targets %+v", m.Targets)
		}
		if slow := m.Targets[1]; !near(float64(slow.Sent), 400, 0.2) || slow.Served != slow.Sent || !near(slow.Latency.P50, 50, 0.02) {
			t.Errorf("slow: %+v", slow)
		}
	})
}

// TestRecorded: requests are sent when they came.
func TestRecorded(t *testing.T) {
	var at []time.Duration
	var began time.Time
	h := http.HandlerFunc(func(http.ResponseWriter, *http.Request) { at = append(at, time.Since(began)) })
	bubble(t, h, Options{}, func(t *testing.T, c *Client) {
		began = time.Now()
		m, err := c.Run(t.Context(), Shape{Recorded: []Arrival{{At: 0}, {At: time.Second}, {At: time.Second + 500*time.Millisecond}}}, nil)
		if err != nil {
			t.Fatal(err)
		}
		if m.Sent != 3 || fmt.Sprint(at) != "[0s 1s 1.5s]" {
			t.Errorf("sent %d, at %v", m.Sent, at)
		}
	})
}

func TestTargets(t *testing.T) {
	for _, r := range []Request{
		{URL: ""},
		{URL: "127.0.0.1:80"},
		{URL: "ftp://127.0.0.1/"},
		{URL: "http://"},
		{URL: "http://127.0.0.1:0/"},
		{URL: "redis://127.0.0.1:65536"},
		{URL: "http://user:pass@127.0.0.1/"},
		{URL: "http://127.0.0.1/\n"},
		{URL: "http://127.0.0.1/", Method: "G T"},
		{URL: "http://127.0.0.1/", Weight: -1},
		{URL: "http://127.0.0.1/", Body: make([]byte, MaxBody+1)},
		{URL: "http://127.0.0.1/", Header: http.Header{"Content-Length": {"1"}}},
		{URL: "http://127.0.0.1/", Header: http.Header{"X": {"a\r\nb: c"}}},
	} {
		if _, err := NewTarget(r); err == nil {
			t.Errorf("%.100q is taken", r.URL)
		} else if strings.Contains(err.Error(), "pass") {
			t.Errorf("the error has the password: %v", err)
		}
	}
	one := target(t, Request{URL: "http://127.0.0.1:1/a?b=c", Header: http.Header{"host": {"example.com"}, "X-Key": {"k"}}, Method: "PUT", Body: []byte("text")})
	want := "PUT /a?b=c HTTP/1.1\r\nHost: example.com\r\nUser-Agent: headgate-load\r\nContent-Length: 4\r\nX-Key: k\r\n\r\ntext"
	if string(one.text) != want {
		t.Errorf("got %q", one.text)
	}
}

// TestNotLoopback: others' machines need to be allowed.
func TestNotLoopback(t *testing.T) {
	for _, url := range []string{"http://192.0.2.1/", "https://[2001:db8::1]/", "http://0.0.0.0:1/"} {
		_, err := New(t.Context(), Options{Targets: []*Target{target(t, Request{URL: url})}})
		if !errors.Is(err, ErrRemote) {
			t.Errorf("%s: %v", url, err)
		}
	}
	_, err := New(t.Context(), Options{Targets: []*Target{target(t, Request{URL: "http://127.0.0.1:1/"})}})
	if !errors.Is(err, ErrUnreachable) {
		t.Errorf("nobody there: %v", err)
	}
}
