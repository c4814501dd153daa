package shared

import (
	"fmt"
	"math"
	"time"

	"github.com/headgate/headgate"
	"github.com/headgate/headgate/store"
)

// The defaults of a [Config].
const (
	DefaultTTL     = 30 * time.Second
	DefaultMaxKeys = 1 << 16
)

// MaxLinger is the maximum of Config.Linger.
const MaxLinger = 50 * time.Millisecond

// Config says how much may be in progress, and how leases are kept alive.
type Config struct {
	// Name appears in rejections and errors.
	Name string
	// Prefix begins the name of each key in the store, so that different gates do not share keys.
	Prefix string
	// Limit is how many permits each key has over all processes, 1 to store.MaxPermits.
	Limit int64
	// TTL is how long a lease lasts after its last renewal, store.MinTTL to store.MaxTTL. It should
	// be many times as long as a call to the store takes. With a short TTL, the permits of a
	// crashed process become free sooner, but only short outages of the store are survived. Zero
	// means DefaultTTL.
	TTL time.Duration
	// Margin is how long before its end a lease counts as lost, so that the work has time to stop.
	// It must be less than half of TTL. Zero means a tenth of TTL.
	Margin time.Duration
	// Queue is how many requests of this process may wait for each key, and also how many requests
	// of all processes may stand in the store's line for it, up to store.MaxPermitQueue. Zero means
	// that no request waits.
	Queue int
	// MaxWait is how long a request may wait. Zero means as long as its context lasts.
	MaxWait time.Duration
	// Owner begins the names of this process's holders, so that people can see who holds a permit.
	// It has at most 96 bytes.
	Owner string
	// Linger is how long a lease that was given back is kept for the next request of this process
	// with the same key and cost, up to MaxLinger. Such a request does not call the store. A lease
	// is kept only if three quarters of the limit were free and nobody was waiting at the store's
	// last answer, and is released at the latest a tenth of a second after it was granted.
	// Successive requests on one lease have the same fence. Zero keeps no leases: Done then returns
	// after the permit is free for others.
	Linger time.Duration
	// OnError says what happens to a request while the store does not answer. OnErrorReturn and
	// OnErrorDeny return the store's error. OnErrorAllow admits the request. OnErrorLocal admits it
	// while this process has at most Share units of the key in progress.
	OnError headgate.OnError
	// Share is this process's part of the limit for OnErrorLocal, 1 to Limit. While the store does
	// not answer, the limit is the sum of the shares of all processes.
	Share int64
	// MaxKeys is how many keys may be in use in this process at a time. Zero means
	// DefaultMaxKeys.
	MaxKeys int
	// Lost is called for each lease that is lost, if it is not nil. It must be quick.
	Lost func(*LostError)
}

const (
	// maxOwner leaves room for the part of a name that distinguishes the holders of a process.
	maxOwner = 96
	// The default margin is TTL / marginPart.
	marginPart = 10
)

// prepare sets defaults, and returns an error if the configuration is invalid.
func (c *Config) prepare() error {
	if c.TTL == 0 {
		c.TTL = DefaultTTL
	}
	if c.Margin == 0 {
		c.Margin = c.TTL / marginPart
	}
	if c.MaxKeys == 0 {
		c.MaxKeys = DefaultMaxKeys
	}
	var problems headgate.Problems
	if c.Limit < 1 || c.Limit > store.MaxPermits {
		problems.Add("limit", "the limit is %d, must be 1 to %d", c.Limit, store.MaxPermits)
	}
	if len(c.Prefix) > headgate.MaxKey {
		problems.Add("prefix", "the prefix has %d bytes, must have at most %d", len(c.Prefix), headgate.MaxKey)
	}
	if c.TTL < store.MinTTL || c.TTL > store.MaxTTL {
		problems.Add("ttl", "the lease is to last for %v, must be %v to %v", c.TTL, store.MinTTL, store.MaxTTL)
	} else if c.Margin < 0 || c.Margin >= c.TTL/2 {
		problems.Add("margin", "the margin is %v, must be more than 0 and less than %v, half of the TTL", c.Margin, c.TTL/2)
	}
	if c.Queue < 0 || c.Queue > store.MaxPermitQueue {
		problems.Add("queue", "the queue is %d, must be 0 to %d", c.Queue, store.MaxPermitQueue)
	}
	if c.MaxWait < 0 {
		problems.Add("max_wait", "the longest wait is %v, must be 0 or more", c.MaxWait)
	}
	if c.Linger < 0 || c.Linger > MaxLinger {
		problems.Add("linger", "leases are to linger for %v, must be 0 to %v", c.Linger, MaxLinger)
	}
	if len(c.Owner) > maxOwner {
		problems.Add("owner", "the owner has %d bytes, must have at most %d", len(c.Owner), maxOwner)
	}
	if c.OnError.String() == "" && c.OnError != headgate.OnErrorReturn || c.OnError > headgate.OnErrorLocal {
		problems.Add("on_error", "what is done on errors is %d, must be %d to %d", uint8(c.OnError), headgate.OnErrorReturn, headgate.OnErrorLocal)
	}
	if c.OnError == headgate.OnErrorLocal && (c.Share < 1 || c.Share > c.Limit) {
		problems.Add("share", "the share is %d, must be 1 to the limit of %d", c.Share, c.Limit)
	}
	if c.MaxKeys < 0 || c.MaxKeys > math.MaxInt32 {
		problems.Add("max_keys", "the number of keys is %d, must be 1 or more, or 0 for %d", c.MaxKeys, DefaultMaxKeys)
	}
	return problems.Err(fmt.Sprintf("shared permits %q", c.Name))
}
