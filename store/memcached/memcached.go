package memcached

import (
	"context"
	"crypto/sha256"
	"encoding/base64"
	"errors"
	"fmt"
	"io"
	"syscall"
	"time"

	"github.com/bradfitz/gomemcache/memcache"

	"github.com/headgate/headgate"
	"github.com/headgate/headgate/store/cas"
)

// Store keeps counters in memcached. It is safe for concurrent use. Make one with
// [Open].
type Store struct {
	*cas.Store
	client *memcache.Client
	where  string
}

var _ headgate.Store = (*Store)(nil)

// Open makes a store on the servers that the URL names, and checks that they answer:
//
//	memcached://host[:port][,host[:port]…][?parameter=value…]
//
// Counters are spread over the servers by their names. If the number of servers changes, most
// counters are looked for on another server and begin again. docs/memcached.md lists the
// parameters. Host names are resolved once, by Open. The error is an [*headgate.InvalidError]
// if the URL or an option is at fault; otherwise it wraps [headgate.ErrUnavailable]. Close the
// store when it is no longer needed.
func Open(ctx context.Context, url string, options ...Option) (*Store, error) {
	set := newSettings()
	hosts, err := parseURL(url, &set)
	if err != nil {
		return nil, err
	}
	for _, o := range options {
		o(&set)
	}
	if err := set.check(); err != nil {
		return nil, err
	}
	where := describe(hosts)
	servers := new(memcache.ServerList)
	if err := servers.SetServers(hosts...); err != nil {
		return nil, fmt.Errorf("%w: %s: %w", headgate.ErrUnavailable, where, err)
	}
	if err := greet(ctx, servers); err != nil {
		return nil, fmt.Errorf("%w: %s: %w", headgate.ErrUnavailable, where, err)
	}
	client := memcache.NewFromSelector(servers)
	client.Timeout, client.MaxIdleConns = set.timeout, set.connections
	casOptions := append(set.options, cas.Timeout(set.timeout), cas.Lanes(set.connections), cas.Skew(set.skew))
	b := &backend{client: client, connections: set.connections}
	if set.clock != nil {
		b.slack = time.Hour
		casOptions = append(casOptions, cas.Clock(set.clock))
	}
	store, err := cas.New(b, casOptions...)
	if err != nil {
		return nil, err
	}
	return &Store{Store: store, client: client, where: where}, nil
}

// greet asks each server whether it is there. Its timeout is longer than a decision's.
func greet(ctx context.Context, servers *memcache.ServerList) error {
	wait := connectTimeout
	if deadline, ok := ctx.Deadline(); ok {
		wait = min(wait, time.Until(deadline))
	}
	if err := ctx.Err(); err != nil || wait <= 0 {
		return errors.Join(err, context.DeadlineExceeded)
	}
	first := memcache.NewFromSelector(servers)
	first.Timeout = wait
	return errors.Join(first.Ping(), first.Close())
}

// Close waits for the calls that are under way, refuses later calls and closes the
// connections.
func (s *Store) Close() {
	s.Store.Close()
	_ = s.client.Close() // of connections that nobody uses any more
}

// String describes the store in a line for logs.
func (s *Store) String() string { return s.where }

// backend is the [cas.Backend].
type backend struct {
	client      *memcache.Client
	connections int           // that may be idle
	slack       time.Duration // values expire so much later
}

// maxValue leaves room for the item's header in the megabyte that a server accepts.
const maxValue = 1_000_000

func (b *backend) MaxKeys() int  { return 1 }
func (b *backend) MaxValue() int { return maxValue }

type attempt struct {
	b    *backend
	item *memcache.Item
	had  bool // it was there
	now  int64
}

func (a *attempt) Now() int64 { return a.now }
func (a *attempt) Cancel()    {}

func (a *attempt) Value(int) []byte {
	if !a.had {
		return nil
	}
	return a.item.Value
}

// Begin implements [cas.Backend].
func (b *backend) Begin(ctx context.Context, keys []string) (cas.Attempt, error) {
	if err := ctx.Err(); err != nil {
		return nil, err
	}
	key := name(keys[0])
	item, err := b.client.Get(key)
	// After a server's restart the client's idle connections are dead. Reading can be
	// repeated without harm.
	for range b.connections {
		if !stale(err) || ctx.Err() != nil {
			break
		}
		item, err = b.client.Get(key)
	}
	a := &attempt{b: b, item: item, had: true, now: time.Now().UnixMicro()}
	if errors.Is(err, memcache.ErrCacheMiss) {
		a.item, a.had = &memcache.Item{Key: key}, false
	} else if err != nil {
		return nil, err
	}
	return a, nil
}

// stale reports whether the other side had closed the connection before.
func stale(err error) bool {
	return errors.Is(err, io.EOF) || errors.Is(err, syscall.ECONNRESET) || errors.Is(err, syscall.EPIPE)
}

// name returns the key under which memcached has a value.
func name(key string) string {
	sum := sha256.Sum256([]byte(key))
	return "hg" + base64.RawURLEncoding.EncodeToString(sum[:])
}

// Commit implements [cas.Attempt].
func (a *attempt) Commit(ctx context.Context, changes []cas.Change) (bool, error) {
	if len(changes) == 0 {
		return true, nil
	}
	if err := ctx.Err(); err != nil {
		return false, fmt.Errorf("%w: nothing was charged", err)
	}
	c := &changes[0]
	a.item.Value, a.item.Expiration = c.Value, a.b.expiration(c.Expires-a.now)
	if c.Value == nil {
		a.item.Value, a.item.Expiration = []byte{}, -1 // at once
	}
	var err error
	if a.had {
		err = a.b.client.CompareAndSwap(a.item)
	} else {
		err = a.b.client.Add(a.item)
	}
	switch {
	case err == nil:
		return true, nil
	case errors.Is(err, memcache.ErrCASConflict), errors.Is(err, memcache.ErrNotStored), errors.Is(err, memcache.ErrCacheMiss):
		return false, nil
	}
	return false, err
}

const (
	// longest is the largest number of seconds that memcached reads as a time from now. It
	// reads larger ones as a time since 1970.
	longest = 30 * 24 * 60 * 60
	// latest is the largest time that memcached can be given. A value that must be kept for
	// longer is stored without an end.
	latest = 1<<31 - 1
)

// expiration returns, as memcached takes it, a time that lies so many microseconds ahead,
// rounded up.
func (b *backend) expiration(left int64) int32 {
	seconds := max(left, 0)/1e6 + 2 + int64(b.slack/time.Second)
	if seconds <= longest {
		return int32(seconds)
	}
	if at := time.Now().Unix() + seconds; at <= latest {
		return int32(at)
	}
	return 0
}
