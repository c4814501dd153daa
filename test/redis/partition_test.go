package redis_test

import (
	"context"
	"errors"
	"net"
	"slices"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/headgate/headgate"
	"github.com/headgate/headgate/store/layered/fallback"
	"github.com/headgate/headgate/store/memory"
	"github.com/headgate/headgate/store/redis"
	"github.com/headgate/headgate/test/servers"
	"github.com/headgate/headgate/test/stores"
)

// line is what stands between one node and the server. What is lost on it is lost without a
// word: nothing is closed.
type line struct {
	addr string
	// loseRequests and loseAnswers say what is lost.
	loseRequests, loseAnswers atomic.Bool
}

func newLine(t *testing.T, s *servers.Server) *line {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	p := &line{addr: l.Addr().String()}
	var all sync.WaitGroup
	var mu sync.Mutex // guards open and over
	var open []net.Conn
	over := false
	forward := func(to, from net.Conn, lose *atomic.Bool) {
		defer to.Close()
		buffer := make([]byte, 64<<10)
		lost := false
		for {
			n, err := from.Read(buffer)
			if lost = lost || lose.Load(); err != nil {
				return
			}
			// A connection of which bytes were lost carries nothing any more: TCP would send
			// them again, and whoever has given up by then has closed it.
			if !lost {
				_, err = to.Write(buffer[:n])
			}
			if err != nil {
				return
			}
		}
	}
	all.Go(func() {
		for {
			near, err := l.Accept()
			if err != nil {
				return
			}
			far, err := net.Dial("tcp", s.Addr())
			if err != nil {
				_ = near.Close()
				continue
			}
			mu.Lock()
			open = append(open, near, far)
			late := over
			mu.Unlock()
			if late {
				_ = errors.Join(near.Close(), far.Close())
				continue
			}
			all.Go(func() { forward(far, near, &p.loseRequests) })
			all.Go(func() { forward(near, far, &p.loseAnswers) })
		}
	})
	t.Cleanup(func() {
		_ = l.Close()
		mu.Lock()
		over = true
		for _, c := range open {
			_ = c.Close()
		}
		mu.Unlock()
		all.Wait()
	})
	return p
}

// TestCutOff: one of three nodes is cut off from the server, in one direction, and
// the others are not. What is strict or leased stays within the limit, for a call whose
// answer is lost is not admitted. A rule that each node counts locally without the store
// is exceeded by the share of the one that is cut off, and by no more.
func TestCutOff(t *testing.T) {
	const limit, nodes = 1500, 3
	for _, direction := range []struct {
		name              string
		requests, answers bool
	}{
		{"requests are lost", true, false}, {"answers are lost", false, true},
	} {
		t.Run(direction.name, func(t *testing.T) {
			t.Parallel()
			s := servers.Start(t, servers.Redis)
			cable := newLine(t, s)
			open := func(prefix string) (all []headgate.Store) {
				for i := range nodes {
					url := s.URL()
					if i == 0 {
						// A connection that has gone silent is given up after some three times as long.
						url = "redis://" + cable.addr + "?connect_timeout=2s"
					}
					all = append(all, stores.OpenURL(t, url, redis.Prefix(prefix), redis.Timeout(200*time.Millisecond)))
				}
				return all
			}
			strict, local := open("strict:"), open("local:")
			leasing, _ := stores.Layers(t, headgate.Leased, open("leased:")...)
			leased := make([]headgate.Store, nodes)
			for i, n := range leasing {
				leased[i] = n.Store
			}
			fallbacks := make([]*fallback.Layer, nodes)
			for i, store := range local {
				// The last count of the nodes holds as long as the test lasts.
				f, err := fallback.New(store, fallback.Options{Local: memory.New(), Default: headgate.OnErrorLocal, Beat: time.Second})
				if err != nil {
					t.Fatal(err)
				}
				t.Cleanup(func() { _ = f.Close(context.Background()) })
				fallbacks[i], local[i] = f, f.Store()
			}
			stores.Until(t, "the nodes know of each other", func() bool {
				return !slices.ContainsFunc(fallbacks, func(f *fallback.Layer) bool { return f.Stats().Nodes < nodes })
			})
			loads := map[string]*load{"strict": spend(t, strict, headgate.Strict, limit), "leased": spend(t, leased, headgate.Leased, limit), "local": spend(t, local, headgate.Strict, limit)}
			reach := func(what string, enough func(*load) bool) {
				t.Helper()
				stores.Until(t, what, func() bool {
					for _, l := range loads {
						if !enough(l) {
							return false
						}
					}
					return true
				})
			}
			reach("all are under way", func(l *load) bool { return l.admitted.Load() > limit/10 })
			cable.loseRequests.Store(direction.requests)
			cable.loseAnswers.Store(direction.answers)
			stores.Until(t, "the node that is cut off knows it", func() bool {
				return loads["strict"].failed.Load() > 0 && fallbacks[0].Stats().State == fallback.Open
			})
			reach("the limits are used up", func(l *load) bool { return l.denied.Load() > 100 })
			cable.loseRequests.Store(false)
			cable.loseAnswers.Store(false)
			stores.Until(t, "the store decides again", func() bool { return fallbacks[0].Stats().State == fallback.Closed })
			for _, l := range loads {
				l.denied.Store(0)
			}
			reach("nothing is left", func(l *load) bool { return l.denied.Load() > 100 })
			for name, l := range loads {
				l.end()
				got, most, least := l.admitted.Load(), int64(limit), int64(limit/2)
				switch name {
				case "strict":
					least = limit - l.failed.Load()
				case "local":
					most, least = limit+limit/nodes, limit-l.failed.Load()
				}
				t.Logf("%s: %d of %d were admitted, %d calls failed", name, got, limit, l.failed.Load())
				if got > most || got < least {
					t.Errorf("%s: %d units were admitted, at most %d may be, and at least %d", name, got, most, least)
				}
			}
		})
	}
}

// load is callers of several nodes who take units of one limit.
type load struct {
	admitted, denied, failed atomic.Int64
	stop                     atomic.Bool
	all                      sync.WaitGroup
}

// spend begins a load, which ends with the test.
func spend(t *testing.T, nodes []headgate.Store, consistency headgate.Consistency, limit int64) *load {
	l := new(load)
	rule := headgate.MustRule("cut", headgate.Limit{Algorithm: headgate.FixedWindow, Count: limit, Period: 24 * time.Hour, Align: headgate.AlignFirst})
	checks := []headgate.Check{{Rule: rule, Key: "k", Hints: headgate.Hints{Consistency: consistency}}}
	for _, store := range nodes {
		for range 2 {
			l.all.Go(func() {
				for ; !l.stop.Load(); time.Sleep(5 * time.Millisecond) {
					switch out, err := store.Take(context.Background(), headgate.OpTake, checks, nil); {
					case err != nil:
						l.failed.Add(1)
					case headgate.NewVerdict(out).Allowed:
						l.admitted.Add(1)
					default:
						l.denied.Add(1)
					}
				}
			})
		}
	}
	t.Cleanup(l.end)
	return l
}

func (l *load) end() {
	l.stop.Store(true)
	l.all.Wait()
}
