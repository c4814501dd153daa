package headgate_test

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/headgate/headgate"
	"github.com/headgate/headgate/internal/race"
	"github.com/headgate/headgate/store/memory"
	"github.com/headgate/headgate/store/storetest"
)

// fixed is a limiter over a memory store whose clock the test moves.
func fixed(rules ...*headgate.Rule) (*headgate.Limiter, *storetest.Clock) {
	clock := storetest.NewClock(storetest.Epoch)
	return headgate.New(memory.New(memory.Clock(clock.Now)), rules...), clock
}

func TestLimiter(t *testing.T) {
	ctx := t.Context()
	minute, second := headgate.MustRule("minute", headgate.PerMinute(6)), headgate.MustRule("second", headgate.Sliding(3, time.Second))
	l, clock := fixed(minute, second)
	for i, step := range []struct {
		do        string
		n         int64
		allowed   bool
		rule      *headgate.Rule // that decides
		remaining int64
		retry     time.Duration
	}{
		{"allow", 1, true, second, 2, 0},
		{"peek", 3, false, second, 2, time.Second},
		{"allowN", 2, true, second, 0, 0},
		{"allow", 1, false, second, 0, time.Second},
		{"wait", 0, false, nil, 0, 0},
		{"allowN", 3, true, minute, 0, 0},
		// Both deny: the one that takes longer to admit decides.
		{"allow", 1, false, minute, 0, 9 * time.Second},
		{"allowN", 7, false, minute, 0, headgate.Never},
		{"refund", 2, false, nil, 0, 0},
		{"peek", 2, true, minute, 2, 0}, // equal: the first decides
		{"reset", 0, false, nil, 0, 0},
		{"peek", 3, true, second, 3, 0},
	} {
		var d headgate.Decision
		var err error
		switch step.do {
		case "allow":
			d, err = l.Allow(ctx, "k")
		case "allowN":
			d, err = l.AllowN(ctx, "k", step.n)
		case "peek":
			d, err = l.Peek(ctx, "k", step.n)
		case "refund":
			err = l.Refund(ctx, "k", step.n, headgate.Instant(clock.Now()))
		case "reset":
			err = l.Reset(ctx, "k")
		case "wait":
			clock.Add(time.Second)
		}
		if err != nil {
			t.Fatalf("step %d: %v", i, err)
		}
		if step.rule != nil && (d.Allowed != step.allowed || d.Rule != step.rule || d.Remaining != step.remaining || d.RetryAfter != step.retry || int64(d.At) != clock.Now()) {
			t.Fatalf("step %d, %s %d: %+v; want %+v", i, step.do, step.n, d, step)
		}
	}
	if d, err := l.Allow(ctx, "another key"); err != nil || !d.Allowed || d.Remaining != 2 {
		t.Errorf("%+v, %v", d, err)
	}
}

func TestTake(t *testing.T) {
	client, global := headgate.MustRule("client", headgate.PerHour(5)), headgate.MustRule("global", headgate.PerHour(6), headgate.Sliding(7, time.Hour))
	l, _ := fixed(client)
	take := func(key string, cost int64) headgate.Verdict {
		t.Helper()
		v, err := l.Take(t.Context(), headgate.Check{Rule: client, Key: key, Cost: cost}, headgate.Check{Rule: global, Cost: cost})
		if err != nil {
			t.Fatal(err)
		}
		return v
	}
	if v := take("a", 4); !v.Allowed || len(v.Decisions) != 3 || v.Decisions[2].Remaining != 3 {
		t.Errorf("%+v", v)
	}
	v := take("b", 3)
	if d := v.Deciding(); v.Allowed || d.Rule != global || d.Check != 1 || d.Remaining != 2 || v.RetryAfter != 10*time.Minute || v.Decisions[0].Remaining != 5 {
		t.Errorf("%+v", v)
	}
	if v := take("b", 6); v.RetryAfter != headgate.Never || v.Deciding() != &v.Decisions[0] {
		t.Errorf("%+v", v)
	}
	if v, err := l.Take(t.Context()); !errors.Is(err, headgate.ErrInvalid) || v.Allowed {
		t.Errorf("%+v, %v", v, err)
	}
}

func TestLimiterMistakes(t *testing.T) {
	l, _ := fixed(headgate.MustRule("r", headgate.PerHour(5)))
	two, _ := fixed(headgate.MustRule("r", headgate.PerHour(5)), headgate.MustRule("s", headgate.PerHour(5)))
	for _, l := range []*headgate.Limiter{l, two} {
		for _, n := range []int64{0, -1, headgate.MaxCount + 1} {
			want := fmt.Sprintf("the cost is %d, must be 1 to 9007199254740991", n)
			_, allow := l.AllowN(t.Context(), "k", n)
			_, peek := l.Peek(t.Context(), "k", n)
			for name, err := range map[string]error{"AllowN": allow, "Peek": peek, "Refund": l.Refund(t.Context(), "k", n, 0), "WaitN": l.WaitN(t.Context(), "k", n)} {
				var invalid *headgate.InvalidError
				if !errors.As(err, &invalid) || !errors.Is(err, headgate.ErrInvalid) || invalid.Subject != "request" || !strings.Contains(err.Error(), want) {
					t.Errorf("%s of %d units: %v, want %s", name, n, err, want)
				}
			}
		}
		if d, err := l.Peek(t.Context(), "k", 5); err != nil || !d.Allowed {
			t.Errorf("%+v, %v; want nothing charged", d, err)
		}
	}
	r := headgate.MustRule("r", headgate.PerHour(5))
	for name, f := range map[string]func(){
		"no store":      func() { headgate.New(nil, r) },
		"no rule":       func() { headgate.New(memory.New()) },
		"a nil rule":    func() { headgate.New(memory.New(), nil) },
		"a rule twice":  func() { headgate.New(memory.New(), r, r) },
		"an empty rule": func() { headgate.New(memory.New(), new(headgate.Rule)) },
	} {
		func() {
			defer func() {
				if recover() == nil {
					t.Errorf("New with %s does not panic", name)
				}
			}()
			f()
		}()
	}
}

// TestLimiterAllocations: nothing is taken from the heap where the store takes
// nothing.
func TestLimiterAllocations(t *testing.T) {
	bucket, windows := headgate.MustRule("bucket", headgate.PerSecond(1_000_000)), headgate.MustRule("windows", headgate.Sliding(5, time.Hour), headgate.Sliding(9, 2*time.Hour))
	for name, rules := range map[string][]*headgate.Rule{
		"a bucket": {bucket}, "two windows": {windows}, "both": {bucket, windows}, "five limits": {headgate.MustRule("five", headgate.PerSecond(1_000_000), headgate.PerMinute(9), headgate.PerHour(99), headgate.Per(5, day), headgate.Per(6, 2*day))},
	} {
		l := headgate.New(memory.New(), rules...)
		ctx := context.Background()
		for range 20 {
			if _, err := l.Allow(ctx, "user:42"); err != nil {
				t.Fatal(err)
			}
		}
		for method, f := range map[string]func() (headgate.Decision, error){
			"Allow":  func() (headgate.Decision, error) { return l.Allow(ctx, "user:42") },
			"AllowN": func() (headgate.Decision, error) { return l.AllowN(ctx, "user:42", 3) },
			"Peek":   func() (headgate.Decision, error) { return l.Peek(ctx, "user:42", 3) },
		} {
			ceiling := 0.0
			if race.Enabled { // pools drop what is put back at random
				ceiling = 3
			}
			if n := testing.AllocsPerRun(1000, func() {
				if _, err := f(); err != nil {
					t.Error(err)
				}
			}); n > ceiling {
				t.Errorf("%s with %s: %v allocations, want 0", method, name, n)
			}
		}
	}
}

// TestLimiterConcurrency: what goroutines share is the store, not a call's scratch.
func TestLimiterConcurrency(t *testing.T) {
	a, b := headgate.MustRule("a", headgate.Per(300, day)), headgate.MustRule("b", headgate.Sliding(300, day))
	l, _ := fixed(a, b)
	var admitted atomic.Int64
	var all sync.WaitGroup
	for g := range 64 {
		all.Go(func() {
			for i := range 40 {
				key := fmt.Sprint("own ", g)
				if i%2 == 0 {
					key = "shared"
				}
				d, err := l.Allow(t.Context(), key)
				switch {
				case err != nil:
					t.Error(err)
				case i%2 == 0 && d.Allowed:
					admitted.Add(1)
				case i%2 == 1 && (!d.Allowed || d.Remaining != 299-int64(i/2)):
					t.Errorf("goroutine %d, call %d: %+v", g, i, d)
				}
			}
		})
	}
	all.Wait()
	if admitted.Load() != 300 {
		t.Errorf("%d units of the shared key were admitted, want 300", admitted.Load())
	}
}

// failing is a store that does not answer.
type failing struct{ err error }

func (f failing) Take(context.Context, headgate.Op, []headgate.Check, []headgate.Decision) ([]headgate.Decision, error) {
	return nil, f.err
}

func TestLimiterPassesErrorsOn(t *testing.T) {
	down := fmt.Errorf("%w: no route", headgate.ErrUnavailable)
	l := headgate.New(failing{down}, headgate.MustRule("r", headgate.PerHour(5)))
	for range 3 { // the scratch of a failed call is used again
		d, allow := l.Allow(t.Context(), "k")
		p, peek := l.Peek(t.Context(), "k", 1)
		v, take := l.Take(t.Context(), headgate.Check{Rule: headgate.MustRule("r", headgate.PerHour(5))})
		if d.Allowed || p.Allowed || v.Allowed {
			t.Errorf("a store that does not answer admits: %+v, %+v, %+v", d, p, v)
		}
		for _, err := range []error{allow, peek, take, l.Refund(t.Context(), "k", 1, 0), l.Reset(t.Context(), "k"), l.Wait(t.Context(), "k")} {
			if !errors.Is(err, headgate.ErrUnavailable) {
				t.Errorf("error %v, want %v", err, down)
			}
		}
	}
}

func TestObserve(t *testing.T) {
	type event struct {
		op                headgate.Op
		checks, decisions int
		err               error
	}
	var events []event
	hooks := headgate.Hooks{
		Decided: func(_ context.Context, op headgate.Op, checks []headgate.Check, decisions []headgate.Decision, took time.Duration) {
			events = append(events, event{op, len(checks), len(decisions), nil})
			if took < 0 {
				t.Errorf("took %v", took)
			}
		},
		Failed: func(_ context.Context, op headgate.Op, checks []headgate.Check, err error, _ time.Duration) {
			events = append(events, event{op, len(checks), 0, err})
		},
	}
	r := headgate.MustRule("r", headgate.PerHour(5), headgate.PerMinute(5))
	s := headgate.Observe(memory.New(), hooks)
	check := headgate.Check{Rule: r, Key: "k"}
	dst := []headgate.Decision{{Remaining: 4711}}
	out, err := s.Take(t.Context(), headgate.OpTake, []headgate.Check{check}, dst)
	if err != nil || len(out) != 3 || out[0].Remaining != 4711 {
		t.Errorf("%+v, %v", out, err)
	}
	for range 2 { // a reset decides nothing
		if _, err := s.Take(t.Context(), headgate.OpReset, []headgate.Check{check}, nil); err != nil {
			t.Error(err)
		}
	}
	_, invalid := s.Take(t.Context(), headgate.OpPeek, nil, nil)
	if !errors.Is(invalid, headgate.ErrInvalid) {
		t.Errorf("error %v", invalid)
	}
	want := []event{{headgate.OpTake, 1, 2, nil}, {headgate.OpReset, 1, 0, nil}, {headgate.OpReset, 1, 0, nil}, {headgate.OpPeek, 0, 0, invalid}}
	if fmt.Sprint(events) != fmt.Sprint(want) {
		t.Errorf("events %v, want %v", events, want)
	}
	silent := headgate.Observe(memory.New(), headgate.Hooks{})
	if out, err := silent.Take(t.Context(), headgate.OpTake, []headgate.Check{check}, nil); err != nil || len(out) != 2 {
		t.Errorf("%+v, %v", out, err)
	}
	if _, err := silent.Take(t.Context(), headgate.OpTake, nil, nil); err == nil {
		t.Error("no error for no checks")
	}
}
