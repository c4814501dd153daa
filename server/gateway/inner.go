package gateway

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net/http"
	"os"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/headgate/headgate"
	"github.com/headgate/headgate/config/gatewayfile"
	"github.com/headgate/headgate/internal/routes"
	"github.com/headgate/headgate/internal/spelling"
	"github.com/headgate/headgate/policy"
	"github.com/headgate/headgate/server/decide"
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
	gatewayfile.Route
	pool              *pool
	maxBody           int64 // zero is no bound
	request, response []*gatewayfile.Headers
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
	if g.asksModels() {
		g.facts = append(g.facts, fact{"model", (*identified).model})
	}
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
		p := newPool(u, &g.watchers, o)
		g.pools = append(g.pools, p)
		byName[u.Name] = p
	}
	g.whole = g.newRoute(gatewayfile.Route{}, g.pools[0])
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
			looks = append(looks, p.load.log.run)
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

// asksModels reports whether an upstream is a provider of language models, whose calls are known by
// their paths.
func (g *inner) asksModels() bool {
	return slices.ContainsFunc(g.options.Upstreams, func(u gatewayfile.Upstream) bool { return u.LLM != nil })
}

func (g *inner) newRoute(r gatewayfile.Route, p *pool) *route {
	made := &route{Route: r, pool: p, maxBody: g.options.MaxBody}
	if r.MaxBody != 0 {
		made.maxBody = max(0, r.MaxBody)
	}
	if p.LLM != nil && made.maxBody == 0 {
		made.maxBody = gatewayfile.DefaultMaxCall // A call is read as a whole.
	}
	// Changes that do nothing are left out, so that they take no time for each request.
	add := func(to *[]*gatewayfile.Headers, all ...*gatewayfile.Headers) {
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
	find := func(field string, h *gatewayfile.Headers) {
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

// plan is what the gateway derives from its options for one version of the policy. It is immutable.
type plan struct {
	policy decide.Policy
	names  *routes.Names
	table  *routes.Table // finds routes by path
	facts  []fact        // the facts that are needed
	// readsPaths says that paths distinguish requests, needsPath that something uses the entry
	// "path", and readsMethods that the method matters. overridable says that requests are told
	// apart by their method, and that a server may take another one for it.
	readsPaths, needsPath, readsMethods, overridable bool
}

// plan returns the plan for the policy in force. It makes a new one after the policy has changed.
func (g *inner) plan() *plan {
	now := g.decider.Policy()
	p := g.current.Load()
	if p == nil || p.policy != now {
		p = g.newPlan(now)
		g.current.Store(p)
	}
	return p
}

func (g *inner) newPlan(now decide.Policy) *plan {
	p := &plan{policy: now}
	if err := g.keeper.Use(now.Set); err != nil {
		// Check refuses such a policy, too.
		g.options.Logger.Error("the policy's bounds on what is in progress cannot be enforced", slog.Any("error", err))
	}
	var problems []string
	p.names, p.table, problems = g.namesOf(now.Set)
	for _, problem := range problems {
		// Check refuses such a policy, but now it is in force already.
		g.options.Logger.Error("the policy names a route that cannot be found; its rules do not bind it", slog.String("problem", problem))
	}
	if p.names.Unsaid() {
		g.options.Logger.Warn("the policy does not say what is behind", slog.String("problem", routes.UnsaidText))
	}
	if lacking := g.settling.lacking(now.Set); len(lacking) > 0 {
		g.options.Logger.Warn("costs are to be settled under rules that the policy does not have", slog.String("rules", strings.Join(lacking, ", ")))
	}
	needed := make(map[string]bool)
	for _, name := range now.Entries() {
		needed[name] = true
	}
	if g.busy != nil {
		for _, name := range g.busy.Entries() {
			needed[name] = true
		}
	}
	for _, name := range g.entries {
		needed[name] = true
	}
	p.needsPath = needed["path"]
	p.readsPaths = p.needsPath || needed["route"] || len(g.routes) > 0 || g.asksModels()
	p.readsMethods = p.readsPaths || needed["method"]
	p.overridable = p.names.Forms()&spelling.IgnoredOverrides == 0 && (needed["method"] || p.names.Methods())
	for _, f := range g.facts {
		if needed[f.name] {
			p.facts = append(p.facts, f)
		}
		delete(needed, f.name)
	}
	for _, name := range now.Set.Subjects().Names() {
		delete(needed, name)
	}
	if len(needed) > 0 {
		var lacking []string
		for name := range needed {
			lacking = append(lacking, name)
		}
		slices.Sort(lacking)
		g.options.Logger.Warn("the policy looks at entries that no request will have", slog.String("entries", strings.Join(lacking, ", ")))
	}
	return p
}

// Check returns an error if the gateway, with the routes in force, cannot apply a policy. The error
// lists the routes in the policy that are no patterns, or that cannot be distinguished from each
// other.
func (g *Gateway) Check(set *policy.Set) error { return g.current.Load().check(set) }

func (g *inner) check(set *policy.Set) error {
	_, _, wrong := g.namesOf(set)
	var problems headgate.Problems
	for _, text := range wrong {
		problems.Add("match.route", "%s", text)
	}
	return errors.Join(problems.Err("policy"), g.keeper.Check(set))
}

// namesOf finds the routes of a policy, and those of the gateway. The problems are those of routes
// that cannot be found.
func (g *inner) namesOf(set *policy.Set) (names *routes.Names, table *routes.Table, problems []string) {
	names, problems = routes.New(set, spelling.Forms(g.options.Paths), g.patterns()...)
	table = &routes.Table{Forms: names.Forms()}
	for i := range g.options.Routes {
		r := &g.options.Routes[i]
		// Those of routes without a name are among the problems of the names.
		if problem := table.Add(r.Pattern); problem != "" && r.Name != "" {
			problems = append(problems, fmt.Sprintf("the route %q: %s", r.Name, problem))
		}
	}
	return names, table, problems
}

// patterns returns the patterns of the routes without a name of their own.
func (g *inner) patterns() []string {
	var all []string
	for i := range g.options.Routes {
		if r := &g.options.Routes[i]; r.Name == "" {
			all = append(all, r.Pattern)
		}
	}
	return all
}
