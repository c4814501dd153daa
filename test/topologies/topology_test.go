package topologies

import (
	"hash/fnv"
	"math/rand/v2"
	"reflect"
	"slices"
	"strconv"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/redis/rueidis"

	"github.com/headgate/headgate"
	"github.com/headgate/headgate/store/storetest"
	"github.com/headgate/headgate/test/servers"
	"github.com/headgate/headgate/test/stores"
)

// eachKind runs a test for every kind of server.
func eachKind(t *testing.T, test func(t *testing.T, kind servers.Kind)) {
	for _, kind := range servers.Kinds() {
		t.Run(string(kind), func(t *testing.T) { test(t, kind) })
	}
}

// oneKind runs a test for Valkey, and in `make soak` for every kind of server. It is for tests of
// the store's own work, which is the same for both.
func oneKind(t *testing.T, test func(t *testing.T, kind servers.Kind)) {
	if stores.Soaking(t) {
		eachKind(t, test)
	} else {
		test(t, servers.Valkey)
	}
}

// crowd has so many callers ask one time after another, each until ask returns false or stop is
// called. ask is given the numbers of the caller and of the time. stop waits for all callers.
func crowd(t *testing.T, callers int, ask func(caller, n int) (goOn bool)) (stop func()) {
	var all sync.WaitGroup
	var stopped atomic.Bool
	for i := range callers {
		all.Go(func() {
			for n := 0; !stopped.Load(); n++ {
				if !ask(i, n) {
					return
				}
			}
		})
	}
	return func() {
		t.Helper()
		stopped.Store(true)
		stores.Ended(t, "all calls have ended", stores.Waited(&all))
	}
}

// topologies are the servers in every form but that of a single one.
func topologies(t *testing.T, test func(t *testing.T, kind servers.Kind, client rueidis.Client)) {
	t.Helper()
	eachKind(t, func(t *testing.T, kind servers.Kind) {
		t.Run("sentinel", func(t *testing.T) {
			s := servers.StartSentinel(t, kind)
			option := rueidis.ClientOption{Sentinel: rueidis.SentinelOption{MasterSet: servers.MasterName}}
			for _, one := range s.Sentinels {
				option.InitAddress = append(option.InitAddress, one.Addr())
			}
			test(t, kind, connect(t, option))
		})
		t.Run("cluster", func(t *testing.T) {
			c := servers.StartCluster(t, kind)
			test(t, kind, connect(t, rueidis.ClientOption{InitAddress: []string{c.Nodes[0].Addr(), c.Nodes[1].Addr()}}))
		})
	})
}

func connect(t *testing.T, option rueidis.ClientOption) rueidis.Client {
	t.Helper()
	option.DisableRetry, option.DisableCache = true, true
	option.Dialer.Timeout, option.ConnWriteTimeout = 30*time.Second, 30*time.Second
	client, err := rueidis.NewClient(option)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(client.Close)
	return client
}

// TestTopologiesConform: the same decisions, however the servers belong together. test/redis
// runs the whole suite on a single server of each kind, and what a cluster adds, a request whose
// counters are in several slots, is the store's own work and the same for both kinds. So here
// the whole suite runs on a cluster of one kind. The other kind, and the servers that Sentinels
// name, which are single ones, get histories only, and the whole suite in `make soak`.
func TestTopologiesConform(t *testing.T) {
	topologies(t, func(t *testing.T, kind servers.Kind, client rueidis.Client) {
		open := func(t testing.TB, clock func() int64) headgate.Store { return stores.Open(t, client, clock) }
		if stores.Soaking(t) || kind == servers.Redis && client.Mode() == rueidis.ClientModeCluster {
			storetest.Run(t, open)
		}
		t.Run("histories", func(t *testing.T) { histories(t, client) })
	})
}

// histories compares random requests under many rules and keys, whose counters are
// in many slots, with the model: each decision, and so that a request which is
// denied leaves nothing behind. The clock only goes on: a counter that was in use
// for a moment does not remember what it was before.
func histories(t *testing.T, client rueidis.Client) {
	seed := fnv.New64a()
	_, _ = seed.Write([]byte(t.Name())) // whatever other tests ran before
	rng := rand.New(rand.NewPCG(4, seed.Sum64()))
	clock := storetest.NewClock(storetest.Epoch)
	store, model := stores.Open(t, client, clock.Now), storetest.NewModel(clock.Now)
	var rules []*headgate.Rule
	for i, limits := range [][]headgate.Limit{
		{headgate.Per(20, 10*time.Second)},
		{headgate.Per(1000, time.Second).WithBurst(9), headgate.Per(50, time.Minute)},
		{headgate.Sliding(9, 3*time.Second), headgate.Sliding(30, time.Minute)},
		{{Algorithm: headgate.FixedWindow, Count: 12, Period: 5 * time.Second}},
		{{Algorithm: headgate.FixedWindow, Count: 12, Period: 5 * time.Second, Align: headgate.AlignFirst}, headgate.Sliding(20, 7*time.Second)},
		{{Algorithm: headgate.FixedWindow, Count: 40, Align: headgate.AlignMinute}},
		{{Algorithm: headgate.SlidingCounter, Count: 15, Period: 4 * time.Second}},
		{{Algorithm: headgate.LeakyBucket, Count: 30, Period: 10 * time.Second}, headgate.Blocking(5, 2*time.Second, 100*time.Millisecond, time.Second)},
	} {
		rule := headgate.MustRule("r"+strconv.Itoa(i), limits...)
		if i%3 == 2 {
			var err error
			if rule, err = rule.WithTag("shared"); err != nil {
				t.Fatal(err)
			}
		}
		rules = append(rules, rule)
	}
	var past []headgate.Check
	denied, over := 0, max(600, storetest.Steps(t, 8_000)/50)
	for n := range over {
		if rng.IntN(3) == 0 {
			clock.Add(time.Duration(rng.Int64N(int64(time.Second))))
		}
		op := headgate.OpTake
		switch rng.IntN(30) {
		case 0, 1:
			op = headgate.OpPeek
		case 2, 3:
			op = headgate.OpRefund
		case 4:
			op = headgate.OpReset
		}
		var checks []headgate.Check
		for _, i := range rng.Perm(len(rules))[:1+rng.IntN(5)] {
			checks = append(checks, headgate.Check{
				Rule: rules[i], Key: "k" + strconv.Itoa(rng.IntN(3)), Cost: 1 + rng.Int64N(1+rng.Int64N(4)), Shadow: rng.IntN(8) == 0,
			})
		}
		if op == headgate.OpRefund && len(past) > 0 {
			checks = past
		}
		got, err := store.Take(t.Context(), op, checks, nil)
		if err != nil {
			t.Fatalf("step %d: %v", n, err)
		}
		want, err := model.Take(t.Context(), op, checks, nil)
		if err != nil {
			t.Fatal(err)
		}
		if !reflect.DeepEqual(got, want) {
			t.Fatalf("step %d: %v of %+v at %d:\ngot  %+v\nwant %+v", n, op, checks, clock.Now(), got, want)
		}
		if op == headgate.OpTake {
			if headgate.NewVerdict(got).Allowed {
				past = slices.Clone(checks)
				for i := range past {
					past[i].At = headgate.Instant(clock.Now())
				}
			} else {
				denied++
			}
		}
	}
	if denied < over/20 || denied > over*19/20 {
		t.Errorf("%d of %d steps were denials: the rules do not test what they should", denied, over)
	}
}
