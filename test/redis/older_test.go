package redis_test

import (
	"encoding/binary"
	"testing"
	"time"

	"github.com/headgate/headgate"
	"github.com/headgate/headgate/store/redis"
	"github.com/headgate/headgate/store/storetest"
	"github.com/headgate/headgate/test/servers"
	"github.com/headgate/headgate/test/stores"
)

// older is a value as the program wrote it before logs had spans: slots, if there are any,
// and a log of so many units of one time, kept until its longest window had left them.
func older(slots []string, states []string, units int, at, expires int64) string {
	b := []byte{byte(len(slots))}
	for _, s := range append(slots, states...) {
		b = append(b, s...)
	}
	word := func(v int64, size int) {
		b = append(b, binary.BigEndian.AppendUint64(nil, uint64(v))[8-size:]...)
	}
	b = append(b, 6)
	word(expires, 7)
	word(0, 5)
	for range units {
		word(at%(1<<48), 6)
	}
	return string(b)
}

// TestOlderValues: what an older version of the program has written is remembered for as
// long as that would have kept it, whatever list of limits charges first; and so is what
// such a version charges while this one is in use beside it.
func TestOlderValues(t *testing.T) {
	long := headgate.MustRule("r", headgate.Sliding(50, time.Hour))
	short := headgate.MustRule("r", headgate.Sliding(50, time.Second))
	mixed := headgate.MustRule("r", headgate.Sliding(50, time.Second), headgate.PerHour(70))
	hour := time.Hour.Microseconds()
	word := func(v int64) string { return string(binary.BigEndian.AppendUint64(nil, uint64(v))) }
	servers.Each(t, func(t *testing.T, s *servers.Server) {
		client := dial(t, s)
		for name, c := range map[string]struct {
			first         *headgate.Rule
			slots, states func(now int64) []string
		}{
			"no spans":                 {first: short},
			"no spans, by another way": {first: mixed},
			"a span that has ended": {
				first: short,
				// Its name, and when it ended; no short charges, a count of 50.
				slots:  func(int64) []string { return []string{word(4<<52 | 1_000_000)} },
				states: func(now int64) []string { return []string{word(now - 2*hour)[1:] + "\x00\x00\x00\x00\x00\x00\x00\x32"} },
			},
		} {
			t.Run(name, func(t *testing.T) {
				clock := storetest.NewClock(storetest.Epoch)
				store := stores.Open(t, client, clock.Now, redis.Prefix("older "+name+":"))
				now := clock.Now()
				var slots, states []string
				if c.slots != nil {
					slots, states = c.slots(now), c.states(now)
				}
				stores.Do(t, s, "SET", "older "+name+":r k", older(slots, states, 30, now-hour/2, now+hour/2))
				if d := stores.Allow(t, store, c.first, "k"); !d.Allowed || d.Remaining != 49 {
					t.Errorf("the short list: %+v, want it admitted, 49 remaining", d)
				}
				if d := stores.Allow(t, store, long, "k"); d.Remaining != 18 {
					t.Errorf("%d remain of 50 for the long list, want 18: 32 were used", d.Remaining)
				}
				clock.Add(time.Hour / 2)
				if d := stores.Allow(t, store, long, "k"); d.Remaining != 47 {
					t.Errorf("%d remain of 50 when the older units have left, want 47", d.Remaining)
				}
			})
		}
	})
}

// TestOlderZones: what a program wrote that did not tell time zones apart is remembered under a list
// in its zone, and not taken for what a list in another one has used.
func TestOlderZones(t *testing.T) {
	limit := headgate.Limit{Algorithm: headgate.FixedWindow, Align: headgate.AlignDay, Count: 50}
	utc := headgate.MustRule("r", limit)
	limit.Location = time.FixedZone("half past six in the evening in UTC", int(5.5*3600))
	there := headgate.MustRule("r", limit)
	noon := time.Date(2026, 3, 28, 12, 0, 0, 0, time.UTC)
	servers.Each(t, func(t *testing.T, s *servers.Server) {
		clock := storetest.NewClock(noon)
		store := stores.Open(t, dial(t, s), clock.Now, redis.Prefix("zones:"))
		for key, c := range map[string]struct {
			end  time.Duration
			left int64
		}{
			"of the zone": {6*time.Hour + 30*time.Minute, 19},
			"of UTC":      {12 * time.Hour, 49},
		} {
			value := binary.BigEndian.AppendUint64([]byte{1}, utc.Limits()[0].Slot())
			value = append(value, binary.BigEndian.AppendUint64(nil, uint64(noon.Add(c.end).UnixMicro()))[1:]...)
			stores.Do(t, s, "SET", "zones:r "+key, string(value)+"\x00\x00\x00\x1e\x00\x00\x00\x00") // 30 units
			for i := range int64(2) {
				if d := stores.Allow(t, store, there, key); d.Remaining != c.left-i {
					t.Errorf("%s: %d remain of 50, want %d", key, d.Remaining, c.left-i)
				}
			}
		}
	})
}
