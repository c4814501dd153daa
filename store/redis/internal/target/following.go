package target

import (
	"context"
	"sync/atomic"
	"time"

	"github.com/redis/rueidis"

	"github.com/headgate/headgate/internal/sleep"
	"github.com/headgate/headgate/store/redis/internal/guard"
)

// following is a client of the primary that Sentinels name. When they name another one, a new client
// takes the calls from then on, and the calls under way end on the connections that they are on.
// A single client would have to close those connections, and would fail calls that the old primary
// is about to answer: 13 to 16 of 60,000 in a planned handover.
//
// While a replica is being promoted, calls wait: what the old primary admits once it has been is lost, and
// what it admitted some milliseconds before has reached the replica.
type following struct {
	rueidis.Client // the first one, for what needs no connection

	links   *Links
	option  rueidis.ClientOption
	timeout time.Duration // by when every call has ended
	within  time.Duration // handOverWithin
	now     atomic.Pointer[reign]
	held    atomic.Pointer[chan struct{}] // closed when calls need not wait any more; nil if they need not
}

// reign is the client that calls use as long as the Sentinels name the same primary.
type reign struct {
	client rueidis.Client
	over   bool // no more connections are allowed; guarded by the mutex of Links
}

const (
	// handOverWithin is how long a new primary may take for its first answers. Until then the old one is
	// asked, and what it admits is lost.
	handOverWithin = 200 * time.Millisecond
	// heldWithin is how long calls wait for a promotion. A Sentinel takes about 100 ms for it.
	heldWithin = 300 * time.Millisecond
)

// follow returns a client of the primary that Sentinels name, for calls that end within the timeout.
// The Sentinels are asked for the first time within the dialer's timeout.
func (l *Links) follow(ctx context.Context, t *Target, option rueidis.ClientOption, timeout time.Duration) (client rueidis.Client, err error) {
	first := &reign{}
	option.DialCtxFn = l.dialer(first)
	f := &following{links: l, option: option, timeout: timeout, within: handOverWithin}
	if l.primary, err = t.follow(option.Dialer.Timeout, f.hold, f.move); err != nil {
		return nil, err
	}
	first.client, err = rueidis.NewClient(option)
	// A Sentinel that is cut off may name a primary that is gone. The next one may know better.
	for n := 1; err != nil && l.primary.known() && n < len(t.Hosts) && sleep.For(ctx, dropEvery); n++ {
		first.client, err = rueidis.NewClient(option)
	}
	if err != nil {
		return nil, t.unreachable(err)
	}
	f.Client = first.client
	f.now.Store(first)
	return f, nil
}

// hold has calls wait until the primary moves, or has not moved for a while.
func (f *following) hold() {
	held := make(chan struct{})
	if f.held.CompareAndSwap(nil, &held) {
		time.AfterFunc(heldWithin, func() { f.release(&held) })
	}
}

func (f *following) release(held *chan struct{}) {
	if held != nil && f.held.CompareAndSwap(held, nil) {
		close(*held)
	}
}

// client is that of the primary, when calls need not wait.
func (f *following) client(ctx context.Context) rueidis.Client {
	if held := f.held.Load(); held != nil {
		select {
		case <-*held:
		case <-ctx.Done(): // the call fails with that
		}
	}
	return f.now.Load().client
}

// move follows to a new primary.
func (f *following) move(address string) {
	defer func() { f.release(f.held.Load()) }()
	old, next := f.now.Load(), &reign{}
	if old != nil {
		option := f.option
		option.DialCtxFn = f.links.dialer(next)
		ctx, cancel := context.WithTimeout(context.Background(), f.within)
		defer cancel()
		var err error
		next.client, err = guard.Bounded(ctx, func() (rueidis.Client, error) { return rueidis.NewClient(option) })
		if err == nil {
			f.now.Store(next)
			time.AfterFunc(f.timeout, func() {
				f.links.end(old)
				old.client.Close()
			})
			return
		}
		f.links.end(next) // and with its connections the client
	}
	f.links.drop(func(one *link) bool { return one.address != address })
}

// Do implements [rueidis.Client].
func (f *following) Do(ctx context.Context, command rueidis.Completed) rueidis.RedisResult {
	return f.client(ctx).Do(ctx, command)
}

// DoMulti implements [rueidis.Client].
func (f *following) DoMulti(ctx context.Context, commands ...rueidis.Completed) []rueidis.RedisResult {
	return f.client(ctx).DoMulti(ctx, commands...)
}

// Receive implements [rueidis.Client].
func (f *following) Receive(ctx context.Context, subscribe rueidis.Completed, receive func(rueidis.PubSubMessage)) error {
	return f.now.Load().client.Receive(ctx, subscribe, receive)
}

// Close implements [rueidis.Client]. The clients of earlier primaries end with their Links.
func (f *following) Close() { f.now.Load().client.Close() }

// Mode implements [rueidis.Client].
func (f *following) Mode() rueidis.ClientMode { return rueidis.ClientModeSentinel }

// Nodes implements [rueidis.Client].
func (f *following) Nodes() map[string]rueidis.Client {
	f.links.primary.mu.Lock()
	defer f.links.primary.mu.Unlock()
	return map[string]rueidis.Client{f.links.primary.address: f}
}
