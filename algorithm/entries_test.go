package algorithm_test

import (
	"testing"
	"time"

	"github.com/headgate/headgate"
	"github.com/headgate/headgate/algorithm"
)

// TestEntries: a log that is made of its entries again says of every window what it
// said before, whatever it has forgotten.
func TestEntries(t *testing.T) {
	r := headgate.MustRule("r", headgate.Sliding(100, time.Second), headgate.Sliding(300, 3*time.Second))
	horizon := algorithm.Horizon(r)
	g := new(algorithm.Log)
	for i := range int64(500) {
		now := 1_000_000 + i*20_011
		g.Trim(now - horizon)
		g.Add(now, 1+i%3)
		again := algorithm.NewLog(g.Entries(nil))
		if again.Len() != g.Len() || again.Newest() != now {
			t.Fatalf("%d entries, the newest at %d; want %d, %d", again.Len(), again.Newest(), g.Len(), now)
		}
		for j := range r.Limits() {
			l := &r.Limits()[j]
			if got, want := again.Facts(l, now+7, 5, horizon), g.Facts(l, now+7, 5, horizon); got != want {
				t.Fatalf("entry %d, %v: %+v, want %+v", i, l, got, want)
			}
		}
	}
	if new(algorithm.Log).Newest() != 0 || len(new(algorithm.Log).Entries(nil)) != 0 {
		t.Error("an empty log has entries")
	}
}

// TestOweMerged: what is owed without growing is all there, from now on, and never
// more than a log can hold.
func TestOweMerged(t *testing.T) {
	r := headgate.MustRule("r", headgate.Sliding(100, time.Second))
	l, horizon := &r.Limits()[0], algorithm.Horizon(r)
	g := algorithm.NewLog([]algorithm.Entry{{Time: 10, Sum: 3}, {Time: 20, Sum: 5}})
	g.OweMerged(30, 4, horizon)
	if f := g.Facts(l, 30, 0, horizon); g.Len() != 2 || f.Used != 9 || f.Newest != 30 {
		t.Errorf("%d entries, %+v; want 2, 9 used, the newest at 30", g.Len(), f)
	}
	for range 3 {
		g.OweMerged(40, headgate.MaxCount, horizon)
	}
	if f := g.Facts(l, 40, 0, horizon); f.Used != headgate.MaxCount {
		t.Errorf("%d are in use, want %d", f.Used, headgate.MaxCount)
	}
}
