package memory_test

import (
	"errors"
	"fmt"
	"runtime"
	"strings"
	"testing"
	"time"

	"github.com/headgate/headgate"
	"github.com/headgate/headgate/store/memory"
	"github.com/headgate/headgate/store/storetest"
)

// TestNotesKeepNoBodies: ids and keys that are parts of large texts do not keep
// those in memory, where the bound does not count them.
func TestNotesKeepNoBodies(t *testing.T) {
	const requests, size = 500, 64 << 10
	s := memory.New()
	rule := headgate.MustRule("r", headgate.PerHour(1_000_000))
	before := heap()
	for i := range requests {
		body := fmt.Sprintf("id %05d", i) + strings.Repeat("k", size)
		checks := []headgate.Check{{Rule: rule, Key: body[8:16], GiveBack: true}}
		if _, _, err := s.Reserve(t.Context(), headgate.Terms{ID: body[:8]}, checks, nil); err != nil {
			t.Fatal(err)
		}
	}
	if grown := heap() - before; grown > requests*size/4 {
		t.Errorf("%d requests take %d bytes, as if their bodies of %d were kept", requests, grown, size)
	}
	runtime.KeepAlive(s)
}

func heap() int64 {
	runtime.GC()
	var m runtime.MemStats
	runtime.ReadMemStats(&m)
	return int64(m.HeapAlloc)
}

// TestAbandonedOnce: a reservation that was given back cannot be settled after all
// when the clock is set back, and is not given back again.
func TestAbandonedOnce(t *testing.T) {
	clock := storetest.NewClock(storetest.Epoch)
	s := memory.New(memory.Clock(clock.Now))
	rule := headgate.MustRule("r", headgate.Limit{Algorithm: headgate.FixedWindow, Count: 10, Period: time.Hour})
	checks := []headgate.Check{{Rule: rule, Key: "k", Cost: 4, GiveBack: true}}
	if _, err := s.Take(t.Context(), headgate.OpTake, checks, nil); err != nil {
		t.Fatal(err)
	}
	r, _, err := s.Reserve(t.Context(), headgate.Terms{For: time.Second}, checks, nil)
	if err != nil {
		t.Fatal(err)
	}
	remaining := func(want int64) {
		t.Helper()
		d, err := s.Take(t.Context(), headgate.OpPeek, checks, nil)
		if err != nil || d[0].Remaining != want {
			t.Errorf("%+v remain, want %d; %v", d, want, err)
		}
	}
	remaining(2)
	clock.Add(time.Second)
	remaining(6)
	clock.Add(-time.Second)
	if _, err := s.Settle(t.Context(), r, []int64{0}, nil); !errors.Is(err, headgate.ErrNoReservation) {
		t.Errorf("settling: %v, want %v", err, headgate.ErrNoReservation)
	}
	remaining(6)
}

// TestExpiredIsNotAdmittedAgain: who repeats a reservation that has expired is not
// told that it stands.
func TestExpiredIsNotAdmittedAgain(t *testing.T) {
	clock := storetest.NewClock(storetest.Epoch)
	s := memory.New(memory.Clock(clock.Now))
	rule := headgate.MustRule("r", headgate.PerHour(10))
	for _, giveBack := range []bool{false, true} {
		terms := headgate.Terms{ID: fmt.Sprint("id ", giveBack), For: time.Second}
		checks := []headgate.Check{{Rule: rule, Key: terms.ID, Cost: 4, GiveBack: giveBack}}
		first, _, err := s.Reserve(t.Context(), terms, checks, nil)
		if err != nil {
			t.Fatal(err)
		}
		clock.Add(999 * time.Millisecond)
		if again, _, err := s.Reserve(t.Context(), terms, checks, nil); err != nil || again.Expires != first.Expires {
			t.Errorf("repeated in time: %+v, %v", again, err)
		}
		clock.Add(time.Millisecond)
		if _, d, err := s.Reserve(t.Context(), terms, checks, nil); !errors.Is(err, headgate.ErrNoReservation) || len(d) != 0 {
			t.Errorf("repeated too late: %+v, %v, want %v", d, err, headgate.ErrNoReservation)
		}
		clock.Add(time.Minute)
		if r, _, err := s.Reserve(t.Context(), terms, checks, nil); err != nil || r.Expires <= first.Expires {
			t.Errorf("forgotten: %+v, %v, want a new one", r, err)
		}
	}
}

// TestFullLedger: a request that the store has no room to remember is charged nothing, and the
// error says so.
func TestFullLedger(t *testing.T) {
	// A clock that stands: nothing is refilled meanwhile.
	s := memory.New(memory.MaxBytes(memory.MinMaxBytes), memory.Clock(storetest.NewClock(storetest.Epoch).Now))
	rule := headgate.MustRule("r", headgate.PerHour(1_000_000))
	checks := []headgate.Check{{Rule: rule, Key: "k"}}
	charged := int64(0)
	for {
		_, _, err := s.Reserve(t.Context(), headgate.Terms{ID: fmt.Sprint(charged)}, checks, nil)
		if err != nil {
			if !errors.Is(err, headgate.ErrFull) || !errors.Is(err, headgate.ErrUnavailable) {
				t.Errorf("after %d: %v", charged, err)
			}
			break
		}
		if charged++; charged == rule.Limits()[0].Count {
			t.Fatal("there is no bound")
		}
	}
	d, err := s.Take(t.Context(), headgate.OpPeek, checks, nil)
	if err != nil || d[0].Remaining != rule.Limits()[0].Count-charged {
		t.Errorf("%d were charged: %+v, %v", charged, d, err)
	}
}

// TestSettledAreSpared: while there is no room to remember more, settled reservations are forgotten
// whose ids nobody has chosen, the oldest first. Nothing is charged twice or given back twice.
func TestSettledAreSpared(t *testing.T) {
	clock := storetest.NewClock(storetest.Epoch)
	s := memory.New(memory.MaxBytes(memory.MinMaxBytes), memory.Clock(clock.Now))
	rule := headgate.MustRule("r", headgate.PerHour(1_000_000))
	checks := []headgate.Check{{Rule: rule, Key: "k", Cost: 4}}
	reserve := func(id string) (headgate.Reservation, error) {
		t.Helper()
		r, _, err := s.Reserve(t.Context(), headgate.Terms{ID: id}, checks, nil)
		return r, err
	}
	settle := func(r headgate.Reservation) error {
		t.Helper()
		_, err := s.Settle(t.Context(), r, []int64{1}, nil)
		return err
	}
	named, err := reserve("chosen")
	if err != nil || settle(named) != nil {
		t.Fatal(err)
	}
	open, err := reserve("")
	if err != nil {
		t.Fatal(err)
	}
	var first headgate.Reservation
	var last [200]headgate.Reservation // half of what there is room for
	const most = 100_000               // far more than there is room for
	for i := range most {
		r, err := reserve("")
		if err != nil {
			t.Fatalf("after %d: %v", i, err)
		}
		if err := settle(r); err != nil {
			t.Fatalf("after %d: %v", i, err)
		}
		if last[i%len(last)] = r; i == 0 {
			first = r
		}
	}
	for _, r := range last {
		if err := settle(r); err != nil {
			t.Errorf("one of the last again: %v", err)
		}
	}
	if err := settle(first); !errors.Is(err, headgate.ErrNoReservation) {
		t.Errorf("the first one again: %v", err)
	}
	if err := settle(named); err != nil {
		t.Errorf("the one whose id was chosen, again: %v", err)
	}
	if again, err := reserve("chosen"); err != nil || again.ID != named.ID {
		t.Errorf("reserved by the same id again: %v", err)
	}
	if err := settle(open); err != nil {
		t.Errorf("the one that was open: %v", err)
	}
	d, err := s.Take(t.Context(), headgate.OpPeek, checks, nil)
	if used := rule.Limits()[0].Count - d[0].Remaining; err != nil || used != most+2 {
		t.Errorf("%d units are used, want %d; %v", used, most+2, err)
	}
}
