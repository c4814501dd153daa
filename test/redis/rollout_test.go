package redis_test

import (
	"testing"
	"time"

	"github.com/headgate/headgate"
	"github.com/headgate/headgate/store/redis"
	"github.com/headgate/headgate/test/servers"
	"github.com/headgate/headgate/test/stores"
)

// TestRollout: while a rule is leased on two nodes, and strict on a third that has not
// reloaded its policy yet, it is exceeded by no more than docs/consistency.md says: a bucket by
// what refills while units are held, a sliding window by what the others hold, at most half,
// and a fixed window by nothing. It is the nodes that lease.
func TestRollout(t *testing.T) {
	onOneKind(t, servers.Redis, func(t *testing.T, s *servers.Server) {
		var all []headgate.Store
		for range 3 {
			all = append(all, stores.OpenURL(t, s.URL(), redis.Prefix("hg:")))
		}
		nodes, served := stores.Layers(t, headgate.Leased, all...)
		nodes[2].Consistency = headgate.Strict
		rules := stores.Brisk(time.Second)
		admitted := stores.Spend(t, nodes, rules, stores.Load{
			// So many that their requests come close together on a slow machine as well.
			Callers: 16, Pause: 10 * time.Millisecond, Length: 3 * time.Second, Enough: func() bool { return served() > 0 },
		})
		stores.Within(t, rules, admitted, func(l *headgate.Limit) int64 {
			switch l.Algorithm {
			case headgate.TokenBucket:
				return l.Count / 50 // D is a fiftieth of the period
			case headgate.SlidingWindow:
				return l.Count / 2
			}
			return 0
		})
		if served() == 0 {
			t.Error("nothing was leased")
		}
	})
}
