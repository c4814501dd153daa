package measure

import (
	"context"
	"errors"
	"math"
	"strings"
	"testing"
	"time"
)

func TestClosedStopsAtTheFirstError(t *testing.T) {
	asked := 0
	_, err := Closed(t.Context(), 1, Times(100), func(_ context.Context, i int) error {
		asked++
		if i == 7 {
			return context.DeadlineExceeded
		}
		return nil
	})
	if !errors.Is(err, context.DeadlineExceeded) || !strings.Contains(err.Error(), "decision 7") || asked != 8 {
		t.Errorf("after %d questions the error is %v, want decision 7 named after 8", asked, err)
	}
}

func TestClosedAsksEachOnce(t *testing.T) {
	const n = 1000
	seen := make(chan int, n)
	s, err := Closed(t.Context(), 8, Times(n), func(_ context.Context, i int) error {
		seen <- i
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
	if s.Done != n || s.Took.TotalCount() != n || len(seen) != n {
		t.Errorf("%d decisions, %d latencies of %d questions, want %d of each", s.Done, s.Took.TotalCount(), len(seen), n)
	}
	once := map[int]bool{}
	for range n {
		once[<-seen] = true
	}
	if len(once) != n {
		t.Errorf("%d different questions, want %d", len(once), n)
	}
}

func TestTight(t *testing.T) {
	var kept [2][]byte
	s, err := Tight(2, time.Millisecond, func(w, _ int) error {
		kept[w] = make([]byte, 1<<12)
		return nil
	})
	if err != nil || s.Done == 0 || s.Done%Batch != 0 || s.Allocs < uint64(s.Done/Batch) {
		t.Errorf("got %+v, %v", s, err)
	}
	wrong := errors.New("wrong")
	if _, err := Tight(2, time.Minute, func(int, int) error { return wrong }); !errors.Is(err, wrong) {
		t.Errorf("the error is %v", err)
	}
}

// TestTurns: each round begins with the next row, and samples are kept by condition.
func TestTurns(t *testing.T) {
	var order []int
	rows := Rows{{Name: "a"}, {Name: "b"}}
	plan := Plan{Rounds: 2}
	err := plan.Turns(t.Context(), new(Work), rows, []int{5, 6}, func(_, condition, row int) (Sample, error) {
		order = append(order, condition*10+row)
		return Sample{Done: condition}, nil
	})
	want := []int{50, 51, 60, 61, 51, 50, 61, 60}
	if err != nil || len(order) != len(want) {
		t.Fatalf("%v, %v", order, err)
	}
	for i := range want {
		if order[i] != want[i] {
			t.Fatalf("the order is %v, want %v", order, want)
		}
	}
	if got := rows[1].Samples[6]; len(got) != 2 || got[0].Done != 6 {
		t.Errorf("the samples are %+v", got)
	}
	wrong := errors.New("wrong")
	if err := plan.Turns(t.Context(), new(Work), rows, nil, func(_, _, _ int) (Sample, error) { return Sample{}, wrong }); !errors.Is(err, wrong) || !strings.Contains(err.Error(), "a: ") {
		t.Errorf("the error is %v, want the row named", err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if err := plan.Turns(ctx, new(Work), rows, nil, nil); !errors.Is(err, context.Canceled) {
		t.Errorf("it went on after its context had ended: %v", err)
	}
}

func TestOver(t *testing.T) {
	a, b := Row{Name: "a"}, Row{Name: "b", Role: Floor}
	for _, seconds := range [][2]int{{1, 2}, {2, 4}, {30, 30}} {
		a.Add(0, Sample{Done: 60, Elapsed: time.Duration(seconds[0]) * time.Second})
		b.Add(0, Sample{Done: 60, Elapsed: time.Duration(seconds[1]) * time.Second})
	}
	if got := a.Over(&b, 0, Sample.PerSecond); got != 2 {
		t.Errorf("got %v, want 2, the median of the ratios of the rounds", got)
	}
	rows := Rows{a, b}
	if rows.Floor().Name != "b" || rows.Named("a").Median(0, Sample.PerSecond) != 30 || !math.IsNaN(rows.Named("c").Median(0, Sample.PerSecond)) {
		t.Errorf("the floor is %q", rows.Floor().Name)
	}
	text := rows.Under("fast").Table(Median("per s", 0, Sample.PerSecond), Over("÷ b", rows.Floor(), 0, Sample.PerSecond), Ratio("÷ b", rows.Floor(), 0, Sample.PerSecond)).String()
	for _, want := range []string{"| fast, a |  30.0 | 2.00 × | 2.00 × |", "| fast, b |  15.0 | 1.00 × | 1.00 × |"} {
		if !strings.Contains(text, want) {
			t.Errorf("%q is missing in\n%s", want, text)
		}
	}
}
