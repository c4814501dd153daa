package linear

import (
	"context"
	"fmt"
	"math/rand/v2"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/anishathalye/porcupine"

	"github.com/headgate/headgate/store"
	"github.com/headgate/headgate/store/memory"
	"github.com/headgate/headgate/store/postgres"
	"github.com/headgate/headgate/store/redis"
	"github.com/headgate/headgate/test/servers"
)

func TestPermitsInMemory(t *testing.T) {
	for round := range 20 {
		permitsInOrder(t, uint64(round), memory.New())
	}
}

func TestPermitsOnServers(t *testing.T) {
	servers.Each(t, func(t *testing.T, s *servers.Server) {
		for round := range 5 {
			permits, err := redis.Open(t.Context(), "redis://"+s.Addr()+"?connect_timeout=30s", redis.Prefix(fmt.Sprintf("p%d:", round)), redis.Timeout(30*time.Second))
			if err != nil {
				t.Fatal(err)
			}
			permitsInOrder(t, uint64(round), permits)
			permits.Close()
		}
	})
}

func TestPermitsInPostgres(t *testing.T) {
	s := servers.StartPostgres(t)
	for round := range 3 {
		permits, err := postgres.Open(t.Context(), s.URL()+"?pool_max_conns=6&connect_timeout=60", postgres.Prefix(fmt.Sprintf("p%d:", round)), postgres.Timeout(30*time.Second))
		if err != nil {
			t.Fatal(err)
		}
		permitsInOrder(t, uint64(round), permits)
		permits.Close()
	}
}

// early is a store that now and then answers a release before it is done.
type early struct {
	store.Permits
	calls atomic.Int64
}

func (s *early) Release(ctx context.Context, key, holder string, epoch int64) (bool, error) {
	if s.calls.Add(1)%5 == 0 {
		go func() { _, _ = s.Permits.Release(ctx, key, holder, epoch) }()
		return true, nil
	}
	return s.Permits.Release(ctx, key, holder, epoch)
}

// TestFindsMistakesOfPermits: a store that answers before it has released is found out.
func TestFindsMistakesOfPermits(t *testing.T) {
	for seed := range uint64(100) {
		if result := permitOrder(t, seed, &early{Permits: memory.New()}); result == porcupine.Illegal {
			return
		}
	}
	t.Error("a store that answers too early passes")
}

func permitsInOrder(t *testing.T, seed uint64, permits store.Permits) {
	t.Helper()
	if got := permitOrder(t, seed, permits); got != porcupine.Ok {
		t.Errorf("seed %d: the search for an order of the calls ends with %v", seed, got)
	}
}

// permitOrder has several holders ask at once, and then looks for an order.
func permitOrder(t *testing.T, seed uint64, permits store.Permits) porcupine.CheckResult {
	t.Helper()
	const callers, calls = 6, 50
	start := time.Now()
	histories := make([][]porcupine.Operation, callers)
	var all sync.WaitGroup
	for caller := range callers {
		all.Go(func() {
			rng := rand.New(rand.NewPCG(seed, uint64(caller)))
			epochs := map[string]int64{}
			for range calls {
				a := asked{key: keys[rng.IntN(len(keys))], holder: fmt.Sprint(caller), cost: 1 + int64(caller%3)}
				switch n := rng.IntN(20); {
				case n < 9:
					a.do, a.wait = acquire, rng.IntN(3) != 0
				case n < 12 && epochs[a.key] != 0:
					a.do, a.epoch = renew, epochs[a.key]
				case n < 17:
					a.do = release
					if rng.IntN(3) != 0 {
						a.epoch = epochs[a.key]
					}
				case n < 18:
					a.do, a.holder = revoke, fmt.Sprint(rng.IntN(callers))
				default:
					a.do = holders
				}
				began := time.Since(start).Nanoseconds()
				out := a.ask(permits)
				ended := time.Since(start).Nanoseconds()
				if a.do == acquire && out.epoch != 0 {
					epochs[a.key] = out.epoch
				}
				histories[caller] = append(histories[caller], porcupine.Operation{ClientId: caller, Input: a, Output: out, Call: began, Return: ended})
			}
		})
	}
	all.Wait()
	var history []porcupine.Operation
	granted := 0
	for _, h := range histories {
		for _, o := range h {
			if o.Input.(asked).do == acquire && o.Output.(said).epoch != 0 {
				granted++
			}
		}
		history = append(history, h...)
	}
	if granted < callers {
		t.Errorf("%d leases were granted, which proves little", granted)
	}
	return checkPermits(history)
}

// ask asks, and returns what the model is to say too.
func (a *asked) ask(permits store.Permits) said {
	ctx := context.Background()
	switch a.do {
	case acquire:
		return toldOf(permits.Acquire(ctx, a.request()))
	case renew:
		return toldRenewed(permits.Renew(ctx, a.key, a.holder, a.epoch, store.MaxTTL))
	case release:
		ok, err := permits.Release(ctx, a.key, a.holder, a.epoch)
		if err != nil {
			return said{text: problemOf(err)}
		}
		return said{text: fmt.Sprint(ok)}
	case revoke:
		ok, err := permits.Revoke(ctx, a.key, a.holder)
		if err != nil {
			return said{text: problemOf(err)}
		}
		return said{text: fmt.Sprint(ok)}
	}
	all, err := permits.Holders(ctx, a.key)
	if err != nil {
		return said{text: problemOf(err)}
	}
	return toldHolders(all)
}
