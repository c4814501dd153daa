package gateway

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"strings"
	"sync/atomic"
	"testing"
	"testing/fstest"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/headgate/headgate"
	"github.com/headgate/headgate/config/gatewayfile"
	"github.com/headgate/headgate/flow"
	"github.com/headgate/headgate/httplimit"
	"github.com/headgate/headgate/policy"
)

// bounded is an upstream with which n requests may be.
func bounded(n int64, targets ...string) gatewayfile.Upstream {
	u := upstreamOf(targets...)
	u.Load = &gatewayfile.Load{Initial: n, Min: n, Max: n, Wait: time.Millisecond}
	return u
}

// metric is the sum of what the gateway's metric of that name has with these labels, which
// are name=value.
func metric(t *testing.T, g *Gateway, name string, labels ...string) float64 {
	t.Helper()
	registry := prometheus.NewRegistry()
	if err := registry.Register(g); err != nil {
		t.Fatal(err)
	}
	families, err := registry.Gather()
	if err != nil {
		t.Fatal(err)
	}
	sum := 0.0
	for _, f := range families {
		if f.GetName() != name {
			continue
		}
	metrics:
		for _, m := range f.GetMetric() {
			have := ","
			for _, l := range m.GetLabel() {
				have += l.GetName() + "=" + l.GetValue() + ","
			}
			for _, want := range labels {
				if !strings.Contains(have, ","+want+",") {
					continue metrics
				}
			}
			sum += m.GetCounter().GetValue() + m.GetGauge().GetValue()
		}
	}
	return sum
}

// What is too much is refused, and marked; what is exempt passes.
func TestLoad(t *testing.T) {
	t.Parallel()
	entered, leave := make(chan struct{}, 1), make(chan struct{})
	up := upstream(t, func(w http.ResponseWriter, r *http.Request) {
		if r.URL.Path == "/slow" {
			entered <- struct{}{}
			<-leave
		}
		w.Header().Set("Class-Seen", strings.Join(r.Header["Headgate-Class"], "|"))
	})
	o := Options{Settings: gatewayfile.Settings{
		Upstreams: []gatewayfile.Upstream{bounded(1, up.URL)},
		Routes: []gatewayfile.Route{
			{Pattern: "/"},
			{Pattern: "/healthz", Load: gatewayfile.RouteLoad{Exempt: true}},
			{Pattern: "/export", Load: gatewayfile.RouteLoad{Class: new(flow.Sheddable)}},
		},
	}}
	f := serveGateway(t, decider(t, []policy.Rule{perKey(10)}), o)
	c := client(t)
	const forged = "Headgate-Class: critical_plus"
	get(t, c, f.url+"/", forged).wants(t, 200, "Class-Seen: critical")
	get(t, c, f.url+"/export", forged).wants(t, 200, "Class-Seen: sheddable")
	get(t, c, f.url+"/healthz", forged).wants(t, 200, "Class-Seen: ")
	done := make(chan int, 1)
	go func() { done <- get(t, client(t), f.url+"/slow").StatusCode }()
	next(t, entered)
	refused := get(t, c, f.url+"/export", "X-Api-Key: k")
	refused.wants(t, 503, "Headgate-Retry: no", "X-Envoy-Ratelimited: true", "Content-Type: application/problem+json", "X-Ratelimit-Limit: ")
	if after := refused.Header.Get("Retry-After"); after != "1" && after != "2" && after != "3" {
		t.Errorf("Retry-After is %q", after)
	}
	if !strings.Contains(refused.text, httplimit.TypeReducedCapacity) {
		t.Errorf("the problem is %s", refused.text)
	}
	get(t, c, f.url+"/healthz").wants(t, 200)
	close(leave)
	if status := next(t, done); status != 200 {
		t.Errorf("the request that was first is answered with %d", status)
	}
	// It was not charged.
	get(t, c, f.url+"/", "X-Api-Key: k").wants(t, 200, "X-Ratelimit-Remaining: 9")
	for name, want := range map[string]float64{"headgate_gate_shed_total gate=default class=sheddable": 1, "headgate_gate_limit gate=default": 1, "headgate_gate_in_progress": 0} {
		parts := strings.Fields(name)
		if got := metric(t, f.Gateway, parts[0], parts[1:]...); got != want {
			t.Errorf("%s is %v, want %v", name, got, want)
		}
	}
	if got := metric(t, f.Gateway, "headgate_gateway_requests_total", "outcome=shed", "status=5xx"); got != 1 {
		t.Errorf("%v requests were shed, by the metrics", got)
	}
}

// In shadow everything passes, and what would have been shed is counted.
func TestLoadInShadow(t *testing.T) {
	t.Parallel()
	entered, leave := make(chan struct{}, 2), make(chan struct{})
	up := upstream(t, func(http.ResponseWriter, *http.Request) {
		entered <- struct{}{}
		<-leave
	})
	u := bounded(1, up.URL)
	u.Load.Shadow = true
	f := serveGateway(t, decider(t, nil), Options{Settings: gatewayfile.Settings{Upstreams: []gatewayfile.Upstream{u}}})
	done := make(chan int, 2)
	for range 2 {
		go func() { done <- get(t, client(t), f.url+"/").StatusCode }()
		next(t, entered)
	}
	close(leave)
	if a, b := next(t, done), next(t, done); a != 200 || b != 200 {
		t.Errorf("the answers are %d and %d", a, b)
	}
	if got := metric(t, f.Gateway, "headgate_gate_shed_total"); got != 1 {
		t.Errorf("%v would have been shed, want 1", got)
	}
}

// gone waits until the client has gone, for which a server looks once it has read the body.
func gone(r *http.Request) {
	_, _ = io.Copy(io.Discard, r.Body)
	<-r.Context().Done()
}

// What the limit learns of how requests end.
func TestLoadLearns(t *testing.T) {
	t.Parallel()
	text := func(status int, chunked bool) http.HandlerFunc {
		return func(w http.ResponseWriter, _ *http.Request) {
			w.WriteHeader(status)
			_, _ = io.WriteString(w, "hello")
			if chunked {
				_ = http.NewResponseController(w).Flush()
			}
		}
	}
	arrived := make(chan struct{})
	for name, c := range map[string]struct {
		handler http.HandlerFunc
		want    string
	}{
		"200":          {text(200, false), "success"},
		"200, chunked": {text(200, true), "success"},
		"404":          {text(404, false), "ignore"},
		"500":          {text(500, false), "ignore"},
		"503":          {text(503, false), "overload"},
		"504":          {text(504, true), "overload"},
		"a broken connection": {func(http.ResponseWriter, *http.Request) {
			panic(http.ErrAbortHandler)
		}, "ignore"},
		"too late": {func(_ http.ResponseWriter, r *http.Request) { gone(r) }, "overload"},
		"the client leaves": {func(_ http.ResponseWriter, r *http.Request) {
			close(arrived)
			gone(r)
		}, "canceled"},
		"gRPC, exhausted": {func(w http.ResponseWriter, _ *http.Request) {
			w.Header().Set("Content-Type", "application/grpc")
			w.Header().Set("Trailer", "Grpc-Status")
			_, _ = io.WriteString(w, "x")
			_ = http.NewResponseController(w).Flush()
			w.Header().Set("Grpc-Status", "8")
		}, "overload"},
		"gRPC, not found": {func(w http.ResponseWriter, _ *http.Request) {
			w.Header().Set("Trailer", "Grpc-Status")
			_, _ = io.WriteString(w, "x")
			_ = http.NewResponseController(w).Flush()
			w.Header().Set("Grpc-Status", "5")
		}, "ignore"},
		"events": {func(w http.ResponseWriter, r *http.Request) {
			w.Header().Set("Content-Type", "text/event-stream")
			_ = http.NewResponseController(w).Flush()
			gone(r)
		}, "ignore"},
		"an upgrade": {func(w http.ResponseWriter, r *http.Request) { shout(t)(w, r) }, "ignore"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			u := bounded(5, upstream(t, c.handler).URL)
			if name == "too late" {
				u.Timeouts.ResponseHeader = 20 * time.Millisecond
			}
			f := serveGateway(t, decider(t, nil), Options{Settings: gatewayfile.Settings{Upstreams: []gatewayfile.Upstream{u}, Upgrades: []string{"shout"}}})
			if name == "an upgrade" {
				conn, _, _ := shouting(t, f.addr)
				defer conn.Close()
			} else {
				ctx, cancel := context.WithCancel(t.Context())
				defer cancel()
				r, err := http.NewRequestWithContext(ctx, http.MethodPost, f.url, strings.NewReader("x"))
				if err != nil {
					t.Fatal(err)
				}
				if name == "the client leaves" {
					go func() {
						<-arrived
						cancel()
					}()
				}
				go func() {
					if res, err := client(t).Do(r); err == nil {
						defer res.Body.Close()
						_, _ = io.Copy(io.Discard, res.Body)
					}
				}()
			}
			eventually(t, "the permit is given back", func() bool { return metric(t, f.Gateway, "headgate_gate_done_total") == 1 })
			if got := metric(t, f.Gateway, "headgate_gate_done_total", "outcome="+c.want); got != 1 {
				t.Errorf("the outcome is not %s", c.want)
			}
			if n := metric(t, f.Gateway, "headgate_gate_in_progress"); n != 0 {
				t.Errorf("%v are in progress", n)
			}
		})
	}
}

// A server that is not there says nothing about load, and what a limit denies was not with it.
func TestLoadIgnores(t *testing.T) {
	t.Parallel()
	f := serveGateway(t, decider(t, []policy.Rule{{Limits: headgate.MustRule("r", headgate.PerHour(1))}}),
		Options{Settings: gatewayfile.Settings{Upstreams: []gatewayfile.Upstream{bounded(5, "http://127.0.0.1:1")}}})
	get(t, client(t), f.url).wants(t, 502)
	get(t, client(t), f.url).wants(t, 429)
	for outcome, want := range map[string]float64{"ignore": 1, "unused": 1, "overload": 0, "success": 0} {
		if got := metric(t, f.Gateway, "headgate_gate_done_total", "outcome="+outcome); got != want {
			t.Errorf("%s: %v, want %v", outcome, got, want)
		}
	}
}

// Class and tenant are taken from entries; a request that is held for a leaky bucket is not
// with the upstream.
func TestLoadByEntries(t *testing.T) {
	t.Parallel()
	up := upstream(t, func(w http.ResponseWriter, r *http.Request) {
		w.Header().Set("Class-Seen", r.Header.Get("Headgate-Class"))
	})
	u := bounded(1, up.URL)
	u.Load.Class, u.Load.Tenant = "class", "api_key"
	o := Options{Settings: gatewayfile.Settings{
		Upstreams: []gatewayfile.Upstream{u},
		Identity:  gatewayfile.Identity{Resolver: trusting(t), Trusted: map[string]string{"class": "Headgate-Class"}},
	}}
	leaky := headgate.MustRule("leaky", headgate.Limit{Algorithm: headgate.LeakyBucket, Count: 50, Period: time.Second, Burst: 5})
	f := serveGateway(t, decider(t, []policy.Rule{{Limits: leaky}}), o)
	c := client(t)
	get(t, c, f.url, "Headgate-Class: sheddable").wants(t, 200, "Class-Seen: sheddable")
	get(t, c, f.url, "Headgate-Class: no class").wants(t, 200, "Class-Seen: critical")
	if n := metric(t, f.Gateway, "headgate_gate_done_total", "outcome=unused"); n != 1 {
		t.Errorf("%v permits were given back for the delay, want 1", n)
	}
	o.Identity.Resolver = nil
	o.Identity.Trusted = nil
	o.Identity.Headers = map[string]string{"class": "X-Class"}
	if err := f.Replace(t.Context(), o); err == nil || !strings.Contains(err.Error(), "any client can write") {
		t.Errorf("a class that anybody can claim: %v", err)
	}
	o.Identity.Headers = nil
	if err := f.Replace(t.Context(), o); err == nil || !strings.Contains(err.Error(), "no request has") {
		t.Errorf("a class that nobody has: %v", err)
	}
	o.Upstreams[0].Load = &gatewayfile.Load{Initial: 5, Max: 2, Queue: -1}
	if err := f.Replace(t.Context(), o); err == nil || !strings.Contains(err.Error(), "the initial limit is 5, must be 1 to 2") || !strings.Contains(err.Error(), "queue is -1") {
		t.Errorf("a limit that cannot be: %v", err)
	}
}

// A change of the options keeps a load that stays as it is, with what is in progress.
func TestReplaceKeepsLoad(t *testing.T) {
	t.Parallel()
	entered, leave := make(chan struct{}, 1), make(chan struct{})
	up := upstream(t, func(_ http.ResponseWriter, r *http.Request) {
		if r.URL.Path == "/slow" {
			entered <- struct{}{}
			<-leave
		}
	})
	o := Options{Settings: gatewayfile.Settings{Upstreams: []gatewayfile.Upstream{bounded(1, up.URL)}}}
	f := serveGateway(t, decider(t, nil), o)
	done := make(chan int, 1)
	go func() { done <- get(t, client(t), f.url+"/slow").StatusCode }()
	next(t, entered)
	o.MaxBody = 1 << 20
	if err := f.Replace(t.Context(), o); err != nil {
		t.Fatal(err)
	}
	get(t, client(t), f.url).wants(t, 503)
	o.Upstreams = []gatewayfile.Upstream{bounded(2, up.URL)}
	if err := f.Replace(t.Context(), o); err != nil {
		t.Fatal(err)
	}
	get(t, client(t), f.url).wants(t, 200)
	close(leave)
	next(t, done)
	if got := metric(t, f.Gateway, "headgate_gate_limit"); got != 2 {
		t.Errorf("the limit is %v, want 2", got)
	}
	o.Upstreams = []gatewayfile.Upstream{upstreamOf(up.URL)}
	if err := f.Replace(t.Context(), o); err != nil {
		t.Fatal(err)
	}
	if got := metric(t, f.Gateway, "headgate_gate_limit"); got != 0 {
		t.Errorf("a limit that has gone is %v", got)
	}
}

// What the log says of an upstream that sheds: when it begins, how it goes on, that it is over.
func TestTale(t *testing.T) {
	t.Parallel()
	log := new(journal)
	o := Options{Settings: gatewayfile.Settings{Upstreams: []gatewayfile.Upstream{bounded(1, "http://127.0.0.1:1")}}, Logger: log.logger()}
	g, err := New(t.Context(), decider(t, nil), o)
	if err != nil {
		t.Fatal(err)
	}
	defer g.Close()
	in := g.current.Load()
	in.looking.end() // The test looks itself.
	l := in.pools[0].load
	now := time.Now()
	look := func() { l.log.look(t.Context(), now) }
	lines := func() []string {
		text := strings.TrimSpace(log.String())
		if text == "" {
			return nil
		}
		return strings.Split(text, "\n")
	}
	p, err := l.gate.Acquire(t.Context(), flow.Request{})
	if err != nil {
		t.Fatal(err)
	}
	refuse := func(n int) {
		for range n {
			if _, err := l.gate.TryAcquire(t.Context(), flow.Request{Class: flow.Sheddable}); !errors.Is(err, flow.ErrShed) {
				t.Fatal(err)
			}
		}
	}
	look()
	if got := lines(); got != nil {
		t.Errorf("nothing was shed, and the log says %v", got)
	}
	refuse(3)
	look()
	refuse(2)
	now = now.Add(time.Second)
	look()
	if got := lines(); len(got) != 1 || !strings.Contains(got[0], "shed=3 limit=1 in_progress=1") || !strings.Contains(got[0], "sheddable.busy=3") || !strings.Contains(got[0], "level=WARN") {
		t.Errorf("the log says %v", got)
	}
	now = now.Add(warnEvery)
	refuse(1)
	look()
	if got := lines(); len(got) != 2 || !strings.Contains(got[1], "shed=3") {
		t.Errorf("the log says %v", got)
	}
	// What was shed between two lines is not counted again at each look.
	now = now.Add(time.Second)
	refuse(1)
	p.Done(flow.Success)
	for range calm / lookEvery {
		look()
		now = now.Add(lookEvery)
	}
	look()
	look()
	if got := lines(); len(got) != 3 || !strings.Contains(got[2], "shed=7 within=32s") || !strings.Contains(got[2], "level=INFO") {
		t.Errorf("the log says %v", got)
	}
}

func TestSignals(t *testing.T) {
	t.Parallel()
	files := fstest.MapFS{
		"sys/fs/cgroup/cpu/cpu.stat": {Data: []byte("nr_periods 5\nnr_throttled 1\n")},
		"proc/pressure/memory":       {Data: []byte("some avg10=0.00 avg60=0.00 avg300=0.00 total=0\n")},
	}
	signals, err := newSignals([]gatewayfile.Pressure{0, 1, 2}, files)
	if err != nil || len(signals) != 3 {
		t.Errorf("%d signals, %v", len(signals), err)
	}
	if _, err := newSignals([]gatewayfile.Pressure{1}, fstest.MapFS{}); err == nil || !strings.Contains(err.Error(), "pressure cpu") {
		t.Errorf("without a cgroup: %v", err)
	}
}

// Requests from everywhere, and a limit that moves: all permits come back.
func TestLoadUnderLoad(t *testing.T) {
	t.Parallel()
	var n atomic.Int64
	up := upstream(t, func(w http.ResponseWriter, _ *http.Request) {
		switch n.Add(1) % 5 {
		case 0:
			w.WriteHeader(503)
		case 1:
			panic(http.ErrAbortHandler)
		default:
			fmt.Fprint(w, "hello")
		}
	})
	u := upstreamOf(up.URL)
	u.Load = &gatewayfile.Load{Initial: 4, Queue: 4, Wait: time.Millisecond}
	f := serveGateway(t, decider(t, nil), Options{Settings: gatewayfile.Settings{Upstreams: []gatewayfile.Upstream{u}, Pressure: []gatewayfile.Pressure{0}}})
	done := make(chan struct{})
	for range 16 {
		go func() {
			defer func() { done <- struct{}{} }()
			c := client(t)
			for range 50 {
				ctx, cancel := context.WithTimeout(t.Context(), time.Second)
				r, _ := http.NewRequestWithContext(ctx, http.MethodGet, f.url, nil)
				if res, err := c.Do(r); err == nil {
					_, _ = io.Copy(io.Discard, res.Body)
					_ = res.Body.Close()
				}
				cancel()
			}
		}()
	}
	for range 16 {
		next(t, done)
	}
	eventually(t, "all permits are given back", func() bool { return metric(t, f.Gateway, "headgate_gate_in_progress") == 0 })
}
