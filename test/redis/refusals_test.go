package redis_test

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/headgate/headgate"
	"github.com/headgate/headgate/store/redis"
	"github.com/headgate/headgate/test/servers"
	"github.com/headgate/headgate/test/stores"
)

type refusal struct {
	word       string
	options    []servers.Option
	begin, end func(t *testing.T, s *servers.Server)
}

// refusals are what a server answers that cannot do its work, and how to bring it
// about and to end it.
var refusals = []refusal{
	{
		"READONLY", nil,
		func(t *testing.T, s *servers.Server) { stores.Do(t, s, "REPLICAOF", "127.0.0.1", "1") },
		func(t *testing.T, s *servers.Server) { stores.Do(t, s, "REPLICAOF", "NO", "ONE") },
	},
	{
		"OOM", nil,
		func(t *testing.T, s *servers.Server) { stores.Do(t, s, "CONFIG", "SET", "maxmemory", "1") },
		func(t *testing.T, s *servers.Server) { stores.Do(t, s, "CONFIG", "SET", "maxmemory", "0") },
	},
	{
		"NOREPLICAS", nil,
		func(t *testing.T, s *servers.Server) { stores.Do(t, s, "CONFIG", "SET", "min-replicas-to-write", "1") },
		func(t *testing.T, s *servers.Server) { stores.Do(t, s, "CONFIG", "SET", "min-replicas-to-write", "0") },
	},
	{
		"MISCONF",
		[]servers.Option{servers.Directive("save", "3600", "1000")},
		func(t *testing.T, s *servers.Server) {
			blockDump(t, s, true)
			stores.Do(t, s, "BGSAVE")
			stores.Until(t, "the save has failed", func() bool {
				info, err := s.Do(t.Context(), "INFO", "persistence")
				return err == nil && strings.Contains(info.(string), "rdb_last_bgsave_status:err")
			})
		},
		func(t *testing.T, s *servers.Server) {
			blockDump(t, s, false)
			stores.Do(t, s, "SAVE")
		},
	},
	{
		"BUSY",
		[]servers.Option{servers.Directive("lua-time-limit", "20")},
		func(t *testing.T, s *servers.Server) {
			go func() { _, _ = s.Do(t.Context(), "EVAL", "while true do end", "0") }()
			stores.Until(t, "a script takes too long", func() bool {
				_, err := s.Do(t.Context(), "DBSIZE")
				return err != nil && strings.Contains(err.Error(), "BUSY")
			})
		},
		func(t *testing.T, s *servers.Server) { stores.Do(t, s, "SCRIPT", "KILL") },
	},
	{
		"LOADING",
		[]servers.Option{
			servers.Directive("enable-debug-command", "yes"), servers.Directive("loading-process-events-interval-bytes", "1024"),
		},
		func(t *testing.T, s *servers.Server) {
			stores.Do(t, s, "DEBUG", "POPULATE", "2000", "other", "100")
			stores.Do(t, s, "CONFIG", "SET", "key-load-delay", "10000")
			go func() { _, _ = s.Do(t.Context(), "DEBUG", "RELOAD") }()
			stores.Until(t, "the server loads", func() bool {
				_, err := s.Do(t.Context(), "DBSIZE")
				return err != nil && strings.Contains(err.Error(), "LOADING")
			})
		},
		func(t *testing.T, s *servers.Server) { stores.Do(t, s, "CONFIG", "SET", "key-load-delay", "0") },
	},
}

// blockDump puts a directory in the place of the server's dump, or takes it away.
func blockDump(t *testing.T, s *servers.Server, block bool) {
	t.Helper()
	reply, err := s.Do(t.Context(), "CONFIG", "GET", "dir")
	if err != nil {
		t.Fatal(err)
	}
	dump := filepath.Join(reply.([]any)[1].(string), "dump.rdb")
	if !block {
		err = os.RemoveAll(dump)
	} else {
		err = os.MkdirAll(filepath.Join(dump, "x"), 0o700)
	}
	if err != nil {
		t.Fatal(err)
	}
}

// TestRefusals: what the server answers is an error that says so in its words, is
// charged to nobody, and ends with its cause.
func TestRefusals(t *testing.T) {
	rules := []*headgate.Rule{
		headgate.MustRule("bucket", headgate.Per(1000, 300*24*time.Hour)),
		headgate.MustRule("window", headgate.Sliding(1000, time.Hour)),
		headgate.MustRule("both", headgate.Per(1000, 300*24*time.Hour), headgate.Sliding(1000, time.Hour)),
	}
	for _, refusal := range refusals {
		t.Run(refusal.word, func(t *testing.T) {
			servers.Each(t, func(t *testing.T, s *servers.Server) {
				store, err := redis.Open(t.Context(), stores.Patiently(s.URL()), redis.Timeout(10*time.Second))
				if err != nil {
					t.Fatal(err)
				}
				t.Cleanup(store.Close)
				for _, rule := range rules {
					stores.Allow(t, store, rule, "k")
				}
				refusal.begin(t, s)
				for _, rule := range rules {
					// A replica's connections are dropped, and a call that was on its
					// way on one ends with an error of its own.
					stores.Until(t, rule.Name()+" is refused with "+refusal.word, func() bool {
						_, err := headgate.New(store, rule).Allow(t.Context(), "k")
						if !errors.Is(err, headgate.ErrUnavailable) {
							t.Fatalf("%s: got %v, want ErrUnavailable", rule, err)
						}
						return strings.Contains(err.Error(), refusal.word)
					})
				}
				refusal.end(t, s)
				for _, rule := range rules {
					stores.Until(t, "the server takes requests again", func() bool {
						_, err := headgate.New(store, rule).Peek(t.Context(), "k", 1)
						return err == nil
					})
					if d := stores.Allow(t, store, rule, "k"); d.Remaining != 998 {
						t.Errorf("%s: got %+v, want 998 remaining: nothing was done for the refused", rule, d)
					}
				}
			}, refusal.options...)
		})
	}
}

// TestOpenWhileLoading: a service that is started together with its server waits until that has loaded its data.
func TestOpenWhileLoading(t *testing.T) {
	i := slices.IndexFunc(refusals, func(r refusal) bool { return r.word == "LOADING" })
	servers.Each(t, func(t *testing.T, s *servers.Server) {
		refusals[i].begin(t, s)
		opened := make(chan error, 1)
		go func() {
			store, err := redis.Open(t.Context(), s.URL()+"?connect_timeout=1m")
			if err == nil {
				store.Close()
			}
			opened <- err
		}()
		select {
		case err := <-opened:
			t.Errorf("Open has ended while the server loads: %v", err)
		case <-time.After(200 * time.Millisecond):
			refusals[i].end(t, s)
			if err := <-opened; err != nil {
				t.Error(err)
			}
		}
	}, refusals[i].options...)
}

// balancer is a name that leads to one server and then to another, while the
// connections that were made before stay where they are.
type balancer struct {
	net.Listener
	target atomic.Pointer[string]
	all    sync.WaitGroup
}

func balance(t *testing.T, to *servers.Server) *balancer {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	b := &balancer{Listener: l}
	b.leadTo(to)
	ctx, cancel := context.WithCancel(context.Background())
	b.all.Go(func() {
		for {
			from, err := l.Accept()
			if err != nil {
				return
			}
			b.all.Go(func() { b.forward(ctx, from) })
		}
	})
	t.Cleanup(func() {
		l.Close()
		cancel()
		b.all.Wait()
	})
	return b
}

func (b *balancer) leadTo(s *servers.Server) {
	addr := s.Addr()
	b.target.Store(&addr)
}

func (b *balancer) forward(ctx context.Context, from net.Conn) {
	var d net.Dialer
	to, err := d.DialContext(ctx, "tcp", *b.target.Load())
	if err != nil {
		from.Close()
		return
	}
	stop := context.AfterFunc(ctx, func() {
		from.Close()
		to.Close()
	})
	defer stop()
	b.all.Go(func() {
		_, _ = io.Copy(to, from)
		to.Close()
	})
	_, _ = io.Copy(from, to)
	from.Close()
}

// TestNameOfAnotherServer: a store whose name has come to mean another server, while
// its connections lead to the one that has become a replica, finds the new one.
func TestNameOfAnotherServer(t *testing.T) {
	rule := headgate.MustRule("r", headgate.Per(10, 300*24*time.Hour))
	servers.Each(t, func(t *testing.T, old *servers.Server) {
		b := balance(t, old)
		store, err := redis.Open(t.Context(), stores.Patiently("redis://"+b.Addr().String()), redis.Timeout(10*time.Second))
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(store.Close)
		if d := stores.Allow(t, store, rule, "k"); d.Remaining != 9 {
			t.Fatalf("got %+v, want 9 remaining", d)
		}
		replacement := servers.Start(t, old.Kind(), servers.Directive("repl-diskless-sync-delay", "0"))
		b.leadTo(replacement)
		stores.Do(t, old, "REPLICAOF", "127.0.0.1", fmt.Sprint(replacement.Port()))
		stores.Until(t, "the old server is a replica in every respect", func() bool {
			info, err := old.Do(t.Context(), "INFO", "replication")
			return err == nil && strings.Contains(info.(string), "master_link_status:up")
		})
		// What the replica refuses is made again. A machine that is busy may take longer than that waits.
		if d, err := headgate.New(store, rule).Allow(t.Context(), "k"); err == nil && d.Remaining != 9 {
			t.Errorf("got %+v, want 9 remaining: the new server counts from nothing", d)
		} else if err != nil && (!errors.Is(err, headgate.ErrUnavailable) || !strings.Contains(err.Error(), "READONLY")) {
			t.Errorf("got %v, want an answer of the new server, or ErrUnavailable and READONLY", err)
		}
		stores.Recovers(t, headgate.New(store, rule))
	})
}
