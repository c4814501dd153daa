package gateway

import (
	"context"
	"fmt"
	"net/http"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/headgate/headgate"
	"github.com/headgate/headgate/server/decide"
	"github.com/headgate/headgate/server/routes"
)

// Gateway is an [http.Handler] that passes on what the rules admit. It is safe for
// concurrent use. Make one with [New], and close it.
type Gateway struct {
	options  Options // checked, with defaults
	decider  decide.Decider
	pools    []*pool
	table    routes.Table      // of the routes
	routes   map[string]*route // by pattern
	whole    *route            // of all requests, if there are no routes
	facts    []fact
	names    *names
	entries  []string // that headers are set from
	busy     *busy
	tokens   *tokens
	current  atomic.Pointer[plan]
	pool     sync.Pool // of *exchange
	buffers  buffers
	upgrades *upgrades
	counts   counts

	watchers watchers

	stop  context.CancelFunc
	tasks sync.WaitGroup
}

// route is a Route and where its requests go.
type route struct {
	Route
	pool              *pool
	maxBody           int64 // zero is no bound
	request, response []*Headers
}

// invalid is the error of mistakes, or nil if there are none.
func invalid(subject string, problems []string) error {
	if len(problems) == 0 {
		return nil
	}
	return &headgate.InvalidError{Subject: subject, Problems: problems}
}

// New returns a gateway whose targets are looked after from now on. The context
// bounds the first reading of keys. The error is a [*headgate.InvalidError] with
// every mistake in the options, or says that the keys of tokens cannot be read.
func New(ctx context.Context, decider decide.Decider, options Options) (*Gateway, error) {
	o, problems := options.withDefaults()
	if decider == nil {
		problems = append(problems, "there is nobody to decide")
	}
	g := &Gateway{
		options: o, decider: decider, routes: make(map[string]*route),
		upgrades: &upgrades{idle: o.Clients.Upgraded, within: o.Clients.Response, protocols: o.Upgrades, open: make(map[*upgraded]struct{})},
	}
	var wrong []string
	g.busy, wrong = newBusy(o.Concurrency)
	problems = append(problems, wrong...)
	for i := range o.Routes {
		if problem := g.table.Add(o.Routes[i].Pattern); problem != "" {
			problems = append(problems, "the route "+problem)
		}
	}
	g.facts, g.names = facts(&g.options.Identity), newNames(&g.options)
	problems = append(problems, g.headerEntries()...)
	if err := invalid("gateway", problems); err != nil {
		return nil, err
	}
	var err error
	if g.tokens, err = newTokens(ctx, &o); err != nil {
		return nil, fmt.Errorf("gateway: the keys of tokens: %w", err)
	}
	g.open()
	return g, nil
}

// open makes what needs no more checks, and starts what runs beside the requests.
func (g *Gateway) open() {
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
	ctx, stop := context.WithCancel(context.Background())
	g.stop = stop
	g.tasks.Go(func() { g.watchers.run(ctx) })
	if g.tokens != nil {
		g.tasks.Go(func() { g.tokens.keys.run(ctx) })
	}
	for _, p := range g.pools {
		if p.Health == nil {
			continue
		}
		for _, t := range p.targets {
			g.tasks.Go(func() { p.watch(ctx, t) })
		}
	}
}

func (g *Gateway) newRoute(r Route, p *pool) *route {
	made := &route{Route: r, pool: p, maxBody: g.options.MaxBody}
	if r.MaxBody != 0 {
		made.maxBody = max(0, r.MaxBody)
	}
	// What changes nothing is not looked at for each request.
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

// headerEntries finds the entries that headers are set from, and says which of them
// no request has.
func (g *Gateway) headerEntries() (problems []string) {
	changes := []*Headers{&g.options.Request, &g.options.Response}
	for i := range g.options.Routes {
		changes = append(changes, &g.options.Routes[i].Request, &g.options.Routes[i].Response)
	}
	for _, h := range changes {
		for _, s := range h.Set {
			if s.Entry == "" || slices.Contains(g.entries, s.Entry) {
				continue
			}
			if !slices.ContainsFunc(g.facts, func(f fact) bool { return f.name == s.Entry }) {
				problems = append(problems, fmt.Sprintf("the header %s is set from the entry %q, which no request has", s.Name, s.Entry))
			}
			g.entries = append(g.entries, s.Entry)
		}
	}
	return problems
}

// Close ends what runs beside the requests, and the connections that have been
// upgraded. Requests in progress are the server's to end. Closing again does
// nothing.
func (g *Gateway) Close() {
	g.stop()
	g.upgrades.close()
	g.tasks.Wait()
	for _, p := range g.pools {
		p.close()
	}
}

// ServeHTTP answers one request, or has an upstream server answer it.
func (g *Gateway) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	x, _ := g.pool.Get().(*exchange)
	x.begin(w, r)
	defer x.end()
	x.serve()
	x.served = true
}

// find returns the route of a request, nil if there is none, and whether it may be
// of another one, as its path is written.
func (g *Gateway) find(r *http.Request, n *routes.Names) (found *route, name string, ambiguous bool) {
	found, name = g.findAs(r, n)
	if other := routes.Otherwise(r); other != nil {
		route, as := g.findAs(other, n)
		ambiguous = route != found || as != name
	}
	return found, name, ambiguous
}

func (g *Gateway) findAs(r *http.Request, n *routes.Names) (found *route, name string) {
	found = g.whole
	if len(g.routes) > 0 {
		if found = g.routes[g.table.Find(r)]; found == nil {
			return nil, routes.Unmatched
		}
		switch {
		case found.Name != "":
			return found, found.Name
		case !n.More():
			return found, found.Pattern
		}
	}
	return found, n.Of(r)
}

var _ http.Handler = (*Gateway)(nil)
