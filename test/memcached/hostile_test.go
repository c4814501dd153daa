package memcached_test

import (
	"bytes"
	"fmt"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/bradfitz/gomemcache/memcache"

	"github.com/headgate/headgate"
	"github.com/headgate/headgate/store/memcached"
	"github.com/headgate/headgate/test/servers"
)

// TestHostileKeys: keys that memcached itself could not have, of its own words and of
// all lengths, have counters of their own, and names that it can have.
func TestHostileKeys(t *testing.T) {
	s := servers.StartMemcached(t, 64)
	store := open(t, s, nil, memcached.Prefix(strings.Repeat("\r\n", 32)), memcached.Part(strings.Repeat(" ", 64)))
	limiter := headgate.New(store, headgate.MustRule(strings.Repeat("r", headgate.MaxName), headgate.PerHour(99)))
	all := []string{
		"", " ", "\x00", "\x00\x00", "\xff", "\xff\xfe\x80", "k", "k ", " k", "k\x00", "K", "\r\nflush_all\r\n", "k\r\ndelete k\r\n", "\x7f\x1b[2J",
		strings.Repeat("k", 250), strings.Repeat("k", 251), strings.Repeat("\xff", headgate.MaxKey), string(bytes.Repeat([]byte("öä"), headgate.MaxKey/4)),
	}
	for i, key := range all {
		if d, err := limiter.AllowN(t.Context(), key, int64(i+1)); err != nil || d.Remaining != int64(98-i) {
			t.Errorf("%.20q: %d remain, %v; want %d", key, d.Remaining, err, 98-i)
		}
	}
	for i, key := range all {
		if d, err := limiter.Peek(t.Context(), key, 1); err != nil || d.Remaining != int64(98-i) {
			t.Errorf("%.20q: of its counter %d remain, %v; want %d", key, d.Remaining, err, 98-i)
		}
		if err := limiter.Reset(t.Context(), key); err != nil {
			t.Errorf("%.20q: %v", key, err)
		}
	}
}

// TestEviction: a counter that a full server has evicted is one that was never there, and
// fails no call.
func TestEviction(t *testing.T) {
	s := servers.StartMemcached(t, 2)
	limiter := headgate.New(open(t, s, nil), headgate.MustRule("r", headgate.Per(9, 30*24*time.Hour)))
	if _, err := limiter.AllowN(t.Context(), "k", 4); err != nil {
		t.Fatal(err)
	}
	client := memcache.New(s.Addr())
	client.Timeout, client.MaxIdleConns = 30*time.Second, 8
	defer client.Close()
	// Others fill the memory several times over, with values of all sizes, which it keeps
	// apart. Looking at the counter would keep it for longer.
	const rounds, each, writers = 8, 50_000, 8
	for round := range rounds {
		var all sync.WaitGroup
		for w := range writers {
			all.Go(func() {
				for i := range each / writers {
					item := &memcache.Item{Key: fmt.Sprintf("other-%d-%d-%d", round, w, i), Value: make([]byte, 8+i%64)}
					if err := client.Set(item); err != nil {
						t.Error(err)
						return
					}
				}
			})
		}
		all.Wait()
		switch d, err := limiter.Peek(t.Context(), "k", 1); {
		case err != nil:
			t.Fatal(err)
		case d.Remaining == 9:
			if d, err := limiter.Allow(t.Context(), "k"); err != nil || d.Remaining != 8 {
				t.Errorf("after the eviction %d remain, %v; want 8", d.Remaining, err)
			}
			return
		case d.Remaining != 5:
			t.Fatalf("%d remain, want 5, or 9 once it was evicted", d.Remaining)
		}
	}
	t.Errorf("two megabytes had room for %d values", rounds*each)
}

// TestRestartUnderLoad: a restart in the midst of calls fails those that it meets, and none
// that comes later; nobody gets more than a fresh allowance from it.
func TestRestartUnderLoad(t *testing.T) {
	const callers, limit, restarts = 8, 20, 3
	s := servers.StartMemcached(t, 64)
	limiter := headgate.New(open(t, s, nil), headgate.MustRule("r", headgate.Per(limit, 30*24*time.Hour)))
	var mu sync.Mutex
	admitted := map[string]int{}
	stop := make(chan struct{})
	var all sync.WaitGroup
	for c := range callers {
		all.Go(func() {
			for {
				select {
				case <-stop:
					return
				default:
				}
				key := strconv.Itoa(c % 2)
				if d, err := limiter.Allow(t.Context(), key); err == nil && d.Allowed {
					mu.Lock()
					admitted[key]++
					mu.Unlock()
				}
			}
		})
	}
	for range restarts {
		s.Restart()
	}
	close(stop)
	all.Wait()
	for key, n := range admitted {
		if n > limit*(restarts+1) {
			t.Errorf("key %s: %d were admitted through %d restarts, want at most %d", key, n, restarts, limit*(restarts+1))
		}
	}
	for call := range callers {
		if _, err := limiter.Allow(t.Context(), "fresh"); err != nil {
			t.Errorf("call %d after the last restart: %v", call, err)
		}
	}
}
