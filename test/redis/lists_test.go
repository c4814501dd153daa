package redis_test

import (
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/headgate/headgate"
	"github.com/headgate/headgate/store/redis"
	"github.com/headgate/headgate/test/servers"
	"github.com/headgate/headgate/test/stores"
)

// TestListsShareAKey: a key lives for as long as any list of limits needs it that was
// charged, whatever list is charged next; and lists that take turns do not write the value
// anew each time.
func TestListsShareAKey(t *testing.T) {
	hour, deep := headgate.Sliding(1000, time.Hour), headgate.Per(10, time.Minute).WithBurst(1000)
	lists := []*headgate.Rule{
		headgate.MustRule("r", headgate.Sliding(1000, time.Second)),
		headgate.MustRule("r", headgate.PerSecond(1000)),
		headgate.MustRule("r", headgate.Sliding(1000, time.Second), headgate.PerSecond(1000)),
		headgate.MustRule("r", headgate.Limit{Algorithm: headgate.FixedWindow, Count: 1000, Period: time.Second}),
	}
	servers.Each(t, func(t *testing.T, s *servers.Server) {
		client := dial(t, s)
		for name, first := range map[string]*headgate.Rule{
			"an hour":       headgate.MustRule("r", hour),
			"a deep bucket": headgate.MustRule("r", deep),
			"both":          headgate.MustRule("r", deep, hour),
		} {
			t.Run(name, func(t *testing.T) {
				prefix := "lists " + name + ":"
				store := stores.Open(t, client, nil, redis.Prefix(prefix))
				d, err := store.Take(t.Context(), headgate.OpTake, []headgate.Check{{Rule: first, Key: "k", Cost: 700}}, nil)
				if err != nil || !headgate.NewVerdict(d).Allowed {
					t.Fatalf("%+v, %v", d, err)
				}
				written := 0
				for i := range 60 {
					if i == 8 {
						written = calls(t, s, "set")
					}
					r := lists[i%len(lists)]
					if d := stores.Allow(t, store, r, "k"); !d.Allowed {
						t.Fatalf("%v: %+v", r, d)
					}
					if i < 8 { // a refund writes all of it
						if _, err := store.Take(t.Context(), headgate.OpRefund, []headgate.Check{{Rule: r, Key: "k"}}, nil); err != nil {
							t.Fatal(err)
						}
					}
					ttl, err := s.Do(t.Context(), "PTTL", prefix+"r k")
					if err != nil {
						t.Fatal(err)
					}
					if left, ok := ttl.(int64); !ok || left < (55*time.Minute).Milliseconds() || left > (3*time.Hour).Milliseconds() {
						t.Fatalf("after %v the key lives for %v ms, want about an hour", r, ttl)
					}
				}
				// Once in a while a span or a slot that has ended is left out.
				if written = calls(t, s, "set") - written; written > 10 {
					t.Errorf("the value was written anew %d times in 52 charges by lists in turns", written)
				}
				if d, err := store.Take(t.Context(), headgate.OpPeek, []headgate.Check{{Rule: first, Key: "k"}}, nil); err != nil || d[0].Remaining > 301 {
					t.Errorf("%+v, %v; want at most 301 remaining of 1000", d, err)
				}
			})
		}
	})
}

// TestManyLists: a value has room for 36 counters. Where the lists of a rule need more, each
// list still counts in its own while it is in use, and those that are free last stay.
func TestManyLists(t *testing.T) {
	rule := func(i int) *headgate.Rule {
		period := time.Hour + time.Duration(i)*time.Second
		return headgate.MustRule("r", []headgate.Limit{
			headgate.Per(10, period),
			{Algorithm: headgate.FixedWindow, Count: 10, Period: period, Align: headgate.AlignFirst},
			{Algorithm: headgate.SlidingCounter, Count: 10, Period: 24 * period},
			headgate.Sliding(1000, period),
		}[i%4])
	}
	servers.Each(t, func(t *testing.T, s *servers.Server) {
		store := stores.Open(t, dial(t, s), nil, redis.Prefix("many:"))
		for i := range 70 {
			r := rule(i)
			for want := r.Limits()[0].Count - 1; want > r.Limits()[0].Count-4; want-- {
				// In the sliding windows the units of all of them count.
				if d := stores.Allow(t, store, r, "k"); !d.Allowed || i%4 != 3 && d.Remaining != want {
					t.Fatalf("%v: %+v; want %d remaining", r, d, want)
				}
			}
		}
		for i := range 70 {
			d, err := store.Take(t.Context(), headgate.OpPeek, []headgate.Check{{Rule: rule(i), Key: "k"}}, nil)
			if err != nil {
				t.Fatal(err)
			}
			switch used := d[0].Limit.Capacity() - d[0].Remaining; {
			case i%4 == 2 && used != 3, i%4 == 3 && used < 51:
				t.Errorf("%v: %d are used; want 3, or of a sliding window all that came under one", rule(i), used)
			}
		}
		size, err := s.Do(t.Context(), "STRLEN", "many:r k")
		if err != nil {
			t.Fatal(err)
		}
		if n, ok := size.(int64); !ok || n == 0 || n > 36*23+14+51*6 {
			t.Errorf("the value has %v bytes, want no more than 36 counters and a log of 51 units take", size)
		}
	})
}

// calls is how often a server has carried out a command.
func calls(t *testing.T, s *servers.Server, command string) int {
	t.Helper()
	info, err := s.Do(t.Context(), "INFO", "commandstats")
	if err != nil {
		t.Fatal(err)
	}
	_, line, _ := strings.Cut(info.(string), "cmdstat_"+command+":calls=")
	text, _, _ := strings.Cut(line, ",")
	n, err := strconv.Atoi(text)
	if err != nil {
		t.Fatalf("commandstats of %s: %v", command, err)
	}
	return n
}
