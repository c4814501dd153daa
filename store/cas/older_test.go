package cas_test

import (
	"encoding/binary"
	"testing"
	"time"

	"github.com/headgate/headgate"
	"github.com/headgate/headgate/store/cas"
)

// older is a value as version 1 of the program wrote it before logs had spans: no slots,
// or some that it did not know and kept, and a log of so many units of one time that it
// kept until its longest window had left them.
func older(slots [][]byte, units, at, expires int64) []byte {
	b := []byte{1, byte(len(slots))}
	for _, s := range slots {
		b = append(b, s...)
	}
	b = binary.AppendUvarint(b, 1)
	b = binary.AppendVarint(b, expires)
	b = binary.AppendVarint(b, at)
	return binary.AppendUvarint(b, uint64(units))
}

// TestOlderValues: what an older version of the program has written is remembered for as
// long as that would have kept it, whatever list of limits charges first.
func TestOlderValues(t *testing.T) {
	long := headgate.MustRule("r", headgate.Sliding(50, time.Hour))
	short := headgate.MustRule("r", headgate.Sliding(50, time.Second))
	now := time.Date(2026, 3, 28, 22, 59, 57, 0, time.UTC).UnixMicro()
	hour := time.Hour.Microseconds()
	// A span that ended long ago, and that the older version kept: of a short list.
	ended := binary.BigEndian.AppendUint64(nil, 4<<52|1_000_000)
	for range 2 { // when it is free, and when it ended
		ended = binary.AppendVarint(ended, now-2*hour)
	}
	ended = append(ended, 0, 50)
	for name, slots := range map[string][][]byte{"no spans": nil, "a span that has ended": {ended}} {
		t.Run(name, func(t *testing.T) {
			f := newFake(manyKeys)
			s := newStore(t, f, cas.Clock(func() int64 { return now }))
			take := func(r *headgate.Rule) headgate.Decision {
				t.Helper()
				d, err := headgate.New(s, r).Allow(t.Context(), "k")
				if err != nil {
					t.Fatal(err)
				}
				return d
			}
			take(long) // so that there is a value
			f.set(older(slots, 30, now-hour/2, now+hour/2))
			if d := take(short); !d.Allowed || d.Remaining != 49 {
				t.Errorf("the short list: %+v, want it admitted, 49 remaining", d)
			}
			if d := take(long); d.Remaining != 18 {
				t.Errorf("%d remain of 50 for the long list, want 18: 32 were used", d.Remaining)
			}
			now += hour / 2
			if d := take(long); d.Remaining != 47 {
				t.Errorf("%d remain of 50 when the older units have left, want 47", d.Remaining)
			}
			now -= hour / 2
		})
	}
}

// TestOlderZones: what a program wrote that did not tell time zones apart is remembered under a list
// in its zone, and not taken for what a list in another one has used.
func TestOlderZones(t *testing.T) {
	limit := headgate.Limit{Algorithm: headgate.FixedWindow, Align: headgate.AlignDay, Count: 50}
	utc := headgate.MustRule("r", limit)
	limit.Location = time.FixedZone("half past six in the evening in UTC", int(5.5*3600))
	there := headgate.MustRule("r", limit)
	now := time.Date(2026, 3, 28, 10, 0, 0, 0, time.UTC).UnixMicro()
	for name, c := range map[string]struct {
		end  time.Time
		left int64
	}{
		"of the zone": {time.Date(2026, 3, 28, 18, 30, 0, 0, time.UTC), 19},
		"of UTC":      {time.Date(2026, 3, 29, 0, 0, 0, 0, time.UTC), 49},
	} {
		t.Run(name, func(t *testing.T) {
			f := newFake(manyKeys)
			s := newStore(t, f, cas.Clock(func() int64 { return now }))
			if _, err := headgate.New(s, there).Allow(t.Context(), "k"); err != nil { // so that there is a value
				t.Fatal(err)
			}
			b := binary.BigEndian.AppendUint64([]byte{1, 1}, utc.Limits()[0].Slot())
			b = binary.AppendVarint(binary.AppendVarint(b, c.end.UnixMicro()), c.end.UnixMicro())
			f.set(append(b, 30, 0, 0)) // units, and no log
			for i := range int64(2) {
				if d, err := headgate.New(s, there).Allow(t.Context(), "k"); err != nil || d.Remaining != c.left-i {
					t.Errorf("%d remain of 50, error %v, want %d", d.Remaining, err, c.left-i)
				}
			}
		})
	}
}
