package linear

import (
	"context"
	"errors"
	"fmt"
	"math"
	"math/rand/v2"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/anishathalye/porcupine"
	"github.com/redis/rueidis"

	"github.com/headgate/headgate"
	"github.com/headgate/headgate/store/redis"
	"github.com/headgate/headgate/store/storetest"
	"github.com/headgate/headgate/test/servers"
)

// counterTag keeps the rule in one slot of a cluster, so that one primary has all of it.
const counterTag = "failover"

func counterRule(t *testing.T) *headgate.Rule {
	t.Helper()
	r, err := headgate.MustRule("counter", headgate.Limit{
		Algorithm: headgate.FixedWindow, Count: counterLimit, Period: 24 * time.Hour, Align: headgate.AlignFirst,
	}).WithTag(counterTag)
	if err != nil {
		t.Fatal(err)
	}
	return r
}

var counterKeys = []string{"a", "b", "c"}

// TestThroughFailover: of what callers were told before and after a primary was killed,
// there is an order in which at the failover some of the newest calls were lost, and
// nothing else is strange. In one case the replicas are cut off before, so that some
// surely are. Each kind of servers, each topology and each case meets each of the others; all
// three at a time do in `make soak`.
func TestThroughFailover(t *testing.T) {
	soaking := storetest.Steps(t, 0) > 0
	for _, kind := range servers.Kinds() {
		for _, behind := range []bool{false, true} {
			name := map[bool]string{false: "replicas follow", true: "replicas are behind"}[behind]
			overSentinel := (kind == servers.Redis) == behind
			if overSentinel || soaking {
				t.Run(string(kind)+", "+name+", sentinel", func(t *testing.T) {
					losses(t, behind, func() (lost, once bool) {
						s := servers.StartSentinel(t, kind)
						old := s.Primary()
						var replicas []*servers.Server
						for _, node := range s.Nodes {
							if node != old {
								replicas = append(replicas, node)
							}
						}
						return through(t, s.URL()+"&connect_timeout=10s", &outage{primary: old, replicas: replicas, behind: behind, await: func() *servers.Server { return s.AwaitFailover(old) }})
					})
				})
			}
			if !overSentinel || soaking {
				t.Run(string(kind)+", "+name+", cluster", func(t *testing.T) {
					losses(t, behind, func() (lost, once bool) {
						c := servers.StartCluster(t, kind)
						reply, err := c.Nodes[0].Do(t.Context(), "CLUSTER", "KEYSLOT", counterTag)
						if err != nil {
							t.Fatal(err)
						}
						slot, err := strconv.ParseUint(fmt.Sprint(reply), 10, 14)
						if err != nil {
							t.Fatal(err)
						}
						old := c.Owner(uint16(slot))
						return through(t, c.URL()+"?connect_timeout=10s", &outage{
							primary: old, replicas: []*servers.Server{c.ReplicaOf(old)}, behind: behind,
							await: func() *servers.Server { return c.AwaitFailover(uint16(slot), old) },
						})
					})
				})
			}
		}
	}
}

// losses has a failover, and sees to it that its losses show if there surely are some.
// Now and then the calls without an answer explain them as well, or a busy machine has the
// servers do it twice; then there is another.
func losses(t *testing.T, certain bool, failover func() (shown, once bool)) {
	t.Helper()
	const tries = 8
	for range tries {
		if shown, once := failover(); once && (shown || !certain) || t.Failed() {
			return
		}
	}
	t.Errorf("%d times there was another failover, or replicas missed calls, and without any loss there is an order, too", tries)
}

// outage is what befalls the primary.
type outage struct {
	primary  *servers.Server
	replicas []*servers.Server
	behind   bool                   // the replicas miss what the primary does last
	await    func() *servers.Server // who takes the primary's place
}

// begin cuts the replicas off, if they are to be behind. They are stopped first, for
// they would come again at once.
func (o *outage) begin(t *testing.T) {
	if !o.behind {
		return
	}
	for _, replica := range o.replicas {
		replica.Pause()
	}
	if _, err := o.primary.Do(t.Context(), "CLIENT", "KILL", "TYPE", "replica"); err != nil {
		t.Error(err)
	}
}

func (o *outage) end() (next *servers.Server) {
	o.primary.Kill()
	if o.behind {
		for _, replica := range o.replicas {
			replica.Resume()
		}
	}
	return o.await()
}

// again reports whether a replica is a primary that is not the next one: on a busy machine the
// next one may be missed as well.
func (o *outage) again(t *testing.T, next *servers.Server) bool {
	t.Helper()
	for _, replica := range o.replicas {
		info, err := replica.Do(t.Context(), "INFO", "replication")
		if err != nil {
			t.Fatal(err)
		}
		if replica != next && strings.Contains(fmt.Sprint(info), "role:master") {
			return true
		}
	}
	return false
}

// through has callers ask while there is a failover, and looks for an order. It reports
// whether there is none without losses, and whether there was one failover, for which alone there
// must be an order.
func through(t *testing.T, url string, o *outage) (lost, once bool) {
	t.Helper()
	const callers, before, last, after = 4, 150, 20, 60 // calls of each
	store, err := redis.Open(t.Context(), url, redis.Timeout(10*time.Second))
	if err != nil {
		t.Fatal(err)
	}
	defer store.Close()
	r := counterRule(t)
	start := time.Now()
	var answered atomic.Int64         // calls, of all
	var killed, recovered atomic.Bool // the failover has begun, and is over
	histories := make([][]porcupine.Operation, callers)
	var all sync.WaitGroup
	for caller := range callers {
		all.Go(func() {
			rng := rand.New(rand.NewPCG(uint64(caller), 7))
			for left := after; left > 0; {
				e := made(rng)
				late := recovered.Load()
				began := time.Since(start).Nanoseconds()
				out, sure, err := ask(store, r, e)
				ended := time.Since(start).Nanoseconds()
				switch {
				case err == nil:
					answered.Add(1)
					if late {
						left--
					}
				case !killed.Load():
					t.Errorf("before the failover: %v", err)
					return
				case time.Since(start) > 3*time.Minute:
					t.Errorf("the store does not recover: %v", err)
					return
				default:
					time.Sleep(50 * time.Millisecond)
					if sure {
						continue // it was not done
					}
					// It may be done at any time.
					out, ended = told{unknown: true}, math.MaxInt64
				}
				histories[caller] = append(histories[caller], porcupine.Operation{ClientId: caller, Input: e, Output: out, Call: began, Return: ended})
			}
		})
	}
	await := func(calls int64) {
		end := time.Now().Add(2 * time.Minute)
		for calls += answered.Load(); answered.Load() < calls && !t.Failed(); time.Sleep(time.Millisecond) {
			if time.Now().After(end) {
				t.Errorf("calls are not answered")
			}
		}
	}
	await(callers * before)
	o.begin(t)
	await(callers * last)
	killed.Store(true)
	began := time.Since(start).Nanoseconds()
	next := o.end()
	recovered.Store(true)
	ended := time.Since(start).Nanoseconds()
	all.Wait()
	if t.Failed() {
		return false, false
	}
	if o.again(t, next) {
		t.Log("there was another failover")
		return false, false
	}
	var history []porcupine.Operation
	unknown := 0
	for _, h := range histories {
		for _, op := range h {
			if op.Output.(told).unknown {
				unknown++
			}
		}
		history = append(history, h...)
	}
	plain, _ := porcupine.CheckOperationsVerbose(counted(false), history, time.Minute)
	for i, key := range counterKeys {
		history = append(history, porcupine.Operation{ClientId: callers + i, Input: event{key: key, over: true}, Output: told{}, Call: began, Return: ended})
	}
	result, _ := porcupine.CheckOperationsVerbose(counted(true), history, 2*time.Minute)
	t.Logf("%d calls, %d of them without an answer; without any loss: %s; with one at the failover: %s", len(history), unknown, plain, result)
	if result != porcupine.Ok {
		t.Errorf("an order that explains the answers: %s", result)
	}
	return plain != porcupine.Ok, true
}

// made makes up what to ask.
func made(rng *rand.Rand) event {
	e := event{key: counterKeys[rng.IntN(len(counterKeys))], cost: 1 + rng.Int64N(4)}
	switch n := rng.IntN(100); {
	case n < 10:
		e.do = peek
	case n < 40:
		e.do = refund
	case n < 42:
		e.do = reset
	}
	return e
}

// ask asks. If it fails, sure says that nothing was done.
func ask(store headgate.Store, r *headgate.Rule, e event) (out told, sure bool, err error) {
	op := map[verb]headgate.Op{take: headgate.OpTake, peek: headgate.OpPeek, refund: headgate.OpRefund, reset: headgate.OpReset}[e.do]
	decisions, err := store.Take(context.Background(), op, []headgate.Check{{Rule: r, Key: e.key, Cost: e.cost}}, nil)
	if err != nil {
		var refused *rueidis.RedisError
		return out, errors.As(err, &refused) || strings.Contains(err.Error(), "connection refused"), err
	}
	if e.do != reset {
		out = told{admitted: decisions[0].Allowed, remaining: decisions[0].Remaining}
	}
	return out, false, nil
}

// TestLossesThatNothingExplains: a loss without a failover is found out, and so is one
// that leaves what never was, or that comes after the failover.
func TestLossesThatNothingExplains(t *testing.T) {
	taken := func(cost, remaining int64) porcupine.Operation {
		return porcupine.Operation{Input: event{key: "k", cost: cost}, Output: told{admitted: true, remaining: remaining}}
	}
	over := porcupine.Operation{Input: event{key: "k", over: true}, Output: told{}}
	lost := porcupine.Operation{Input: event{key: "k", cost: 5}, Output: told{unknown: true}}
	for _, test := range []struct {
		name    string
		history []porcupine.Operation
		want    porcupine.CheckResult
	}{
		{"nothing is lost", []porcupine.Operation{taken(3, 57), taken(4, 53), taken(1, 52)}, porcupine.Ok},
		{"a loss without a failover", []porcupine.Operation{taken(3, 57), taken(4, 53), taken(1, 56)}, porcupine.Illegal},
		{"the end is lost", []porcupine.Operation{taken(3, 57), taken(4, 53), over, taken(1, 56)}, porcupine.Ok},
		{"all is lost", []porcupine.Operation{taken(3, 57), taken(4, 53), over, taken(1, 59)}, porcupine.Ok},
		{"nothing is lost at a failover", []porcupine.Operation{taken(3, 57), taken(4, 53), over, taken(1, 52)}, porcupine.Ok},
		{"one in the middle is lost", []porcupine.Operation{taken(3, 57), taken(4, 53), over, taken(1, 55)}, porcupine.Illegal},
		{"a loss after the failover", []porcupine.Operation{taken(3, 57), over, taken(4, 53), taken(1, 56)}, porcupine.Illegal},
		{"one that had no answer was done", []porcupine.Operation{taken(3, 57), lost, taken(1, 51)}, porcupine.Ok},
		{"one that had no answer was not done", []porcupine.Operation{taken(3, 57), lost, taken(1, 56)}, porcupine.Ok},
		{"one that had no answer was done twice", []porcupine.Operation{taken(3, 57), lost, taken(1, 46)}, porcupine.Illegal},
		{"more is admitted than the limit", []porcupine.Operation{taken(60, 0), taken(1, 0)}, porcupine.Illegal},
	} {
		for i := range test.history {
			test.history[i].Call, test.history[i].Return = int64(2*i), int64(2*i+1)
		}
		if got, _ := porcupine.CheckOperationsVerbose(counted(true), test.history, time.Minute); got != test.want {
			t.Errorf("%s: %s, want %s", test.name, got, test.want)
		}
	}
}
