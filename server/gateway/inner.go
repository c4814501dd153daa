package gateway

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"os"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/headgate/headgate"
	"github.com/headgate/headgate/internal/routes"
	"github.com/headgate/headgate/internal/spelling"
	"github.com/headgate/headgate/policy"
)

// inner is a gateway with one version of its options. Once it is in force, only the condition of
// its targets and other parts changes. It is closed when another version is in force and the last
// request that began with it has ended.
type inner struct {
	*shared
	options   Options // checked, with defaults
	pools     []*pool
	routes    map[string]*route // by pattern
	whole     *route            // the route of all requests if there are no routes
	facts     []fact
	names     *names
	entries   []string    // the entries from which headers are set
	busy      *policy.Set // the bounds of Concurrency; nil if there are none
	tokens    *tokens
	settling  settling
	upgrading upgrading
	current   atomic.Pointer[plan]
	pool      sync.Pool // of *exchange

	watchers watchers
	watching task
	looking  task // the health checks of all pools

	// users counts the requests that use this version, plus one while it is in force.
	users  atomic.Int64
	unused chan struct{} // closed when users becomes 0
	once   sync.Once     // closes it
}

// task is background work that runs until it is ended. The zero task has nothing to do.
type task struct {
	stop context.CancelFunc
	all  sync.WaitGroup
}

// run runs each function in the background until the task is ended. It may be called once.
func (t *task) run(functions ...func(context.Context)) {
	ctx, stop := context.WithCancel(context.Background())
	t.stop = stop
	for _, f := range functions {
		t.all.Go(func() { f(ctx) })
	}
}

// end ends the task, and returns when all its functions have returned. Ending again does nothing.
func (t *task) end() {
	if t.stop != nil {
		t.stop()
		t.all.Wait()
	}
}

// route is a Route and where its requests go.
type route struct {
	Route
	pool              *pool
	maxBody           int64 // zero is no bound
	request, response []*Headers
}

// newInner makes a version from options. before is the version that it replaces, or nil. Nothing of
// it runs yet.
func newInner(ctx context.Context, s *shared, options Options, before *inner) (*inner, error) {
	o, problems := options.withDefaults()
	if s.decider == nil {
		problems.Add("decider", "there is nobody to decide")
	}
	g := &inner{
		shared: s, options: o, routes: make(map[string]*route), unused: make(chan struct{}),
		upgrading: upgrading{upgrades: &s.upgrades, idle: o.Clients.Upgraded, within: o.Clients.Response, protocols: o.Upgrades},
	}
	g.users.Store(1)
	g.busy = newBusy(o.Concurrency, s.hashKey, &problems)
	g.facts, g.names = facts(&g.options.Identity), newNames(&g.options)
	g.settling = newSettling(o.Settle)
	g.headerEntries(&problems)
	g.loadEntries(&problems)
	parts := make([]loadParts, len(o.Upstreams))
	for i := range o.Upstreams {
		if o.Upstreams[i].Load != nil && len(problems) == 0 {
			var err error
			if parts[i], err = newLoadParts(o.Upstreams[i].Load, o.Pressure, os.DirFS("/")); err != nil {
				problems.Add("pressure", "%v", err)
			}
		}
	}
	if err := problems.Err("gateway"); err != nil {
		return nil, err
	}
	if before != nil {
		// A policy that does not fit is refused before anything is fetched.
		if err := g.check(s.decider.Policy().Set); err != nil {
			return nil, err
		}
		g.tokens = before.tokens.with(o.Identity.JWT)
	}
	if g.tokens == nil {
		var err error
		if g.tokens, err = newTokens(ctx, &o); err != nil {
			return nil, fmt.Errorf("gateway: the keys of tokens: %w", err)
		}
	}
	g.open()
	for i, p := range g.pools {
		p.load = g.newLoad(&p.Upstream, parts[i], before)
	}
	if before != nil {
		for _, p := range before.pools {
			if !slices.ContainsFunc(g.pools, func(now *pool) bool { return now.Name == p.Name }) {
				g.gates.Forget(p.Name)
			}
		}
	}
	return g, nil
}

// open makes the parts that need no more checks.
func (g *inner) open() {
	o := &g.options
	byName := make(map[string]*pool)
	shortest := o.Clients.Response
	for _, u := range o.Upstreams {
		shortest = min(shortest, u.Timeouts.Idle)
	}
	g.watchers.every = max(shortest/4, time.Millisecond)
	for _, u := range o.Upstreams {
		p := newPool(u, &g.watchers, o.Logger)
		g.pools = append(g.pools, p)
		byName[u.Name] = p
	}
	g.whole = g.newRoute(Route{}, g.pools[0])
	for _, r := range o.Routes {
		p := g.pools[0]
		if r.Upstream != "" {
			p = byName[r.Upstream]
		}
		g.routes[r.Pattern] = g.newRoute(r, p)
	}
	g.pool.New = func() any { return newExchange(g) }
}

// start starts what runs beside the requests.
func (g *inner) start() {
	g.watching.run(g.watchers.run)
	g.tokens.use()
	var looks []func(context.Context)
	for _, p := range g.pools {
		if p.load != nil {
			looks = append(looks, p.load.tale.run)
		}
		if p.Health == nil {
			continue
		}
		for _, t := range p.targets {
			looks = append(looks, func(ctx context.Context) { p.watch(ctx, t) })
		}
	}
	g.looking.run(looks...)
}

// adopt takes over the condition of targets and other parts from a former version, which stops its
// health checks. inForce says that the former version was in force until now; otherwise it only has
// requests in progress.
func (g *inner) adopt(former *inner, inForce bool) {
	for _, p := range g.pools {
		if i := slices.IndexFunc(former.pools, func(f *pool) bool { return f.Name == p.Name }); i >= 0 {
			p.adopt(former.pools[i], inForce)
		}
	}
}

// release is called when a request has ended.
func (g *inner) release() {
	if g.users.Add(-1) == 0 {
		g.once.Do(func() { close(g.unused) })
	}
}

// close ends background work, except that for tokens, which other versions may share. It closes
// connections that nobody uses, which are all if there are no more requests.
func (g *inner) close() {
	g.looking.end()
	g.watching.end()
	for _, p := range g.pools {
		p.close()
		select {
		case <-g.unused:
			p.conns.close()
		default:
		}
	}
}

func (g *inner) newRoute(r Route, p *pool) *route {
	made := &route{Route: r, pool: p, maxBody: g.options.MaxBody}
	if r.MaxBody != 0 {
		made.maxBody = max(0, r.MaxBody)
	}
	// Changes that do nothing are left out, so that they take no time for each request.
	add := func(to *[]*Headers, all ...*Headers) {
		for _, h := range all {
			if len(h.Remove)+len(h.Set) > 0 {
				*to = append(*to, h)
			}
		}
	}
	add(&made.request, &g.options.Request, &made.Request)
	add(&made.response, &g.options.Response, &made.Response)
	return made
}

// headerEntries collects the entries from which headers are set, and adds a problem for each entry
// that no request has.
func (g *inner) headerEntries(problems *headgate.Problems) {
	find := func(field string, h *Headers) {
		for _, s := range h.Set {
			if s.Entry == "" || slices.Contains(g.entries, s.Entry) {
				continue
			}
			if !slices.ContainsFunc(g.facts, func(f fact) bool { return f.name == s.Entry }) {
				problems.Add(field+".set."+s.Name, "the header %s is set from the entry %q, which no request has", s.Name, s.Entry)
			}
			g.entries = append(g.entries, s.Entry)
		}
	}
	find("request_headers", &g.options.Request)
	find("response_headers", &g.options.Response)
	for i := range g.options.Routes {
		find(fmt.Sprintf("routes[%d].request_headers", i), &g.options.Routes[i].Request)
		find(fmt.Sprintf("routes[%d].response_headers", i), &g.options.Routes[i].Response)
	}
}

// found is the route of a request.
type found struct {
	route *route // nil if there is none
	name  string // the entry "route"
}

// find returns the route of a request, by its path. The error says why the route cannot be
// determined.
func (g *inner) find(r *http.Request, p *spelling.Path, in *plan) (found, *spelling.Error) {
	return spelling.Of(p, func(p *spelling.Path) (f found, known bool) {
		f = g.findAs(r, p, in)
		return f, f.route != nil && f.name != routes.Unmatched
	})
}

func (g *inner) findAs(r *http.Request, p *spelling.Path, in *plan) found {
	route := g.whole
	if len(g.routes) > 0 {
		if route = g.routes[in.table.Find(r, p)]; route == nil {
			return found{nil, routes.Unmatched}
		}
		switch {
		case route.Name != "":
			return found{route, route.Name}
		case !in.names.More():
			return found{route, route.Pattern}
		}
	}
	return found{route, in.names.Of(r, p)}
}

var errClosed = errors.New("gateway: it is being closed")
