package algorithm_test

import (
	"slices"
	"testing"
	"time"

	"github.com/headgate/headgate"
	"github.com/headgate/headgate/algorithm"
)

// TestEntries: a log that is made of its entries again says of every window what it
// said before, whatever it has forgotten.
func TestEntries(t *testing.T) {
	r := headgate.MustRule("r", headgate.Sliding(100, time.Second), headgate.Sliding(300, 3*time.Second))
	need := algorithm.NeedOf(r)
	g := new(algorithm.Log)
	for i := range headgate.Instant(500) {
		now := 1_000_000 + i*20_011
		g.Open(now, need)
		g.Add(now, 1+int64(i)%3)
		again := algorithm.NewLog(g.Entries(nil), slices.Clone(g.Spans()))
		if again.Len() != g.Len() || again.Newest() != now {
			t.Fatalf("%d entries, the newest at %d; want %d, %d", again.Len(), again.Newest(), g.Len(), now)
		}
		for j := range r.Limits() {
			l := &r.Limits()[j]
			if got, want := again.Facts(l, now+7, 5), g.Facts(l, now+7, 5); got != want {
				t.Fatalf("entry %d, %v: %+v, want %+v", i, l, got, want)
			}
		}
	}
	if new(algorithm.Log).Newest() != 0 || len(new(algorithm.Log).Entries(nil)) != 0 {
		t.Error("an empty log has entries")
	}
}

// TestOwable: a log never holds more than a counter can.
func TestOwable(t *testing.T) {
	need := algorithm.Need{Horizon: 1_000_000, Count: 100}
	g := new(algorithm.Log)
	for _, want := range []int64{1_000_000_000 - 5, 5, 0} {
		owed := g.Owable(40, 1_000_000_000-5, need)
		if owed != want {
			t.Fatalf("%d can be owed, want %d", owed, want)
		}
		if owed > 0 {
			g.Open(40, need)
			g.Add(40, owed)
		}
	}
	if owed := g.Owable(1_000_040, 7, need); owed != 7 {
		t.Errorf("%d can be owed when the window has passed, want 7", owed)
	}
}
