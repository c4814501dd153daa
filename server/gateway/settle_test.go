package gateway

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/http/httptrace"
	"net/textproto"
	"reflect"
	"slices"
	"strconv"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/headgate/headgate"
	"github.com/headgate/headgate/config/gatewayfile"
	"github.com/headgate/headgate/policy"
	"github.com/headgate/headgate/server/decide"
	"github.com/headgate/headgate/store/memory"
)

// settleFixture is a gateway with three rules for everybody: requests, of which each is
// one, traffic, by kibibytes, of which ten are estimated, and tokens, by what the
// upstream server says, of which fifty are estimated and each costs two.
type settleFixture struct {
	*fixture
	d   *decide.Over
	now *atomic.Int64
}

const hourly = 1_000_000

func newSettleFixture(t *testing.T, h http.HandlerFunc, change func(rules []policy.Rule, o *Options)) *settleFixture {
	t.Helper()
	rules := []policy.Rule{
		{Limits: headgate.MustRule("requests", headgate.Sliding(hourly, time.Hour))},
		{Limits: headgate.MustRule("traffic", headgate.Sliding(hourly, time.Hour))},
		{Limits: headgate.MustRule("tokens", headgate.Sliding(hourly, time.Hour)), Cost: 2},
	}
	o := to(upstream(t, h).URL)
	o.Settle = []gatewayfile.Settle{
		{Rule: "traffic", Per: 1024, Estimate: 10},
		{Rule: "tokens", Header: "x-tokens", Estimate: 50},
	}
	if change != nil {
		change(rules, &o)
	}
	f := &settleFixture{d: decider(t, rules), now: new(atomic.Int64)}
	f.now.Store(time.Now().UnixMicro())
	f.d.Store = memory.New(memory.Clock(f.now.Load))
	f.fixture = serveGateway(t, f.d, o)
	return f
}

// used is how much is used of requests, traffic and tokens.
func (f *settleFixture) used(t *testing.T) [3]int64 {
	t.Helper()
	var used [3]int64
	for i, name := range []string{"requests", "traffic", "tokens"} {
		c, err := f.d.Rules().Check(name, "", 1)
		if err != nil {
			t.Fatal(err)
		}
		decisions, err := f.d.Store.Take(t.Context(), headgate.OpPeek, []headgate.Check{c}, nil)
		if err != nil {
			t.Fatal(err)
		}
		used[i] = hourly - decisions[0].Remaining
	}
	return used
}

// settles waits until so much is used.
func (f *settleFixture) settles(t *testing.T, what string, want [3]int64) {
	t.Helper()
	eventually(t, what+" is over", func() bool { return f.counts.inFlight.Load() == 0 })
	if got := f.used(t); got != want {
		t.Errorf("%s: requests, traffic and tokens are used by %v, want %v", what, got, want)
	}
}

// What a request has really cost is charged, and while it is served the estimate.
func TestSettle(t *testing.T) {
	t.Parallel()
	for name, made := range map[string]func(*testing.T) *http.Client{"HTTP1": client, "HTTP2": plainH2} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			testSettle(t, made(t))
		})
	}
}

func testSettle(t *testing.T, c *http.Client) {
	var f *settleFixture
	f = newSettleFixture(t, func(w http.ResponseWriter, r *http.Request) {
		if got := f.used(t); got != [3]int64{1, 10, 100} {
			t.Errorf("while the request is served requests, traffic and tokens are used by %v, want the estimate", got)
		}
		for _, v := range r.URL.Query()["tokens"] {
			w.Header().Add("X-Tokens", v)
		}
		if v := r.URL.Query().Get("trailer"); v != "" {
			w.Header().Set("Trailer", "X-Tokens, X-Sum")
			defer w.Header().Set("X-Tokens", v)
			defer w.Header().Set("X-Sum", "sum")
		}
		if v := r.URL.Query().Get("late"); v != "" { // a trailer that was not announced
			defer w.Header().Set(http.TrailerPrefix+"X-Tokens", v)
		}
		status, _ := strconv.Atoi(r.URL.Query().Get("status"))
		w.WriteHeader(max(status, 200))
		size, _ := strconv.Atoi(r.URL.Query().Get("bytes"))
		_, _ = io.Copy(w, io.LimitReader(zeros{}, int64(size)))
		_ = http.NewResponseController(w).Flush()
	}, func(rules []policy.Rule, o *Options) {
		rules[1].GiveBackOn = policy.Statuses{{First: 500, Last: 599}}
		o.Routes = []gatewayfile.Route{{Pattern: "/"}, {Pattern: "/large", MaxBody: 1}}
	})
	for _, tt := range []struct {
		name, query string
		method      string
		want        [3]int64
	}{
		{"nothing at all", "", "GET", [3]int64{1, 0, 100}},
		{"a byte", "bytes=1&tokens=0", "GET", [3]int64{1, 1, 0}},
		{"less than estimated", "bytes=2048&tokens=7", "GET", [3]int64{1, 2, 14}},
		{"more than estimated", "bytes=100000&tokens=700", "GET", [3]int64{1, 98, 1400}},
		{"a trailer", "bytes=2049&trailer=3", "GET", [3]int64{1, 3, 6}},
		{"a trailer that goes before the header", "tokens=9&trailer=3&bytes=1", "GET", [3]int64{1, 1, 6}},
		{"a trailer that was not announced", "bytes=1&late=4", "GET", [3]int64{1, 1, 8}},
		{"no body", "bytes=2048&tokens=1", "HEAD", [3]int64{1, 0, 2}},
		{"a failure", "bytes=4000&tokens=1&status=503", "GET", [3]int64{1, 0, 2}},
		{"no number", "tokens=many", "GET", [3]int64{1, 0, 100}},
		{"a negative one", "tokens=-5", "GET", [3]int64{1, 0, 100}},
		{"two of them", "tokens=5&tokens=6", "GET", [3]int64{1, 0, 100}},
		{"a huge one", "tokens=99999999999999999999999", "GET", [3]int64{1, 0, headgate.MaxCount}},
	} {
		for _, rule := range []string{"requests", "traffic", "tokens"} {
			check, err := f.d.Rules().Check(rule, "", 1)
			if err != nil {
				t.Fatal(err)
			}
			if _, err := f.d.Store.Take(t.Context(), headgate.OpReset, []headgate.Check{check}, nil); err != nil {
				t.Fatal(err)
			}
		}
		a := ask(t, c, tt.method, f.url+"/?"+tt.query, nil)
		if _, told := a.Header["X-Tokens"]; told || a.Trailer.Get("X-Tokens") != "" || strings.Contains(a.Header.Get("Trailer"), "X-Tokens") {
			t.Errorf("%s: the client sees the cost: %v, %v", tt.name, a.Header, a.Trailer)
		}
		if strings.Contains(tt.query, "trailer") && a.Trailer.Get("X-Sum") != "sum" {
			t.Errorf("%s: the client gets the trailers %v", tt.name, a.Trailer)
		}
		want := tt.want
		want[2] = min(want[2], hourly)
		f.settles(t, tt.name, want)
	}
	if n := strings.Count(f.log.String(), "does not report the cost of its request"); n != 1 {
		t.Errorf("the log tells %d times of answers that do not say their cost:\n%s", n, f.log)
	}
	if n := f.counts.settlements[asEstimate].Load(); n != 4 {
		t.Errorf("%d reservations stayed as estimated, want 4", n)
	}
}

// What the gateway answers itself has a length and no other cost.
func TestSettleWithoutAnAnswer(t *testing.T) {
	t.Parallel()
	f := newSettleFixture(t, hello, func(rules []policy.Rule, o *Options) {
		rules[0].Limits = headgate.MustRule("requests", headgate.Sliding(hourly, time.Hour), headgate.Sliding(2, time.Minute))
		o.Routes = []gatewayfile.Route{{Pattern: "/there", Upstream: "nowhere"}}
		o.Upstreams = append(o.Upstreams, gatewayfile.Upstream{Name: "nowhere", Targets: []string{closedTarget(t)}})
	})
	c := client(t)
	get(t, c, f.url+"/absent").wants(t, 404)
	f.settles(t, "no route", [3]int64{1, 1, 100})
	get(t, c, f.url+"/there").wants(t, 502)
	f.settles(t, "no answer", [3]int64{2, 2, 200})
	get(t, c, f.url+"/there").wants(t, 429)
	f.settles(t, "a denial", [3]int64{2, 2, 200})
	if n := f.counts.settlements[asEstimate].Load(); n != 2 || strings.Contains(f.log.String(), "does not say") {
		t.Errorf("%d reservations stayed as estimated, want 2, and the log blames nobody:\n%s", n, f.log)
	}
}

// Whoever breaks an answer off has had what was sent.
func TestSettleWhatBreaksOff(t *testing.T) {
	t.Parallel()
	ended := make(chan struct{})
	f := newSettleFixture(t, func(w http.ResponseWriter, r *http.Request) {
		w.Header().Set("X-Tokens", "5")
		w.Header().Set("Trailer", "X-Tokens")
		_, _ = io.CopyN(w, zeros{}, 4096)
		_ = http.NewResponseController(w).Flush()
		if r.URL.Path == "/cut" {
			panic(http.ErrAbortHandler)
		}
		<-r.Context().Done()
		ended <- struct{}{}
	}, nil)
	c := client(t)
	res, err := c.Get(f.url + "/cut")
	if err != nil {
		t.Fatal(err)
	}
	if _, err := io.Copy(io.Discard, res.Body); err == nil {
		t.Error("half an answer is taken for a whole one")
	}
	_ = res.Body.Close()
	f.settles(t, "by the server", [3]int64{1, 4, 10})
	ctx, cancel := context.WithCancel(t.Context())
	r, err := http.NewRequestWithContext(ctx, http.MethodGet, f.url+"/", http.NoBody)
	if err != nil {
		t.Fatal(err)
	}
	if res, err = c.Do(r); err != nil {
		t.Fatal(err)
	}
	if _, err := io.CopyN(io.Discard, res.Body, 4096); err != nil {
		t.Fatal(err)
	}
	cancel()
	<-ended
	_ = res.Body.Close()
	f.settles(t, "by the client", [3]int64{2, 8, 20})
}

// An answer that lasts longer than its reservation is charged nonetheless, of rules
// that give back what is abandoned all of it.
func TestSettleAfterItHasExpired(t *testing.T) {
	t.Parallel()
	begun, last := make(chan struct{}), make(chan struct{})
	f := newSettleFixture(t, func(w http.ResponseWriter, _ *http.Request) {
		_, _ = io.CopyN(w, zeros{}, 1024)
		_ = http.NewResponseController(w).Flush()
		begun <- struct{}{}
		<-last
		w.Header().Set(http.TrailerPrefix+"X-Tokens", "60")
		_, _ = io.CopyN(w, zeros{}, 1024)
	}, func(rules []policy.Rule, _ *Options) {
		rules[0].Reservation.GiveBack = true
		rules[1].Reservation.For = 10 * time.Second
		rules[2].Reservation = policy.Reservation{For: 20 * time.Second, GiveBack: true}
	})
	finished := make(chan error, 1)
	go func() {
		res, err := client(t).Get(f.url + "/")
		if err == nil {
			_, err = io.Copy(io.Discard, res.Body)
			_ = res.Body.Close()
		}
		finished <- err
	}()
	<-begun
	if got := f.used(t); got != [3]int64{1, 10, 100} {
		t.Errorf("while the request is served %v are used", got)
	}
	f.now.Add(11e6)
	if _, err := f.d.Store.(headgate.Ledger).Recall(t.Context(), "any"); !errors.Is(err, headgate.ErrNoReservation) { // has the store look at what is due
		t.Fatal(err)
	}
	close(last)
	if err := <-finished; err != nil {
		t.Fatal(err)
	}
	// Less than the estimate stays the estimate.
	f.settles(t, "the long answer", [3]int64{1, 10, 120})
	if n := f.counts.settlements[late].Load(); n != 1 {
		t.Errorf("%d were late, want 1", n)
	}
}

// A connection that was upgraded costs what the client is sent over it.
func TestSettleAnUpgrade(t *testing.T) {
	t.Parallel()
	f := newSettleFixture(t, func(w http.ResponseWriter, _ *http.Request) {
		conn, rw, err := http.NewResponseController(w).Hijack()
		if err != nil {
			t.Error(err)
			return
		}
		defer conn.Close()
		fmt.Fprint(rw, "HTTP/1.1 101 Switching Protocols\r\nConnection: Upgrade\r\nUpgrade: websocket\r\nX-Tokens: 3\r\n\r\n")
		_, _ = rw.Write(slices.Repeat([]byte("."), 20_000))
		_ = rw.Flush()
	}, nil)
	conn := dial(t, f.addr)
	fmt.Fprint(conn, "GET / HTTP/1.1\r\nHost: h\r\nConnection: Upgrade\r\nUpgrade: websocket\r\n\r\n")
	text, err := io.ReadAll(conn)
	_ = conn.Close()
	if err != nil || len(text) < 20_000 || strings.Contains(string(text), "X-Tokens") {
		t.Fatalf("the client got %.200q, %v", text, err)
	}
	f.settles(t, "the upgraded connection", [3]int64{1, 20, 6})
}

// A header that is kept is seen, and one that no rule was settled by is removed.
func TestSettleKeepsTheHeader(t *testing.T) {
	t.Parallel()
	f := newSettleFixture(t, func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("X-Tokens", "3")
		w.Header().Set("X-Rows", "4")
	}, func(_ []policy.Rule, o *Options) {
		o.Settle[1].Keep = true
		o.Settle = append(o.Settle, gatewayfile.Settle{Rule: "absent", Header: "X-Rows"})
	})
	get(t, client(t), f.url+"/").wants(t, 200, "X-Tokens: 3", "X-Rows: ")
	f.settles(t, "the request", [3]int64{1, 0, 6})
	if !strings.Contains(f.log.String(), `under rules that the policy does not have" rules=absent`) {
		t.Errorf("the log does not tell of the rule:\n%s", f.log)
	}
}

// stubborn is a store that does not settle.
type stubborn struct{ *memory.Store }

func (stubborn) Settle(context.Context, headgate.Reservation, []int64, []headgate.Decision) ([]headgate.Decision, error) {
	return nil, headgate.ErrUnavailable
}

// What cannot be settled stays as estimated, and is told.
func TestSettleWithoutTheStore(t *testing.T) {
	t.Parallel()
	f := newSettleFixture(t, hello, nil)
	f.d.Store = stubborn{f.d.Store.(*memory.Store)}
	get(t, client(t), f.url+"/").wants(t, 200)
	f.settles(t, "the request", [3]int64{1, 10, 100})
	if f.counts.settlements[unsettled].Load() != 1 || !strings.Contains(f.log.String(), "could not be settled") {
		t.Errorf("the log is %s", f.log)
	}
}

// Whoever is held by a leaky bucket and leaves gets back what was taken, once.
func TestHeldRequestThatLeaves(t *testing.T) {
	t.Parallel()
	for _, settled := range []bool{false, true} {
		f := newSettleFixture(t, hello, func(rules []policy.Rule, o *Options) {
			rules[1].Limits = headgate.MustRule("traffic", headgate.Limit{Algorithm: headgate.LeakyBucket, Count: 1, Period: time.Hour, Burst: 1000})
			rules[1].GiveBackOn = policy.Statuses{{First: 400, Last: 499}}
			o.MaxDelay = 10 * 24 * 365 * time.Hour
			if !settled {
				o.Settle = nil
			}
		})
		store := &counting{Store: f.d.Store.(*memory.Store)}
		f.d.Store = store
		get(t, client(t), f.url+"/").wants(t, 200)
		eventually(t, "the first one is over", func() bool { return f.counts.inFlight.Load() == 0 })
		ctx, cancel := context.WithCancel(t.Context())
		r, err := http.NewRequestWithContext(ctx, http.MethodGet, f.url+"/", http.NoBody)
		if err != nil {
			t.Fatal(err)
		}
		left := make(chan struct{})
		go func() {
			defer close(left)
			if res, err := client(t).Do(r); err == nil {
				_ = res.Body.Close()
				t.Errorf("a request that is held is answered with %s", res.Status)
			}
		}()
		taken := int64(2)
		eventually(t, "the second one is held", func() bool { return store.taken.Load() == taken })
		before := store.returned.Load()
		cancel()
		<-left
		eventually(t, "it is over", func() bool { return f.counts.inFlight.Load() == 0 })
		if n := store.returned.Load() - before; n != 1 {
			t.Errorf("settled %t: what it took was given back %d times, want once", settled, n)
		}
	}
}

// counting counts what is taken and what is given back or settled.
type counting struct {
	*memory.Store
	taken, returned atomic.Int64
}

func (c *counting) Take(ctx context.Context, op headgate.Op, checks []headgate.Check, dst []headgate.Decision) ([]headgate.Decision, error) {
	switch op {
	case headgate.OpTake:
		defer c.taken.Add(1)
	case headgate.OpRefund:
		defer c.returned.Add(1)
	}
	return c.Store.Take(ctx, op, checks, dst)
}

func (c *counting) Reserve(ctx context.Context, terms headgate.Terms, checks []headgate.Check, dst []headgate.Decision) (headgate.Reservation, []headgate.Decision, error) {
	defer c.taken.Add(1)
	return c.Store.Reserve(ctx, terms, checks, dst)
}

func (c *counting) Settle(ctx context.Context, r headgate.Reservation, units []int64, dst []headgate.Decision) ([]headgate.Decision, error) {
	defer c.returned.Add(1)
	return c.Store.Settle(ctx, r, units, dst)
}

// What the client is not to see it does not see in an answer that goes before the
// answer either, nor what belongs to the connection with the upstream server; and the
// cost is what the answer says.
func TestInformationalAnswers(t *testing.T) {
	t.Parallel()
	for name, made := range map[string]func(*testing.T) *http.Client{"HTTP1": client, "HTTP2": plainH2} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			f := newSettleFixture(t, func(w http.ResponseWriter, _ *http.Request) {
				h := w.Header()
				h["Connection"], h["Keep-Alive"], h["Proxy-Connection"], h["Upgrade"] = []string{"keep-alive, X-Hop"}, []string{"timeout=5"}, []string{"close"}, []string{"h2c"}
				h["X-Hop"], h["X-Tokens"], h["X-Powered-By"], h["Link"] = []string{"1"}, []string{"9"}, []string{"a"}, []string{"</a>"}
				w.WriteHeader(http.StatusProcessing)
				w.WriteHeader(http.StatusEarlyHints)
				clear(h)
				h["X-Tokens"] = []string{"3"}
			}, func(_ []policy.Rule, o *Options) {
				o.Routes = []gatewayfile.Route{{Pattern: "/", Response: gatewayfile.Headers{Remove: []string{"X-Powered-By"}}}}
			})
			var informed []textproto.MIMEHeader
			ctx := httptrace.WithClientTrace(t.Context(), &httptrace.ClientTrace{Got1xxResponse: func(_ int, h textproto.MIMEHeader) error {
				informed = append(informed, h)
				return nil
			}})
			r, err := http.NewRequestWithContext(ctx, http.MethodGet, f.url, http.NoBody)
			if err != nil {
				t.Fatal(err)
			}
			res, err := made(t).Do(r)
			if err != nil {
				t.Fatal(err)
			}
			_ = res.Body.Close()
			if want := (textproto.MIMEHeader{"Link": {"</a>"}}); len(informed) != 2 || !reflect.DeepEqual(informed[0], want) || !reflect.DeepEqual(informed[1], want) {
				t.Errorf("the client was informed by %v", informed)
			}
			if res.StatusCode != 200 || res.Header.Get("X-Tokens") != "" {
				t.Errorf("the answer is %s with %v", res.Status, res.Header)
			}
			f.settles(t, "the request", [3]int64{1, 0, 6})
		})
	}
}
