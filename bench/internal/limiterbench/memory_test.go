package limiterbench

import (
	"context"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/headgate/headgate/bench/internal/measure"
	"github.com/headgate/headgate/bench/internal/workload"
)

// admitsAndDenies holds a contender to what the harness takes for
// granted: exactly Count units pass for a new key, and keys do not share.
func admitsAndDenies(t *testing.T, c contender, addr string) {
	t.Helper()
	const wide, narrow = 5, 1
	q := workload.Limits{{Count: wide, Period: time.Hour}, {Count: narrow, Period: time.Hour}}
	l, err := c.open(t.Context(), addr, q)
	if err != nil {
		t.Fatal(err)
	}
	defer func() {
		if err := l.close(); err != nil {
			t.Error(err)
		}
	}()
	for i := range 2 * workload.NarrowEvery {
		class, key := workload.ClassOf(i), workload.Key(i)
		if l.add != nil {
			if err := l.add(class, key); err != nil {
				t.Fatal(err)
			}
		}
		for n := range wide + 3 {
			if err := l.insist(class, key, int64(n) < q[class].Count); err != nil {
				t.Fatalf("request %d: %v", n+1, err)
			}
		}
	}
}

func TestMemoryContendersAdmitAndDeny(t *testing.T) {
	for _, c := range slices.Concat([]contender{inMemory}, inMemoryWindows, inMemorySeveral, memoryPeers) {
		t.Run(c.name, func(t *testing.T) { admitsAndDenies(t, c, "") })
	}
}

func TestMemoryMeasuresEveryCell(t *testing.T) {
	contenders := slices.Concat([]contender{inMemory}, inMemoryWindows, inMemorySeveral, memoryPeers, []contender{harness})
	r := newMemoryRun(measure.Plan{Rounds: 2, Slice: time.Millisecond, Keys: 1000}, contenders)
	if err := r.measure(t.Context(), new(measure.Work)); err != nil {
		t.Fatal(err)
	}
	for _, row := range r.rows {
		if got := row.Samples[live]; len(got) != r.Rounds || got[0].Bytes == 0 {
			t.Errorf("%s: the footprints are %+v, want %d", row.Name, got, r.Rounds)
		}
		for at, name := range workloads {
			for _, n := range r.cores {
				samples := row.Samples[cell(at, n)]
				if len(samples) != r.Rounds {
					t.Errorf("%s: %s on %d cores has %d samples, want %d", row.Name, name, n, len(samples), r.Rounds)
				}
				for _, s := range samples {
					if s.Done == 0 || s.Elapsed <= 0 {
						t.Errorf("%s: %s on %d cores: empty sample %+v", row.Name, name, n, s)
					}
				}
			}
		}
	}
	text := r.text().String()
	for _, c := range contenders {
		if !strings.Contains(text, "| "+c.name+" ") || c.note != "" && !strings.Contains(text, "- **"+c.name+"**") {
			t.Errorf("the text lacks %q", c.name)
		}
	}
}

// yesToAll admits everything, which is wrong for narrow keys.
var yesToAll = contender{name: "yes to all", open: func(context.Context, string, workload.Limits) (*limiter, error) {
	return &limiter{take: func(workload.Class, string) (bool, error) { return true, nil }}, nil
}}

func TestMemoryRefusesAContenderThatIsWrong(t *testing.T) {
	r := newMemoryRun(measure.Plan{Rounds: 1, Slice: time.Millisecond, Keys: 100}, []contender{yesToAll})
	err := r.measure(t.Context(), new(measure.Work))
	if err == nil || !strings.Contains(err.Error(), "yes to all") || !strings.Contains(err.Error(), "narrow") {
		t.Errorf("the error is %v, want the contender and the class of the key named", err)
	}
}

func TestMemoryEndsWithItsContext(t *testing.T) {
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	r := newMemoryRun(measure.Plan{Rounds: 1, Slice: time.Millisecond, Keys: 100}, memoryPeers)
	if err := r.measure(ctx, new(measure.Work)); err == nil {
		t.Error("it went on after its context had ended")
	}
}
