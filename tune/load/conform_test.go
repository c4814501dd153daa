package load

import (
	"bufio"
	"fmt"
	"io"
	"net"
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
	"github.com/headgate/headgate/httplimit"
	"github.com/headgate/headgate/store/memory"
)

// faults are what is wrong with a model, and how it is to be.
type faults struct {
	bucket, delay, silent bool
	status                int
	over                  int           // this many more are admitted
	early                 bool          // now and then, one is denied for nothing
	retry, window         time.Duration // added to what it says, and to the window
	remaining             int
	forgets               time.Duration // when, since the first request
	used                  int           // at first
	processes             int           // that count apart and are asked in turn; zero means 1
	open                  time.Duration // when it admits everything for a second, since the first request
	cost                  int64         // what a request is to take; it takes 1
	lost                  time.Duration // when its answers are lost for 12 seconds, since the first request
}

// model is an honest limiter of 10 per 10 s, or a bucket with a burst, with faults to be seeded.
type model struct {
	faults
	mu          sync.Mutex
	first, from time.Time
	asked       int
	theoretical time.Time
	others      []int // what the other processes have counted
}

func (m *model) ServeHTTP(w http.ResponseWriter, _ *http.Request) {
	m.mu.Lock()
	now := time.Now()
	if m.first.IsZero() {
		m.first, m.from = now, now
	}
	if m.forgets > 0 && now.Sub(m.first) >= m.forgets {
		m.forgets, m.used = 0, 0
	}
	m.asked++
	admitted, wait, left := m.take(now)
	delay := time.Duration(0)
	if m.delay && admitted {
		delay = m.theoretical.Sub(now) - time.Second
	}
	lost := m.lost > 0 && now.Sub(m.first) >= m.lost && now.Sub(m.first) < m.lost+12*time.Second
	m.mu.Unlock()
	if lost {
		w.WriteHeader(http.StatusInternalServerError)
		return
	}
	if delay > 0 {
		time.Sleep(delay)
	}
	if !m.silent {
		w.Header().Set("X-RateLimit-Limit", "10")
		w.Header().Set("X-RateLimit-Remaining", strconv.Itoa(left+m.remaining))
		w.Header().Set("X-RateLimit-Reset", strconv.FormatInt(int64((wait+time.Second-1)/time.Second), 10))
	}
	if !admitted {
		if !m.silent {
			w.Header().Set("Retry-After", strconv.FormatInt(int64((wait+m.retry+time.Second-1)/time.Second), 10))
		}
		w.WriteHeader(m.status)
	}
}

// take decides. A bucket has room for 10, and a unit becomes free each second.
func (m *model) take(now time.Time) (admitted bool, wait time.Duration, left int) {
	if m.bucket || m.delay {
		const burst = 10
		each := time.Second - time.Duration(m.over)*100*time.Millisecond
		if m.theoretical.IsZero() {
			m.theoretical = now.Add(time.Duration(m.used) * each)
		}
		if m.theoretical.Before(now) {
			m.theoretical = now
		}
		wait = m.theoretical.Sub(now) - (burst-1)*each
		if wait <= 0 {
			m.theoretical = m.theoretical.Add(each)
		}
		return wait <= 0, max(wait, 0), int((burst*each - m.theoretical.Sub(now)) / each)
	}
	period := 10*time.Second + m.window
	if now.Sub(m.from) >= period {
		m.from, m.used = now, 0
		m.others = make([]int, max(m.processes-1, 0))
	}
	m.others = append(m.others, m.used)
	m.used, m.others = m.others[0], m.others[1:]
	most := 10 + m.over
	if since := now.Sub(m.first); m.open > 0 && since >= m.open && since < m.open+time.Second {
		return true, 0, 10
	}
	if admitted = m.used < most && !(m.early && m.asked%7 == 3); admitted {
		m.used++
	}
	return admitted, m.from.Add(period).Sub(now), max(10-m.used, 0)
}

// numbers are what the model says to a request: whether it is admitted, the limit, what remains, and
// the seconds to wait and until the reset.
func (m *model) numbers() (n [5]int) {
	w := httptest.NewRecorder()
	m.ServeHTTP(w, nil)
	if w.Code == http.StatusOK {
		n[0] = 1
	}
	for i, name := range []string{"X-RateLimit-Limit", "X-RateLimit-Remaining", "Retry-After", "X-RateLimit-Reset"} {
		n[i+1], _ = strconv.Atoi(w.Header().Get(name)) // An answer may not say it.
	}
	return n
}

// protocols are the ways to ask a model.
func protocols() map[string]func(m *model) (service, Request) {
	command := func(text string, answer func(n [5]int) string) func(m *model) (service, Request) {
		return func(m *model) (service, Request) {
			return &commands{answer: func() string { return answer(m.numbers()) }}, Request{URL: "redis://service", Body: []byte(text)}
		}
	}
	return map[string]func(m *model) (service, Request){
		"HTTP": func(m *model) (service, Request) { return serving(m), Request{URL: "http://service/"} },
		"gRPC": func(m *model) (service, Request) {
			check := func(w http.ResponseWriter, _ *http.Request) {
				n := m.numbers()
				w.Header().Set("Content-Type", "application/grpc")
				w.Header().Set("Trailer", "Grpc-Status")
				_, _ = w.Write([]byte{0, 0, 0, 0, 5, byte(n[0]), byte(n[1]), byte(n[2]), byte(n[3]), byte(n[4])}) // A client that has gone needs none.
				w.Header().Set("Grpc-Status", "0")
			}
			read := func(b []byte) (Hint, error) {
				w := Window{Limit: int64(b[1]), Remaining: int64(b[2]), Reset: time.Duration(b[4]) * time.Second}
				return Hint{Limited: b[0] == 0, Wait: time.Duration(b[3]) * time.Second, Windows: []Window{w}}, nil
			}
			return serving(http.HandlerFunc(check)), Request{URL: "http://service/limiter/Check", GRPC: true, Read: read}
		},
		"CL.THROTTLE": command("CL.THROTTLE k 9 10 10", func(n [5]int) string {
			if n[0] == 1 {
				n[3] = -1
			}
			return fmt.Sprintf("*5\r\n:%d\r\n:%d\r\n:%d\r\n:%d\r\n:%d\r\n", 1-n[0], n[1], n[2], n[3], n[4])
		}),
		"THROTTLE": command("THROTTLE k 10 10 10", func(n [5]int) string {
			return fmt.Sprintf("*5\r\n:%d\r\n:%d\r\n:%d\r\n:%d\r\n:%d\r\n", n[0], n[1], n[2], n[4], n[3])
		}),
		"HG.CHECK": command("hg.check rule k", func(n [5]int) string {
			return fmt.Sprintf("*6\r\n$7\r\nallowed\r\n:%d\r\n+retry_after_ms\r\n:%d\r\n$9\r\ndecisions\r\n*1\r\n*8\r\n+rule\r\n$-1\r\n+capacity\r\n:%d\r\n+remaining\r\n:%d\r\n+reset_after_ms\r\n:%d\r\n",
				n[0], 1000*n[3], n[1], n[2], 1000*n[4])
		}),
	}
}

// commands answers whatever it is asked over Redis's protocol.
type commands struct {
	answer func() string
	l      net.Listener
}

func (s *commands) Serve(l net.Listener) error {
	s.l = l
	for {
		c, err := l.Accept()
		if err != nil {
			return err
		}
		go s.serve(c)
	}
}

// serve serves a connection until the client closes it.
func (s *commands) serve(c net.Conn) {
	defer c.Close()
	in := bufio.NewReader(c)
	for {
		if _, err := readRESP(in, deepest); err != nil {
			return
		}
		if _, err := io.WriteString(c, s.answer()); err != nil {
			return
		}
	}
}

func (s *commands) Close() error { return s.l.Close() }

// TestReadRESP: whatever a server answers, it is read or refused.
func TestReadRESP(t *testing.T) {
	for text, want := range map[string]answer{
		"+PONG\r\n":                        {kind: served, code: "OK", class: "ok"},
		"-LOADING the data set\r\n":        {kind: failed, code: "LOADING", class: "failed"},
		"*-1\r\n":                          {kind: served, code: "OK", class: "ok"},
		"*3\r\n:1\r\n$2\r\nab\r\n*0\r\n":   {kind: served, code: "OK", class: "ok"},
		"HTTP/1.1 400 Bad Request\r\n\r\n": {},
		strings.Repeat("*1\r\n", 100):      {},
		"*1000000000\r\n:1\r\n":            {},
		"$1000000000\r\n":                  {},
		"$5\r\nab":                         {},
		":one\r\n":                         {},
		"":                                 {},
	} {
		got, err := answeredRESP(bufio.NewReader(strings.NewReader(text)), "PING")
		got.inMessage = nil
		if (err == nil) != (want.code != "") || err == nil && !reflect.DeepEqual(got, want) {
			t.Errorf("%q: %+v, %v", text, got, err)
		}
	}
}

// outcome returns what was found of each thing.
func outcome(a *Audit) map[string]string {
	all := make(map[string]string)
	for _, f := range a.Findings {
		all[f.About] = f.Outcome
	}
	return all
}

// TestSeededFaults: each way of lying is found, by its name, and an honest limiter has none.
func TestSeededFaults(t *testing.T) {
	for name, tt := range map[string]struct {
		m     faults
		wrong string
	}{
		"honest":                {faults{}, ""},
		"admits 10 % more":      {faults{over: 1}, "admitted"},
		"denies early":          {faults{early: true}, "denied_early"},
		"retry-after too short": {faults{retry: -3 * time.Second}, "retry_after"},
		"retry-after too long":  {faults{retry: 3 * time.Second}, "retry_after"},
		"remaining is too much": {faults{remaining: 2}, "remaining"},
		"resets early":          {faults{window: -2 * time.Second}, "admitted"},
		"forgets at a restart":  {faults{forgets: 43 * time.Second}, "admitted"},
		"keeps too long":        {faults{window: 2 * time.Second}, "denied_early"},
		"used before":           {faults{used: 7}, ""},
		"an empty bucket":       {faults{bucket: true, used: 10}, ""},
		"a bucket too fast":     {faults{bucket: true, over: 1}, "admitted"},
		"honest, with 503":      {faults{status: http.StatusServiceUnavailable}, ""},
		"three processes":       {faults{processes: 3}, "admitted"},
		"open for a second":     {faults{open: 43 * time.Second}, "admitted"},
		"counts requests only":  {faults{cost: 3}, "admitted"},
	} {
		if tt.m.status == 0 {
			tt.m.status = http.StatusTooManyRequests
		}
		for protocol, of := range protocols() {
			if tt.m.open > 0 && protocol != "HTTP" {
				continue // Thousands of requests are admitted, which say nothing else by another protocol.
			}
			t.Run(name+" "+protocol, func(t *testing.T) {
				m := &model{faults: tt.m}
				server, request := of(m)
				inBubble(t, server, Options{Targets: []*Target{target(t, request)}}, func(t *testing.T, c *Client) {
					a, err := c.Audit(t.Context(), AuditOptions{Limit: Promise{Count: 10, Period: 10 * time.Second}, Cost: tt.m.cost, Watch: 2 * max(m.forgets, m.open)})
					if err != nil {
						t.Fatal(err)
					}
					if found := outcome(a); a.Honest != (tt.wrong == "") || tt.wrong != "" && found[tt.wrong] != Wrong {
						t.Errorf("found %+v, held %+v", a.Findings, a.Held)
					}
				})
			})
		}
	}
}

// TestLostAnswers: a request of which nothing is heard may have been charged, so that what is denied
// because of it is not denied early.
func TestLostAnswers(t *testing.T) {
	_, a := audited(t, &model{faults: faults{status: http.StatusTooManyRequests, lost: 43 * time.Second}}, AuditOptions{Limit: Promise{Count: 10, Period: 10 * time.Second}, Watch: 90 * time.Second})
	if found := outcome(a); !a.Honest || found["denied_early"] != True {
		t.Errorf("found %+v, held %+v", a.Findings, a.Held)
	}
}

// TestSilentLimiters: a limit is found of which no answer says anything, as with nginx.
func TestSilentLimiters(t *testing.T) {
	for name, tt := range map[string]struct {
		m    faults
		want string
	}{
		"bucket":       {faults{bucket: true, status: 503}, "token bucket"},
		"delays":       {faults{delay: true, status: 503}, "paced queue"},
		"fixed window": {faults{status: 429}, "window"},
	} {
		t.Run(name, func(t *testing.T) {
			tt.m.silent = true
			_, a := audited(t, &model{faults: tt.m}, AuditOptions{})
			if !a.Honest || outcome(a)["admitted"] != True || a.Held == nil || !strings.Contains(a.Held.Algorithm, tt.want) {
				t.Errorf("found %+v, held %+v", a.Findings, a.Held)
			}
		})
	}
}

// TestHonestAlgorithms: whatever the algorithm, what Headgate admits is what the limit says.
func TestHonestAlgorithms(t *testing.T) {
	ok := http.HandlerFunc(func(http.ResponseWriter, *http.Request) {})
	for _, algorithm := range []headgate.Algorithm{headgate.TokenBucket, headgate.FixedWindow, headgate.SlidingWindow, headgate.SlidingCounter} {
		for _, cost := range []int64{1, 3} {
			t.Run(string(rune('0'+cost))+" "+algorithm.String(), func(t *testing.T) {
				rule, err := headgate.NewRule("all", headgate.Limit{Algorithm: algorithm, Count: 10, Period: 10 * time.Second})
				if err != nil {
					t.Fatal(err)
				}
				limit, err := httplimit.New(memory.New(), httplimit.Limit(httplimit.Everyone(), rule), httplimit.Cost(func(*http.Request) int64 { return cost }))
				if err != nil {
					t.Fatal(err)
				}
				_, a := audited(t, limit(ok), AuditOptions{Limit: Promise{Count: 10, Period: 10 * time.Second}, Cost: cost})
				found := outcome(a)
				if !a.Honest || found["admitted"] != True || found["denied_early"] != True || found["retry_after"] != True {
					t.Errorf("found %+v, held %+v", a.Findings, a.Held)
				}
			})
		}
	}
}

// TestFresh: each request has a connection of its own, so that each process behind an address gets
// some.
func TestFresh(t *testing.T) {
	for _, h2 := range []bool{false, true} {
		var conns atomic.Int32
		s := httptest.NewUnstartedServer(http.HandlerFunc(func(http.ResponseWriter, *http.Request) {}))
		s.Config.Protocols = new(http.Protocols)
		s.Config.Protocols.SetHTTP1(true)
		s.Config.Protocols.SetUnencryptedHTTP2(true)
		s.Config.ConnState = func(_ net.Conn, state http.ConnState) {
			if state == http.StateNew {
				conns.Add(1)
			}
		}
		s.Start()
		t.Cleanup(s.Close)
		c, err := New(t.Context(), Options{Targets: []*Target{target(t, Request{URL: s.URL})}, Fresh: true, HTTP2: h2})
		if err != nil {
			t.Fatal(err)
		}
		before := conns.Load()
		if _, err := c.Audit(t.Context(), AuditOptions{Most: 5}); err != nil {
			t.Fatal(err)
		}
		c.Close()
		if n := conns.Load() - before; n < 5 {
			t.Errorf("HTTP/2 %t: 5 requests had %d connections", h2, n)
		}
	}
}

func TestParsePromise(t *testing.T) {
	for text, want := range map[string]Promise{
		"": {}, "10/1s": {Count: 10, Period: time.Second}, "10/1m/20": {Count: 10, Period: time.Minute, Burst: 20},
	} {
		if p, err := ParsePromise(text); err != nil || p != want {
			t.Errorf("%q is %+v, %v", text, p, err)
		}
	}
	for _, text := range []string{"10", "0/1s", "10/s", "10/0s", "10/1s/0", "10/1s/2/3"} {
		if p, err := ParsePromise(text); err == nil {
			t.Errorf("%q is %+v", text, p)
		}
	}
}
