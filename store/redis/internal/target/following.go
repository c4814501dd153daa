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
// The calls that the old primary still admits are not more than it admitted before the Sentinels
// announced the new one. If it is a replica by then, it refuses them.
type following struct {
	rueidis.Client // the first one, for what needs no connection

	links   *Links
	option  rueidis.ClientOption
	timeout time.Duration // by when every call has ended
	within  time.Duration // handOverWithin
	now     atomic.Pointer[reign]
}

// reign is the client that calls use as long as the Sentinels name the same primary.
type reign struct {
	client rueidis.Client
	over   bool // no more connections are allowed; guarded by the mutex of Links
}

// handOverWithin is how long a new primary may take for its first answers. Until then the old one is
// asked, and what it admits is lost.
const handOverWithin = 200 * time.Millisecond

// follow returns a client of the primary that Sentinels name, for calls that end within the timeout.
// The Sentinels are asked for the first time within the dialer's timeout.
func (l *Links) follow(ctx context.Context, t *Target, option rueidis.ClientOption, timeout time.Duration) (client rueidis.Client, err error) {
	first := &reign{}
	option.DialCtxFn = l.dialer(first)
	f := &following{links: l, option: option, timeout: timeout, within: handOverWithin}
	if l.primary, err = t.follow(option.Dialer.Timeout, f.move); err != nil {
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

// move follows to a new primary.
func (f *following) move(address string) {
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
	return f.now.Load().client.Do(ctx, command)
}

// DoMulti implements [rueidis.Client].
func (f *following) DoMulti(ctx context.Context, commands ...rueidis.Completed) []rueidis.RedisResult {
	return f.now.Load().client.DoMulti(ctx, commands...)
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
