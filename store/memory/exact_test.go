package memory_test

import (
	"context"
	"fmt"
	"math/rand/v2"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/headgate/headgate"
	"github.com/headgate/headgate/store/memory"
	"github.com/headgate/headgate/store/storetest"
)

// TestCountsExactly has goroutines use one counter in every way while new keys make its shard's
// table grow: each unit is counted once.
func TestCountsExactly(t *testing.T) {
	const limit, workers, each = 4000, 16, 1500
	ever := 300 * 24 * time.Hour // nothing is refilled meanwhile
	own := headgate.MustRule("own", headgate.Per(5, ever))
	bucket := headgate.Per(limit, ever)
	window := headgate.Limit{Algorithm: headgate.FixedWindow, Count: limit, Period: ever, Align: headgate.AlignFirst}
	counter := headgate.Limit{Algorithm: headgate.SlidingCounter, Count: limit, Period: ever}
	for name, s := range map[string]*memory.Store{
		"own clock": memory.New(),
		"window":    memory.New(),
		"counter":   memory.New(),
		"small":     memory.New(memory.MaxBytes(memory.MinMaxBytes)),
		"clock":     memory.New(memory.Clock(storetest.NewClock(storetest.Epoch).Now)),
	} {
		t.Run(name, func(t *testing.T) {
			l := bucket
			switch name {
			case "window":
				l = window
			case "counter":
				l = counter
			}
			hot, same := headgate.MustRule("hot", l), headgate.MustRule("hot", l, headgate.Sliding(10_000, ever))
			limiter := headgate.New(s, hot)
			if _, err := limiter.Allow(t.Context(), "k"); err != nil { // before memory is full
				t.Fatal(err)
			}
			var used atomic.Int64
			used.Add(1)
			var all sync.WaitGroup
			for w := range workers {
				all.Go(func() {
					rng := rand.New(rand.NewPCG(uint64(w), 5))
					for i := range each {
						one := []headgate.Check{{Rule: hot, Key: "k"}}
						op := headgate.OpTake
						switch rng.IntN(8) {
						case 0:
							one = append(one, headgate.Check{Rule: own, Key: fmt.Sprint(w, i)})
						case 1:
							one[0].Rule = same
						case 2:
							op = headgate.OpPeek
						case 3:
							one[0] = headgate.Check{Rule: own, Key: fmt.Sprint("new", w, i)}
						}
						got, err := s.Take(context.Background(), op, one, nil)
						if err != nil {
							t.Error(err)
							return
						}
						if op != headgate.OpTake || one[0].Rule == own || !headgate.NewVerdict(got).Allowed {
							continue
						}
						used.Add(1)
						if rng.IntN(3) == 0 {
							if _, err := s.Take(context.Background(), headgate.OpRefund, one[:1], nil); err != nil {
								t.Error(err)
							}
							used.Add(-1)
						}
					}
				})
			}
			all.Wait()
			d, err := limiter.Peek(t.Context(), "k", 1)
			if err != nil {
				t.Fatal(err)
			}
			if got := limit - d.Remaining; got != used.Load() {
				t.Errorf("%d units are in use, %d were admitted and not given back", got, used.Load())
			}
			if d.Allowed != (used.Load() < limit) {
				t.Errorf("allowed is %t with %d of %d units in use", d.Allowed, used.Load(), limit)
			}
		})
	}
}
