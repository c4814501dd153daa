package app

import (
	"context"
	"strings"
	"time"

	"github.com/headgate/headgate"
	"github.com/headgate/headgate/store/memcached"
	"github.com/headgate/headgate/store/postgres"
	"github.com/headgate/headgate/store/redis"
)

// backend is a kind of store across a network, known by how its URLs begin.
type backend struct {
	schemes []string
	system  string // its name in OpenTelemetry's semantic conventions
	check   func(url string) error
	// describe leaves out what may be secret.
	describe func(url string) string
	// shares says that its stores have reservations, permits and messages too.
	shares bool
	open   func(ctx context.Context, url string, o backendOptions) (closer, error)
}

// backendOptions are the options for opening a store of any kind. If the timeout is zero, the URL's
// or the kind's own applies. A part is a separate set of counters. Only some kinds tell the
// observer of their calls.
type backendOptions struct {
	timeout  time.Duration
	part     string
	observer redis.Observer
}

type closer interface {
	headgate.Store
	Close()
}

// backends are all kinds.
func backends() []backend {
	return []backend{
		{
			[]string{"redis", "rediss", "redis-sentinel", "rediss-sentinel", "redis-cluster", "rediss-cluster"},
			"redis",
			redis.CheckURL, redis.DescribeURL, true,
			func(ctx context.Context, url string, o backendOptions) (closer, error) {
				return redis.Open(ctx, url, timed(o, redis.Timeout, redis.Part(o.part), redis.Observe(o.observer))...)
			},
		},
		{
			[]string{"postgres", "postgresql"},
			"postgresql",
			postgres.CheckURL, postgres.DescribeURL, true,
			func(ctx context.Context, url string, o backendOptions) (closer, error) {
				return postgres.Open(ctx, url, timed(o, postgres.Timeout, postgres.Part(o.part))...)
			},
		},
		{
			[]string{"memcached"},
			"memcached",
			memcached.CheckURL, memcached.DescribeURL, false,
			func(ctx context.Context, url string, o backendOptions) (closer, error) {
				return memcached.Open(ctx, url, timed(o, memcached.Timeout, memcached.Part(o.part))...)
			},
		},
	}
}

// backendOf returns the kind of store that a URL is for, or nil.
func backendOf(url string) *backend {
	scheme, _, _ := strings.Cut(url, "://")
	for _, b := range backends() {
		for _, s := range b.schemes {
			if scheme == s && scheme != url {
				return &b
			}
		}
	}
	return nil
}

// timed adds the timeout, if there is one, to a store's options.
func timed[O any](o backendOptions, timeout func(time.Duration) O, options ...O) []O {
	if o.timeout > 0 {
		options = append(options, timeout(o.timeout))
	}
	return options
}
