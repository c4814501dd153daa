package gateway

import (
	"fmt"
	"io"
	"net"
	"net/http"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/headgate/headgate/config/gatewayfile"
)

// named is an upstream server that answers with its name.
func namedUpstream(t *testing.T, name string) string {
	return upstream(t, func(w http.ResponseWriter, _ *http.Request) { fmt.Fprint(w, name) }).URL
}

// closedTarget is a target that nobody listens at: its port is that of a connection
// that is open, so that nobody can get it meanwhile.
func closedTarget(t *testing.T) string {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = l.Close() })
	return "http://" + dial(t, l.Addr().String()).LocalAddr().String()
}

// hangingUp is a target that takes requests and closes the connection.
func hangingUp(t *testing.T, seen *atomic.Int64) string {
	return upstream(t, func(http.ResponseWriter, *http.Request) {
		seen.Add(1)
		panic(http.ErrAbortHandler)
	}).URL
}

func TestRoundRobin(t *testing.T) {
	t.Parallel()
	g := serveGateway(t, decider(t, nil), to(namedUpstream(t, "a"), namedUpstream(t, "b"), namedUpstream(t, "c")))
	c := client(t)
	got := ""
	for range 6 {
		got += get(t, c, g.url+"/").text
	}
	if got[:3] != got[3:] || strings.Count(got, "a")*strings.Count(got, "b")*strings.Count(got, "c") != 8 {
		t.Errorf("six requests went to %s", got)
	}
}

func TestLeastConnections(t *testing.T) {
	t.Parallel()
	enter, leave := make(chan struct{}), make(chan struct{})
	handler := func(name string) http.HandlerFunc {
		return func(w http.ResponseWriter, r *http.Request) {
			fmt.Fprint(w, name)
			if r.URL.Path == "/slow" {
				w.(http.Flusher).Flush()
				enter <- struct{}{}
				<-leave
			}
		}
	}
	o := to(upstream(t, handler("a")).URL, upstream(t, handler("b")).URL)
	o.Upstreams[0].Balance = gatewayfile.LeastConnections
	g := serveGateway(t, decider(t, nil), o)
	c := client(t)
	slow := make(chan string, 1)
	go func() { slow <- get(t, c, g.url+"/slow").text }()
	next(t, enter)
	got := ""
	for range 4 {
		got += get(t, c, g.url+"/").text
	}
	close(leave)
	if with := next(t, slow); strings.Contains(got, with) {
		t.Errorf("with %s busy, four requests went to %s", with, got)
	}
}

func TestTargetThatIsNotThere(t *testing.T) {
	t.Parallel()
	g := serveGateway(t, decider(t, nil), to(closedTarget(t)))
	get(t, client(t), g.url+"/").wants(t, 502, "Content-Type: application/problem+json")

	// Nothing was sent, so that even a request that changes something goes to
	// another one, with its body.
	up := upstream(t, func(w http.ResponseWriter, r *http.Request) { _, _ = io.Copy(w, r.Body) })
	g = serveGateway(t, decider(t, nil), to(closedTarget(t), up.URL, closedTarget(t)))
	c := client(t)
	for range 6 {
		a := ask(t, c, http.MethodPost, g.url+"/", strings.NewReader("body"))
		if a.wants(t, 200); a.text != "body" {
			t.Errorf("the upstream server got %q", a.text)
		}
	}
}

// Only what changes nothing is sent again once it may have arrived.
func TestTargetThatHangsUp(t *testing.T) {
	t.Parallel()
	for _, tt := range []struct {
		method string
		seen   int64
	}{
		{"GET", 2}, {"HEAD", 2}, {"OPTIONS", 2}, {"POST", 1}, {"PUT", 1}, {"DELETE", 1}, {"PATCH", 1},
	} {
		var seen atomic.Int64
		o := to(hangingUp(t, &seen), hangingUp(t, &seen), hangingUp(t, &seen))
		g := serveGateway(t, decider(t, nil), o)
		ask(t, client(t), tt.method, g.url+"/", nil).wants(t, 502)
		if n := seen.Load(); n != tt.seen {
			t.Errorf("%s was sent %d times, want %d", tt.method, n, tt.seen)
		}
	}
	var seen atomic.Int64
	g := serveGateway(t, decider(t, nil), to(hangingUp(t, &seen), hangingUp(t, &seen)))
	ask(t, client(t), http.MethodGet, g.url+"/", strings.NewReader("a GET with a body")).wants(t, 502)
	if n := seen.Load(); n != 1 {
		t.Errorf("a GET with a body was sent %d times, want 1", n)
	}
}

// What a client says of a request does not have it repeated either, over a connection
// that was used before.
func TestKeyOfIdempotency(t *testing.T) {
	t.Parallel()
	var seen atomic.Int64
	up := upstream(t, func(_ http.ResponseWriter, r *http.Request) {
		if r.Method == http.MethodPost {
			seen.Add(1)
			if r.Header.Get("Idempotency-Key")+r.Header.Get("X-Idempotency-Key") != "k" {
				t.Errorf("the headers are %v", r.Header)
			}
			panic(http.ErrAbortHandler)
		}
	})
	g := serveGateway(t, decider(t, nil), to(up.URL))
	for i, header := range []string{"Idempotency-Key: k", "X-Idempotency-Key: k"} {
		get(t, client(t), g.url+"/").wants(t, 200)
		ask(t, client(t), http.MethodPost, g.url+"/", nil, header).wants(t, 502)
		if n := seen.Load(); n != int64(i+1) {
			t.Errorf("a POST with %s was sent %d times", header, n-int64(i))
		}
	}
}

func TestTargetThatIsLate(t *testing.T) {
	t.Parallel()
	var seen atomic.Int64
	handler := func(_ http.ResponseWriter, r *http.Request) {
		seen.Add(1)
		<-r.Context().Done()
	}
	o := to(upstream(t, handler).URL, upstream(t, handler).URL)
	o.Upstreams[0].Timeouts.ResponseHeader = 50 * time.Millisecond
	g := serveGateway(t, decider(t, nil), o)
	get(t, client(t), g.url+"/").wants(t, 504)
	var sent int64
	for _, target := range g.current.Load().pools[0].targets {
		sent += target.requests.Load()
	}
	if sent != 1 {
		t.Errorf("it was sent %d times, want 1: what takes too long does so everywhere", sent)
	}
	eventually(t, "it has arrived", func() bool { return seen.Load() == 1 })
}

func TestEjection(t *testing.T) {
	t.Parallel()
	var seen atomic.Int64
	bad, good := hangingUp(t, &seen), namedUpstream(t, "good")
	o := to(bad, good)
	o.Upstreams[0].Eject = gatewayfile.Eject{After: 2, For: time.Hour}
	g := serveGateway(t, decider(t, nil), o)
	c := client(t)
	for range 20 {
		get(t, c, g.url+"/").wants(t, 200)
	}
	if n := seen.Load(); n != 2 {
		t.Errorf("the failing target got %d requests, want 2", n)
	}
	if !strings.Contains(g.log.String(), "a target fails and is ejected") {
		t.Errorf("the log is %s", g.log)
	}
	// One that fails is better than none.
	o = to(bad)
	o.Upstreams[0].Eject = gatewayfile.Eject{After: 1, For: time.Hour}
	g = serveGateway(t, decider(t, nil), o)
	seen.Store(0)
	for range 3 {
		get(t, c, g.url+"/").wants(t, 502)
	}
	if n := seen.Load(); n != 3 {
		t.Errorf("the only target got %d requests, want 3", n)
	}
}

func TestEjectionEndsAndGrows(t *testing.T) {
	t.Parallel()
	tt := &target{condition: new(condition), eject: gatewayfile.Eject{After: 2, For: time.Minute}}
	fail := func(want time.Duration) {
		t.Helper()
		if d, first := tt.failed(); d != want || first != (tt.inRow.Load() == 1) {
			t.Errorf("after %d failures it is passed over for %v, want %v", tt.failures.Load(), d, want)
		}
	}
	fail(0)
	tt.answered()
	fail(0)
	for _, d := range []time.Duration{time.Minute, 2 * time.Minute, 4 * time.Minute, gatewayfile.MaxEject, gatewayfile.MaxEject} {
		fail(d)
		if !tt.ejected() {
			t.Error("it is not passed over")
		}
		fail(0) // a request that was with it already
		tt.until.Store(1)
		if tt.ejected() {
			t.Error("it is still passed over")
		}
	}
	tt.answered()
	fail(0)
	fail(time.Minute)
}

func TestHealth(t *testing.T) {
	t.Parallel()
	var well atomic.Bool
	well.Store(true)
	var agent atomic.Value
	sick := upstream(t, func(w http.ResponseWriter, r *http.Request) {
		if r.URL.Path != "/healthz" {
			fmt.Fprint(w, "sick")
			return
		}
		agent.Store(r.UserAgent() + " " + r.URL.RawQuery)
		if !well.Load() {
			w.WriteHeader(http.StatusServiceUnavailable)
		}
	})
	o := to(sick.URL, namedUpstream(t, "good"))
	o.Upstreams[0].Health = &gatewayfile.Health{Path: "/healthz?deep=1", Every: 2 * time.Millisecond, Timeout: within}
	g := serveGateway(t, decider(t, nil), o)
	c := client(t)
	for _, up := range []bool{true, false, true} {
		well.Store(up)
		eventually(t, "the health is known", func() bool { return g.current.Load().pools[0].targets[0].down.Load() != up })
		got := ""
		for range 4 {
			got += get(t, c, g.url+"/").text
		}
		if strings.Contains(got, "sick") != up {
			t.Errorf("well: %t, and four requests went to %s", up, got)
		}
	}
	if agent.Load() != "headgate-health deep=1" {
		t.Errorf("it was asked as %q", agent.Load())
	}
	for _, want := range []string{"a target is down", "a target is up", "503 Service Unavailable"} {
		eventually(t, "the log has "+want, func() bool { return strings.Contains(g.log.String(), want) })
	}
}

func TestAllTargetsAreDown(t *testing.T) {
	t.Parallel()
	o := to(closedTarget(t), closedTarget(t))
	o.Upstreams[0].Health = &gatewayfile.Health{Path: "/", Every: time.Hour}
	g := serveGateway(t, decider(t, nil), o)
	// The first look counts at once.
	eventually(t, "both are down", func() bool { return g.current.Load().pools[0].pick(nil) == nil })
	get(t, client(t), g.url+"/").wants(t, 503, "Retry-After: 1", "Content-Type: application/problem+json")
}

func TestHealthOfOneThatHangs(t *testing.T) {
	t.Parallel()
	up := upstream(t, func(_ http.ResponseWriter, r *http.Request) { <-r.Context().Done() })
	o := to(up.URL)
	o.Upstreams[0].Health = &gatewayfile.Health{Path: "/", Every: time.Hour, Timeout: 20 * time.Millisecond}
	g := serveGateway(t, decider(t, nil), o)
	eventually(t, "it is down", func() bool { return g.current.Load().pools[0].targets[0].down.Load() })
	eventually(t, "the log says why", func() bool { return strings.Contains(g.log.String(), "no answer within 20ms") })
}

// A server that takes nothing of a request does not hold it for ever.
func TestTargetThatTakesNothing(t *testing.T) {
	t.Parallel()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close() // Connections wait there, and nobody reads.
	o := to("http://" + l.Addr().String())
	o.Upstreams[0].Timeouts.Idle = 100 * time.Millisecond
	g := serveGateway(t, decider(t, nil), o)
	r, err := http.NewRequestWithContext(t.Context(), http.MethodPut, g.url+"/", io.LimitReader(zeros{}, 64<<20))
	if err != nil {
		t.Fatal(err)
	}
	r.ContentLength = 64 << 20
	res, err := client(t).Do(r)
	if err != nil {
		// The client may see no more than that the connection was closed.
		eventually(t, "it has ended", func() bool { return g.counts.inFlight.Load() == 0 })
	} else if _ = res.Body.Close(); res.StatusCode != http.StatusGatewayTimeout {
		t.Errorf("the answer is %s", res.Status)
	}
	if n := g.current.Load().pools[0].targets[0].failures.Load(); n != 1 {
		t.Errorf("the target has failed %d times, want 1", n)
	}
}
