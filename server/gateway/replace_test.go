package gateway

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/headgate/headgate"
	"github.com/headgate/headgate/config/gatewayfile"
	"github.com/headgate/headgate/policy"
	"github.com/headgate/headgate/server/decide"
	"github.com/headgate/headgate/store/memory"
)

// replace puts other options in force, with the fixture's log.
func (f *fixture) replace(t *testing.T, o Options) {
	t.Helper()
	o.Logger = f.log.logger()
	if err := f.Replace(t.Context(), o); err != nil {
		t.Fatal(err)
	}
}

// versions is how many versions of the options are not closed.
func (f *fixture) versions() int {
	f.mu.Lock()
	defer f.mu.Unlock()
	return len(f.living)
}

// connections is how many a pool has to its targets.
func connections(p *pool) int {
	p.conns.mu.Lock()
	defer p.conns.mu.Unlock()
	return len(p.conns.open)
}

// targets is how many targets the metrics tell of.
func (f *fixture) targets(t *testing.T) int {
	t.Helper()
	registry := prometheus.NewPedanticRegistry()
	registry.MustRegister(f)
	families, err := registry.Gather()
	if err != nil {
		t.Fatal(err)
	}
	for _, family := range families {
		if family.GetName() == "headgate_gateway_target_up" {
			return len(family.GetMetric())
		}
	}
	return 0
}

// held is an upstream server that answers with its name: at once, or under /held
// when it is let go.
func held(t *testing.T, name string) (url string, arrived, letGo chan struct{}) {
	t.Helper()
	arrived, letGo = make(chan struct{}, 10), make(chan struct{})
	s := upstream(t, func(w http.ResponseWriter, r *http.Request) {
		if r.URL.Path == "/held" {
			arrived <- struct{}{}
			select {
			case <-letGo:
			case <-r.Context().Done():
			}
		}
		fmt.Fprint(w, name, r.Header.Get("X-Added"))
	})
	return s.URL, arrived, letGo
}

// A request ends by the options that it began with, and what it holds of a bound
// counts on; then nothing is left of them.
func TestReplace(t *testing.T) {
	t.Parallel()
	one, arrived, letGo := held(t, "one")
	two, _, _ := held(t, "two")
	bound := func(limit int) gatewayfile.Concurrency {
		return gatewayfile.Concurrency{Name: "k", Match: []policy.Condition{policy.Equal("path", "/held")}, Per: []policy.Part{{Entry: "api_key"}}, Limit: limit}
	}
	o := to(one)
	o.Concurrency = []gatewayfile.Concurrency{bound(1)}
	o.Request.Set = []gatewayfile.Header{{Name: "X-Added", Value: "1"}}
	g := serveGateway(t, decider(t, []policy.Rule{perKey(100)}), o)
	c := client(t)
	first := make(chan answer, 1)
	go func() { first <- get(t, c, g.url+"/held", "X-API-Key: k") }()
	next(t, arrived)
	former := g.current.Load()

	o = to(one)
	o.Concurrency = []gatewayfile.Concurrency{bound(1)}
	g.replace(t, o)
	// The one in progress has the only permit, and is with its target.
	get(t, c, g.url+"/held", "X-API-Key: k").wants(t, 429)
	if n := g.current.Load().pools[0].targets[0].inFlight.Load(); n != 1 {
		t.Errorf("%d requests are with the first target", n)
	}
	o.Concurrency = []gatewayfile.Concurrency{bound(2)}
	g.replace(t, o)
	second := make(chan answer, 1)
	go func() { second <- get(t, c, g.url+"/held", "X-API-Key: k") }()
	next(t, arrived)
	get(t, c, g.url+"/held", "X-API-Key: k").wants(t, 429)

	g.replace(t, to(two))
	if a := get(t, c, g.url+"/"); a.text != "two" {
		t.Errorf("after the change %q answers", a.text)
	}
	// The target that went is told of until its last request has ended.
	if n := g.targets(t); n != 2 {
		t.Errorf("the metrics have %d targets", n)
	}
	if connections(former.pools[0]) == 0 || g.versions() < 2 {
		t.Error("what is in progress has nothing to be with")
	}
	close(letGo)
	if a := next(t, first); a.text != "one1" {
		t.Errorf("the request in progress got %q", a.text)
	}
	if a := next(t, second); a.text != "one" {
		t.Errorf("the second one got %q", a.text)
	}
	eventually(t, "what was before is closed", func() bool { return g.versions() == 1 && connections(former.pools[0]) == 0 })
	if n := g.targets(t); n != 1 {
		t.Errorf("the metrics have %d targets", n)
	}
}

// A target that stays is as it was: down, passed over, and with what it has counted.
func TestReplaceKeepsTheConditionOfTargets(t *testing.T) {
	t.Parallel()
	var down atomic.Bool
	var looks atomic.Int64
	up := upstream(t, func(w http.ResponseWriter, r *http.Request) {
		if r.URL.Path == "/health" {
			looks.Add(1)
			if down.Load() {
				w.WriteHeader(http.StatusInternalServerError)
			}
		}
	})
	const every = 5 * time.Millisecond
	o := to(up.URL)
	o.Upstreams[0].Health = &gatewayfile.Health{Path: "/health", Every: every, Timeout: within, UpAfter: 2, DownAfter: 1}
	g := serveGateway(t, decider(t, nil), o)
	c := client(t)
	get(t, c, g.url+"/").wants(t, 200)
	down.Store(true)
	first := g.current.Load().pools[0].targets[0]
	eventually(t, "it is down", first.down.Load)

	o.MaxBody = 1
	o.Upstreams[0].Health.DownAfter = 2
	g.replace(t, o)
	get(t, c, g.url+"/").wants(t, 503)
	now := g.current.Load().pools[0].targets[0]
	if now == first || now.requests.Load() != 1 || !now.down.Load() {
		t.Errorf("after the change it has %d requests and is down: %t", now.requests.Load(), now.down.Load())
	}
	// One that looks is enough: nobody asks for those before.
	eventually(t, "the first one is closed", func() bool { return g.versions() == 1 })
	down.Store(false)
	eventually(t, "it is up again", func() bool { return !now.down.Load() })

	// Without anybody who looks nothing is down.
	down.Store(true)
	eventually(t, "it is down again", now.down.Load)
	o.Upstreams[0].Health = nil
	g.replace(t, o)
	get(t, c, g.url+"/").wants(t, 200)
	// One that is on its way may still arrive.
	eventually(t, "nobody looks", func() bool {
		before := looks.Load()
		time.Sleep(20 * every)
		return looks.Load() == before
	})
}

// An upgraded connection goes on by the options that it began with.
func TestReplaceKeepsUpgradedConnections(t *testing.T) {
	t.Parallel()
	o := to(upstream(t, shout(t)).URL)
	o.Upgrades = []string{"shout"}
	g := serveGateway(t, decider(t, nil), o)
	conn, lines, res := shouting(t, g.addr)
	if res.StatusCode != http.StatusSwitchingProtocols {
		t.Fatal(res.Status)
	}
	other, _, _ := held(t, "other")
	g.replace(t, to(other))
	if a := get(t, client(t), g.url+"/"); a.text != "other" {
		t.Errorf("after the change %q answers", a.text)
	}
	for _, want := range []string{"EARLY\n", "LINE\n", "LINE\n"} {
		if line, err := lines.ReadString('\n'); line != want {
			t.Fatalf("%q comes back, %v", line, err)
		}
		if _, err := io.WriteString(conn, "line\n"); err != nil {
			t.Fatal(err)
		}
	}
	if g.upgrades.count() != 1 || g.versions() != 2 {
		t.Errorf("%d connections, %d versions", g.upgrades.count(), g.versions())
	}
	_ = conn.Close()
	eventually(t, "nothing is left of it", func() bool { return g.upgrades.count() == 0 && g.versions() == 1 })
}

// A mistake changes nothing.
func TestReplaceRefuses(t *testing.T) {
	t.Parallel()
	one, _, _ := held(t, "one")
	o := to(one)
	set := policy.Rule{Match: []policy.Condition{policy.Equal("route", "GET /a/{b}")}, Limits: headgate.MustRule("r", headgate.PerHour(100))}
	g := serveGateway(t, decider(t, []policy.Rule{set}), o)
	former := g.current.Load()
	for want, change := range map[string]func(*Options){
		"there are 0 upstreams": func(o *Options) { o.Upstreams = nil },
		"conflicts with":        func(o *Options) { o.Routes = []gatewayfile.Route{{Pattern: "GET /{a}/b"}} },
	} {
		next := o
		change(&next)
		var invalid *headgate.InvalidError
		if err := g.Replace(t.Context(), next); !errors.As(err, &invalid) || !strings.Contains(err.Error(), want) {
			t.Errorf("the error is %v, want one with %s", err, want)
		}
	}
	next := o
	next.Identity.JWT = &gatewayfile.JWT{Keys: "absent.json", Claims: map[string]string{"user": "sub"}}
	if err := g.Replace(t.Context(), next); err == nil || !strings.Contains(err.Error(), "absent.json") {
		t.Errorf("keys that are not there: %v", err)
	}
	if g.current.Load() != former || g.versions() != 1 {
		t.Error("something has changed")
	}
	g.Close()
	if err := g.Replace(t.Context(), o); !errors.Is(err, errClosed) {
		t.Errorf("after it was closed: %v", err)
	}
}

// Keys stay if the tokens are verified as before, even if nobody has them any more.
func TestReplaceKeepsKeys(t *testing.T) {
	t.Parallel()
	i := newIssuer(t, "ec")
	issuer := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) { _, _ = w.Write(i.set(t, "", "ec")) }))
	one, _, _ := held(t, "one")
	o := to(one)
	o.Identity.JWT = &gatewayfile.JWT{Keys: issuer.URL, Claims: map[string]string{"user": "sub"}}
	g := serveGateway(t, decider(t, nil), o)
	former := g.current.Load().tokens
	issuer.Close()
	o.MaxBody = 7
	g.replace(t, o)
	if g.current.Load().tokens != former {
		t.Error("the keys have been read anew")
	}
	eventually(t, "what was before is closed", func() bool { return g.versions() == 1 })
	o.Identity.JWT = &gatewayfile.JWT{Keys: issuer.URL, Audience: "other", Claims: map[string]string{"user": "sub"}}
	if err := g.Replace(t.Context(), o); err == nil {
		t.Error("keys were had from nobody")
	}
	o.Identity.JWT = nil
	g.replace(t, o)
	eventually(t, "nobody looks after the keys", func() bool {
		g.mu.Lock()
		defer g.mu.Unlock()
		return former.users == 0
	})
}

// The bound on connections of an address counts those that came before it.
func TestReplaceBoundsConnections(t *testing.T) {
	t.Parallel()
	one, _, _ := held(t, "one")
	o := to(one)
	g := serveGateway(t, decider(t, nil), o)
	get(t, client(t), g.url+"/").wants(t, 200) // and the connection is kept
	o.Connections.PerAddress = 1
	g.replace(t, o)
	r, err := http.NewRequestWithContext(t.Context(), http.MethodGet, g.url, http.NoBody)
	if err != nil {
		t.Fatal(err)
	}
	if res, err := client(t).Do(r); err == nil {
		_ = res.Body.Close()
		t.Errorf("a second connection is answered with %s", res.Status)
	}
	o.Connections.PerAddress = 2
	g.replace(t, o)
	get(t, client(t), g.url+"/").wants(t, 200)
}

// Options and policy change at once, under load, and not one request fails.
func TestReplaceUnderLoad(t *testing.T) {
	t.Parallel()
	one, _, _ := held(t, "one")
	two, _, _ := held(t, "two")
	var policies [2]decide.Policy
	for i := range policies {
		set, err := policy.New([]policy.Rule{perKey(int64(1_000_000 + i))})
		if err != nil {
			t.Fatal(err)
		}
		policies[i] = decide.Policy{Set: set, Version: int64(i)}
	}
	var version, answered atomic.Int64
	over := &decide.Over{Rules: func() decide.Policy { return policies[version.Load()%2] }, Store: memory.New()}
	options := func(i int) Options {
		o := to([]string{one, two}[i%2])
		o.Upstreams[0].Health = &gatewayfile.Health{Path: "/", Every: time.Millisecond, Timeout: within}
		o.Concurrency = []gatewayfile.Concurrency{{Name: "all", Limit: 100 + i}}
		o.Clients.Idle = time.Hour + time.Duration(i/4)*time.Minute // what a server must be told
		return o
	}
	g := serveGateway(t, over, options(0))
	ctx, stop := context.WithCancel(t.Context())
	var clients sync.WaitGroup
	for _, c := range []*http.Client{client(t), client(t), plainH2(t), plainH2(t)} {
		clients.Go(func() {
			for ctx.Err() == nil {
				// A POST is not sent again by anybody.
				if a := ask(t, c, http.MethodPost, g.url+"/", nil, "X-API-Key: k"); a.StatusCode != 200 || a.text != "one" && a.text != "two" {
					t.Errorf("%s %q", a.Status, a.text)
				}
				answered.Add(1)
			}
		})
	}
	for i := range 40 {
		version.Add(1)
		g.replace(t, options(i+1))
		// Some are served by each version.
		for from := answered.Load(); answered.Load() < from+5 && !t.Failed(); {
			time.Sleep(100 * time.Microsecond)
		}
	}
	stop()
	clients.Wait()
	eventually(t, "one version is left", func() bool { return g.versions() == 1 })
	if n := g.own.Stats(); len(n) != 1 {
		t.Errorf("%d bounds", len(n))
	}
	// A client may have its answer before the request has ended.
	eventually(t, "the permits are back", func() bool { return g.own.Stats()[0].Keys == 0 })
	for _, s := range g.own.Stats() {
		if s.Limit != 140 {
			t.Errorf("the limit is %d", s.Limit)
		}
	}
}
