package memorybench

import (
	"context"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/headgate/headgate/bench/internal/workload"
)

// TestContendersAdmitAndDeny holds every contender to what the harness takes for
// granted: exactly Count units pass for a new key, and keys do not share.
func TestContendersAdmitAndDeny(t *testing.T) {
	const wide, narrow = 5, 1
	q := workload.Limits{{Count: wide, Period: time.Hour}, {Count: narrow, Period: time.Hour}}
	for _, c := range Contenders() {
		if c.Role == Floor {
			continue
		}
		t.Run(c.Name, func(t *testing.T) {
			l, err := c.Open(q)
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
				if l.Add != nil {
					if err := l.Add(class, key); err != nil {
						t.Fatal(err)
					}
				}
				for n := range wide + 3 {
					allowed, err := l.Take(class, key)
					if err != nil {
						t.Fatal(err)
					}
					if want := int64(n) < q[class].Count; allowed != want {
						t.Fatalf("key %d (%s), request %d: allowed is %t, want %t", i, class, n+1, allowed, want)
					}
				}
			}
		})
	}
}

func TestRunMeasuresEveryCell(t *testing.T) {
	contenders := Contenders()
	plan := Plan{Rounds: 2, Slice: time.Millisecond, Keys: 1000}
	o, err := Run(t.Context(), plan, contenders)
	if err != nil {
		t.Fatal(err)
	}
	for _, r := range o.Results {
		if len(r.Footprints) != plan.Rounds {
			t.Errorf("%s: %d footprints, want %d", r.Contender.Name, len(r.Footprints), plan.Rounds)
		}
		for _, w := range Workloads() {
			for _, n := range o.Cores {
				samples := r.Samples[Cell{w, n}]
				if len(samples) != plan.Rounds {
					t.Errorf("%s: %s on %d cores has %d samples, want %d", r.Contender.Name, w, n, len(samples), plan.Rounds)
				}
				for _, s := range samples {
					if s.Decisions == 0 || s.Elapsed <= 0 {
						t.Errorf("%s: %s on %d cores: empty sample %+v", r.Contender.Name, w, n, s)
					}
				}
			}
		}
	}
	if o.Denied[hotDenied] != 1 || o.Denied[hotAdmitted] != 0 || o.Denied[uniform] <= 0 || o.Denied[uniform] >= 0.5 {
		t.Errorf("the shares of denials are %v", o.Denied)
	}
	text := o.Markdown()
	for _, c := range contenders {
		if !strings.Contains(text, c.Name) {
			t.Errorf("the tables lack %q", c.Name)
		}
	}
}

func TestRunRefusesAContenderThatIsWrong(t *testing.T) {
	yes := Contender{Name: "yes to all", Open: func(workload.Limits) (*Limiter, error) {
		return &Limiter{Take: func(workload.Class, string) (bool, error) { return true, nil }}, nil
	}}
	_, err := Run(t.Context(), Plan{Rounds: 1, Slice: time.Millisecond, Keys: 100}, []Contender{yes})
	if err == nil || !strings.Contains(err.Error(), "yes to all") || !strings.Contains(err.Error(), "narrow") {
		t.Errorf("the error is %v, want the contender and the class of the key named", err)
	}
}

func TestRunEndsWithItsContext(t *testing.T) {
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if _, err := Run(ctx, Plan{Rounds: 1, Slice: time.Millisecond, Keys: 100}, Peers()); err == nil {
		t.Error("Run went on after its context had ended")
	}
}

func ExampleRun() {
	plan := Plan{Rounds: 1, Slice: time.Millisecond, Keys: 1000}
	o, err := Run(context.Background(), plan, []Contender{Harness()})
	if err != nil {
		fmt.Println(err)
		return
	}
	for _, w := range Workloads() {
		fmt.Println(w, len(o.Results[0].Samples[Cell{w, 1}]))
	}
	// Output:
	// hot key, admitted 1
	// hot key, denied 1
	// uniform keys 1
	// zipf keys 1
}
