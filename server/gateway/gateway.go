package gateway

import (
	"context"
	"crypto/rand"
	"net/http"
	"slices"
	"sync"
	"sync/atomic"

	"github.com/headgate/headgate"
	"github.com/headgate/headgate/flow/permits"
	"github.com/headgate/headgate/internal/identity"
	"github.com/headgate/headgate/internal/llm"
	"github.com/headgate/headgate/policy/inprogress"
	"github.com/headgate/headgate/server/decide"
	"github.com/headgate/headgate/telemetry/prom"
)

// Gateway is an [http.Handler] that forwards what the rules admit. It is safe for concurrent use.
// Make one with [New], and close it.
type Gateway struct {
	shared
	current atomic.Pointer[inner] // the version in force

	changing sync.Mutex // serializes changes of the options
	tasks    sync.WaitGroup
	closing  chan struct{} // closed by Close

	mu     sync.Mutex // guards what follows
	living []*inner   // versions that are not closed; the last one is in force
	closed bool
}

// shared is what all versions of a gateway's options share.
type shared struct {
	decider   decide.Decider
	counts    counts
	gates     *prom.Gates // of the upstreams
	buffers   buffers
	upgrades  upgrades
	addresses *permits.Gate // connections to clients, by their addresses
	unread    identity.Unread
	habits    llm.Habits // of calls to language models
	// keeper has the permits of the policy's bounds, and own those of Concurrency.
	keeper, own *inprogress.Keeper
	// hashKey is the key with which secrets are hashed in the keys of requests in progress. Nothing
	// else uses it.
	hashKey []byte
}

// New returns a gateway, and starts the health checks of its targets. The context bounds the first
// reading of keys. The error is a [*headgate.InvalidError] with every mistake in the options, or
// says that the keys of tokens cannot be read.
func New(ctx context.Context, decider decide.Decider, options Options) (*Gateway, error) {
	g := &Gateway{closing: make(chan struct{}), shared: shared{gates: prom.NewGates()}}
	g.decider, g.hashKey = decider, []byte(rand.Text())
	g.own = inprogress.New(inprogress.Options{})
	if g.keeper = options.Keeper; g.keeper == nil {
		g.keeper = inprogress.New(inprogress.Options{})
	}
	g.upgrades.open = make(map[*upgraded]struct{})
	var err error
	if g.addresses, err = permits.New(permits.Config{
		Name: "connections", Limit: headgate.MaxPermits, MaxKeys: headgate.MaxPermits,
	}); err != nil {
		return nil, err
	}
	first, err := newInner(ctx, &g.shared, options, nil)
	if err != nil {
		return nil, err
	}
	g.mu.Lock()
	defer g.mu.Unlock()
	g.putLocked(first)
	return g, nil
}

// Replace puts other options in force for requests that begin from now on. Requests in progress,
// including upgraded connections, keep the options with which they began. What they hold of a bound
// on requests in progress still counts if the bound keeps its Name and Per. Targets that stay keep
// their condition and their metrics. Connections to targets are made anew, and the old ones are
// closed when the last request with the old options has ended. If MaxHeader changes, or Header,
// Response or Idle of Clients, connections of clients end after their next answer.
//
// The context bounds the reading of keys, which are kept if the JWT is unchanged. If there is an
// error, nothing has changed: it is that of [New], or the one that [Gateway.Check] returns for the
// policy in force. The policy must not change meanwhile, because it would not have been checked
// with these options.
func (g *Gateway) Replace(ctx context.Context, options Options) error {
	g.changing.Lock()
	defer g.changing.Unlock()
	before := g.current.Load()
	next, err := newInner(ctx, &g.shared, options, before)
	if err != nil {
		return err
	}
	g.mu.Lock()
	defer g.mu.Unlock()
	if g.closed {
		next.tokens.drop()
		return errClosed
	}
	before.looking.end()
	for _, former := range g.living {
		next.adopt(former, former == before)
	}
	g.putLocked(next)
	g.retireLocked(before)
	return nil
}

// putLocked puts a version in force.
func (g *Gateway) putLocked(next *inner) {
	bound := next.options.Connections.PerAddress
	if bound == 0 {
		bound = headgate.MaxPermits
	}
	// The number was checked with the options.
	_ = g.addresses.SetLimit(int64(min(bound, headgate.MaxPermits)))
	if next.busy != nil {
		_ = g.own.Use(next.busy) // checked likewise
	}
	next.start()
	g.living = append(g.living, next)
	g.current.Store(next)
}

// retireLocked closes a version when its last request has ended, or when the gateway is closed.
func (g *Gateway) retireLocked(former *inner) {
	former.release()
	g.tasks.Go(func() {
		select {
		case <-former.unused:
		case <-g.closing:
		}
		former.close()
		g.mu.Lock()
		defer g.mu.Unlock()
		former.tokens.release()
		g.living = slices.DeleteFunc(g.living, func(in *inner) bool { return in == former })
	})
}

// Close ends the gateway's background work, and the upgraded connections. The server has to end
// requests in progress. Closing again does nothing.
func (g *Gateway) Close() {
	g.mu.Lock()
	if !g.closed {
		g.closed = true
		close(g.closing)
		g.retireLocked(g.current.Load())
	}
	g.mu.Unlock()
	g.upgrades.close()
	g.tasks.Wait()
}

// hold returns the version in force, which stays open until it is released.
func (g *Gateway) hold() *inner {
	for {
		in := g.current.Load()
		in.users.Add(1)
		if g.current.Load() == in {
			// The gateway itself was still using this version, so it was not closed before.
			return in
		}
		in.release()
	}
}

// ServeHTTP answers one request itself, or forwards it.
func (g *Gateway) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	in := g.hold()
	defer in.release()
	x, _ := in.pool.Get().(*exchange)
	x.begin(w, r)
	defer x.end()
	x.serve()
	x.served = true
}

var _ http.Handler = (*Gateway)(nil)
