package redis_test

import (
	"errors"
	"strings"
	"testing"
	"time"

	"github.com/headgate/headgate"
	"github.com/headgate/headgate/store/layered/fallback"
	"github.com/headgate/headgate/store/redis"
	"github.com/headgate/headgate/test/servers"
	"github.com/headgate/headgate/test/stores"
)

// TestDamagedCounters: what stands in place of a counter and is none concerns that key alone. Its
// requests are decided as the rule says for a store that does not answer, those of others by the
// store, and a reset mends it.
func TestDamagedCounters(t *testing.T) {
	const often = 4 * fallback.DefaultFailures // would open the breaker
	servers.Each(t, func(t *testing.T, s *servers.Server) {
		for _, rule := range append(combined(1000), headgate.MustRule("several", headgate.Per(100, time.Hour), headgate.Sliding(50, time.Minute))) {
			for name, spoil := range map[string][]string{
				"another type":  {"RPUSH", "x"},
				"too short":     {"SET", "\x05x"},
				"cut off":       {"SET", "\x02" + strings.Repeat("\x01", 20)},
				"a JSON object": {"SET", `{"used": 3, "at": 1763712000000}`},
			} {
				f := fallbackNode(t, s, 30*time.Second, fallback.Options{Default: headgate.OnErrorDeny})
				store := f.Store()
				bad := headgate.Check{Rule: rule, Key: "bad of " + name}
				stores.Do(t, s, spoil[0], redis.DefaultPrefix+rule.Name()+" "+bad.Key, spoil[1])
				damaged := 0
				for range often {
					_, err := store.Take(t.Context(), headgate.OpTake, []headgate.Check{bad, {Rule: headgate.MustRule("beside", headgate.Per(1, time.Hour)), Key: name + rule.Name()}}, nil)
					if errors.Is(err, headgate.ErrDamaged) && errors.Is(err, headgate.ErrUnavailable) {
						damaged++
					}
				}
				if got := f.Stats(); got.State != fallback.Closed || damaged != often {
					t.Errorf("%s, %s: %d of %d are damaged, and the breaker is %v", rule, name, damaged, often, got.State)
				}
				if d := stores.Allow(t, store, headgate.MustRule("beside", headgate.Per(1, time.Hour)), name+rule.Name()); !d.Allowed {
					t.Errorf("%s, %s: what stood beside the damaged counter was charged: %+v", rule, name, d)
				}
				open := bad
				open.OnError = headgate.OnErrorAllow
				if got, err := store.Take(t.Context(), headgate.OpTake, []headgate.Check{open}, nil); err != nil || got[0].Source != headgate.SourceOpen {
					t.Errorf("%s, %s: a rule that fails open: %+v, %v", rule, name, got, err)
				}
				if _, err := store.Take(t.Context(), headgate.OpReset, []headgate.Check{bad}, nil); err != nil {
					t.Errorf("%s, %s: the reset: %v", rule, name, err)
				}
				if d := stores.Allow(t, store, rule, bad.Key); !d.Allowed || d.Source != headgate.SourceStore {
					t.Errorf("%s, %s: after the reset %+v", rule, name, d)
				}
			}
		}
	})
}
