package memory_test

import (
	"context"
	"testing"
	"time"

	"github.com/headgate/headgate"
	"github.com/headgate/headgate/store/memory"
	"github.com/headgate/headgate/store/storetest"
)

// TestDeniesByTheLatestClock: nobody is denied by an old reading of the clock because of what
// others have taken since, without the lock.
func TestDeniesByTheLatestClock(t *testing.T) {
	ctx := context.Background()
	a := headgate.MustRule("a", headgate.Limit{Count: 10, Period: 10 * time.Second})
	b := headgate.MustRule("b", headgate.Limit{Count: 10, Period: 10 * time.Second})
	one, two := headgate.Check{Rule: a, Key: "k", Cost: 8}, headgate.Check{Rule: b, Key: "k", Cost: 8}
	for name, tt := range map[string]struct {
		op     headgate.Op
		checks []headgate.Check
	}{
		"one check":  {headgate.OpTake, []headgate.Check{one}},
		"two checks": {headgate.OpTake, []headgate.Check{one, two}},
		"a peek":     {headgate.OpPeek, []headgate.Check{one}},
	} {
		clock := storetest.NewClock(storetest.Epoch)
		var s *memory.Store
		take := func(cost int64) {
			if ok, _, _, _, _, _, err := s.TakeSingle(ctx, a, "k", cost); err != nil || !ok {
				t.Fatalf("%s: %d units are denied, or the error is %v", name, cost, err)
			}
		}
		paused := true
		s = memory.New(memory.SteadyClock(func() int64 {
			now := clock.Now()
			if !paused {
				paused = true
				clock.Add(30 * time.Second)
				take(2)
			}
			return now
		}))
		take(10)
		clock.Add(time.Second)
		paused = false
		got, err := s.Take(ctx, tt.op, tt.checks, nil)
		if err != nil {
			t.Fatal(err)
		}
		if v := headgate.NewVerdict(got); !v.Allowed {
			t.Errorf("%s: the answer is %+v, want the 8 units that are free", name, v)
		}
	}
}
