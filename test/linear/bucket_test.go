package linear

import (
	"context"
	"fmt"
	"math/big"
	"math/rand/v2"
	"runtime"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/anishathalye/porcupine"

	"github.com/headgate/headgate"
	"github.com/headgate/headgate/store/memory"
)

// level is what is kept of a bucket by the model: when it will be free, in 1/num µs since 1970, and the
// latest time that a caller was told.
type level struct {
	free   *big.Int
	latest headgate.Instant
}

// bucketModel is a porcupine model of a bucket of its own, without the steps of package algorithm. A
// caller may be admitted at a time before that of a caller whose units are charged already: the
// store reads the clock before it charges. A denial must not be that old.
func bucketModel(l *headgate.Limit) porcupine.Model {
	num, den := l.Rate()
	times := func(a, b int64) *big.Int { return new(big.Int).Mul(big.NewInt(a), big.NewInt(b)) }
	return porcupine.Model{
		Init: func() any { return level{free: new(big.Int)} },
		Step: func(before, input, output any) (bool, any) {
			s, in, got := before.(level), input.(call), output.(answer)
			busy := new(big.Int).Sub(s.free, times(int64(got.at), num))
			if busy.Sign() < 0 {
				busy.SetInt64(0)
			}
			fits := in.cost <= l.Capacity() && busy.Cmp(times(l.Capacity()-in.cost, den)) <= 0
			next := level{s.free, max(s.latest, got.at)}
			switch {
			case in.do == reset:
				return true, level{new(big.Int), s.latest}
			case in.do == take && fits:
				busy.Add(busy, times(in.cost, den))
				next.free = new(big.Int).Add(times(int64(got.at), num), busy)
			case got.at < s.latest:
				return false, s
			}
			used := busy.Add(busy, big.NewInt(den-1))
			remaining := max(0, l.Capacity()-used.Div(used, big.NewInt(den)).Int64())
			return got.admitted == fits && got.remaining[0] == remaining, next
		},
		Equal: func(a, b any) bool {
			x, y := a.(level), b.(level)
			return x.latest == y.latest && x.free.Cmp(y.free) == 0
		},
		DescribeOperation: func(input, output any) string { return fmt.Sprintf("%+v -> %+v", input, output) },
	}
}

// TestBuckets has many callers use one bucket, which needs no lock: one of small numbers, one of large
// numbers, one that needs the lock now and then, and one that pauses.
func TestBuckets(t *testing.T) {
	for name, l := range map[string]headgate.Limit{
		"ordinary": headgate.Per(20_000, time.Second).WithBurst(40),
		"large":    headgate.Per(20_000*many, time.Second).WithBurst(40 * many),
		"prime":    headgate.Per(4_999_999_999_999, time.Second).WithBurst(40 * many),
		"leaky":    {Algorithm: headgate.LeakyBucket, Count: 20_000, Period: time.Second, Burst: 40},
	} {
		t.Run(name, func(t *testing.T) {
			admitted, denied := 0, 0
			for round := range uint64(20) {
				a, d := useBucket(t, round, l)
				admitted, denied = admitted+a, denied+d
			}
			if admitted < 100 || denied < 100 {
				t.Errorf("%d were admitted, %d denied; the test proves little", admitted, denied)
			}
		})
	}
}

// useBucket has callers use a bucket at once, and looks for an order of what they were told.
func useBucket(t *testing.T, seed uint64, l headgate.Limit) (admitted, denied int) {
	t.Helper()
	const callers, calls, together = 4, 200, 5
	rule := headgate.MustRule("r", l)
	limiter := headgate.New(memory.New(), rule)
	limit := &rule.Limits()[0]
	start := time.Now()
	histories := make([][]porcupine.Operation, callers)
	var all sync.WaitGroup
	var arrived atomic.Int64
	for caller := range callers {
		all.Go(func() {
			rng := rand.New(rand.NewPCG(seed, uint64(caller)))
			for i := range calls {
				if i%together == 0 { // a call takes so little time that they would not overlap otherwise
					for arrived.Add(1); arrived.Load() < int64(callers*(i/together+1)); {
						runtime.Gosched()
					}
				}
				in := call{cost: 1 + rng.Int64N(max(1, limit.Capacity()/10))}
				ctx, began := context.Background(), time.Since(start).Nanoseconds()
				var d headgate.Decision
				var err error
				switch n := rng.IntN(100); {
				case n < 8:
					in.do = peek
					d, err = limiter.Peek(ctx, "k", in.cost)
				case n < 10:
					in.do = reset
					err = limiter.Reset(ctx, "k")
				default:
					d, err = limiter.AllowN(ctx, "k", in.cost)
				}
				ended := time.Since(start).Nanoseconds()
				if err != nil {
					t.Error(err) // and goes on, for the others wait
				}
				out := answer{at: d.At, admitted: d.Allowed, remaining: [limits]int64{d.Remaining}}
				histories[caller] = append(histories[caller], porcupine.Operation{ClientId: caller, Input: in, Output: out, Call: began, Return: ended})
				if rng.IntN(100) == 0 {
					time.Sleep(time.Duration(rng.IntN(1000)) * time.Microsecond)
				}
			}
		})
	}
	all.Wait()
	var history []porcupine.Operation
	for _, h := range histories {
		for _, o := range h {
			if in, out := o.Input.(call), o.Output.(answer); in.do == take && out.admitted {
				admitted++
			} else if in.do == take {
				denied++
			}
		}
		history = append(history, h...)
	}
	switch result, _ := porcupine.CheckOperationsVerbose(bucketModel(limit), history, 2*time.Minute); result {
	case porcupine.Illegal:
		t.Errorf("seed %d: there is no order of the calls that explains the answers", seed)
	case porcupine.Unknown:
		t.Errorf("seed %d: no order was found in time", seed)
	}
	return admitted, denied
}
