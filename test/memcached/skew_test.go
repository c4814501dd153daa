package memcached_test

import (
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/headgate/headgate"
	"github.com/headgate/headgate/store/memcached"
	"github.com/headgate/headgate/test/servers"
)

// TestSkew: nodes whose clocks differ by half a second, which is less than they are told
// that they may, admit together what the limit admits in the time and half a second.
func TestSkew(t *testing.T) {
	const apart, length = 500 * time.Millisecond, 600 * time.Millisecond
	s := servers.StartMemcached(t, 64)
	rules := []*headgate.Rule{
		headgate.MustRule("bucket", headgate.Per(1000, 10*time.Second).WithBurst(20)),
		headgate.MustRule("fixed", headgate.Limit{Algorithm: headgate.FixedWindow, Count: 20, Period: 100 * time.Millisecond}),
		headgate.MustRule("sliding", headgate.Sliding(20, 100*time.Millisecond)),
		headgate.MustRule("counter", headgate.Limit{Algorithm: headgate.SlidingCounter, Count: 20, Period: 100 * time.Millisecond}),
	}
	admitted := make([]atomic.Int64, len(rules))
	var all sync.WaitGroup
	start := time.Now()
	for _, ahead := range []time.Duration{0, apart} {
		node, err := memcached.Open(t.Context(), s.URL(), memcached.Timeout(30*time.Second),
			memcached.Clock(func() int64 { return time.Now().Add(ahead).UnixMicro() }))
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(node.Close)
		for i, rule := range rules {
			for range 2 {
				all.Go(func() {
					for n := 0; time.Since(start) < length || n < 50; n++ {
						out, err := node.Take(t.Context(), headgate.OpTake, []headgate.Check{{Rule: rule, Key: "k"}}, nil)
						if err != nil {
							t.Error(err)
							return
						}
						if out[0].Allowed {
							admitted[i].Add(1)
						}
					}
				})
			}
		}
	}
	all.Wait()
	took := time.Since(start)
	for i, rule := range rules {
		l := &rule.Limits()[0]
		most := l.Count*int64(took+apart)/int64(l.Period) + l.Capacity()
		if l.Algorithm != headgate.TokenBucket {
			most += l.Count // the windows at both ends, in part
		}
		if got := admitted[i].Load(); got > most || got < l.Capacity() {
			t.Errorf("%s: %d units were admitted in %v, at most %d may be, and at least %d", rule.Name(), got, took, most, l.Capacity())
		}
		t.Logf("%s: %d units in %v, at most %d", rule.Name(), admitted[i].Load(), took.Round(time.Millisecond), most)
	}
}
