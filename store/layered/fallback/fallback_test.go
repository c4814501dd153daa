package fallback_test

import (
	"context"
	"errors"
	"math/rand/v2"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/headgate/headgate"
	"github.com/headgate/headgate/internal/bubbletest"
	"github.com/headgate/headgate/store/layered/fallback"
	"github.com/headgate/headgate/store/layered/internal/layertest"
	"github.com/headgate/headgate/store/memory"
	"github.com/headgate/headgate/store/storetest"
)

// TestConformance: around a store that is well there is nothing to notice.
func TestConformance(t *testing.T) {
	storetest.Run(t, func(t testing.TB, clock func() int64) headgate.Store {
		f, err := fallback.New(memory.New(memory.Clock(clock)), fallback.Options{Local: memory.New(memory.Clock(clock)), Default: headgate.OnErrorLocal})
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { f.Close(context.Background()) })
		return f.Store()
	})
}

// plain is a store that is nothing else.
type plain struct{ headgate.Store }

func TestStoreIsWhatThePrimaryIs(t *testing.T) {
	if _, ok := layertest.Fallback(t, memory.New(), fallback.Options{}).Store().(headgate.Ledger); !ok {
		t.Error("around a ledger there is none")
	}
	if _, ok := layertest.Fallback(t, plain{memory.New()}, fallback.Options{}).Store().(headgate.Ledger); ok {
		t.Error("around a plain store there is a ledger")
	}
}

func TestMistakes(t *testing.T) {
	_, err := fallback.New(nil, fallback.Options{
		Default: 9, Node: strings.Repeat("n", 65), Failures: -1, Learn: -1, Ramp: 1, MaxRetry: 1, Beat: 2 * time.Hour, Debts: -1,
	})
	var invalid *headgate.InvalidError
	if !errors.As(err, &invalid) || len(invalid.Problems) != 9 {
		t.Errorf("got %v, want 9 problems", err)
	}
}

// TestHangingStore: while it hangs no request waits but the first few, and nothing
// piles up.
func TestHangingStore(t *testing.T) {
	bubbletest.Test(t, func(t *testing.T) {
		primary := layertest.NewScripted()
		f := layertest.Fallback(t, primary, fallback.Options{Default: headgate.OnErrorLocal})
		c := headgate.Check{Rule: headgate.MustRule("r", headgate.PerSecond(1_000_000)), Key: "k"}
		layertest.Take(t, f.Store(), c)
		primary.Feel(layertest.Hangs)
		before := primary.Calls.Load()
		var waited int
		for range 10_000 { // of them, 10 s go by
			start := time.Now()
			v := layertest.Take(t, f.Store(), c)
			switch took := time.Since(start); {
			case took > layertest.Deadline:
				t.Fatalf("a request took %v", took)
			case took > 0:
				waited++
			}
			if !v.Allowed || v.Decisions[0].Source != headgate.SourceLocal {
				t.Fatalf("got %+v", v)
			}
			time.Sleep(time.Millisecond)
		}
		if got := primary.Calls.Load() - before; got != fallback.DefaultFailures || waited != fallback.DefaultFailures {
			t.Errorf("%d requests asked the store, and %d waited; want %d", got, waited, fallback.DefaultFailures)
		}
		// With a second between them and half as much of jitter, after some in quick
		// succession.
		if probes := primary.Probes.Load(); probes < 8 || probes > 30 || primary.Busiest.Load() != 1 {
			t.Errorf("%d probes in 10 s, up to %d at a time", probes, primary.Busiest.Load())
		}
		s := f.Stats()
		if s.State != fallback.Open || s.Local != 10_000 || s.Failures != fallback.DefaultFailures || s.Opened != 1 || s.ProbesFailed != s.Probes {
			t.Errorf("got %+v", s)
		}
		if !errors.Is(s.Cause, headgate.ErrUnavailable) || !strings.Contains(s.Cause.Error(), "deadline exceeded") {
			t.Errorf("the cause is %v", s.Cause)
		}
		layertest.Recover(t, f, primary)
		if v := layertest.Take(t, f.Store(), c); v.Decisions[0].Source != headgate.SourceStore {
			t.Errorf("after it is over: %+v", v)
		}
	})
}

// TestSickInPart: a store that answers some requests is asked all of them.
func TestSickInPart(t *testing.T) {
	bubbletest.Test(t, func(t *testing.T) {
		primary := layertest.NewScripted()
		decided := 0
		f := layertest.Fallback(t, primary, fallback.Options{Default: headgate.OnErrorAllow, Decided: func(cause error) {
			if decided++; !errors.Is(cause, headgate.ErrUnavailable) {
				t.Errorf("decided because of %v", cause)
			}
		}})
		c := headgate.Check{Rule: headgate.MustRule("r", headgate.PerSecond(1_000_000)), Key: "k"}
		for range 1000 {
			for _, h := range []layertest.Health{layertest.Refuses, layertest.Refuses, layertest.Refuses, layertest.Hangs, layertest.Well} {
				primary.Feel(h)
				layertest.Take(t, f.Store(), c)
			}
		}
		if s := f.Stats(); s.Opened != 0 || s.Failures != 4000 || primary.Calls.Load() != 5000 {
			t.Errorf("got %+v after %d calls", s, primary.Calls.Load())
		}
		if decided != 4000 {
			t.Errorf("it was told of %d requests that were decided without the store, want 4000", decided)
		}
	})
}

// TestOneOfThree: what one node of three refuses does not open the breaker, so that the requests of
// the others are decided.
func TestOneOfThree(t *testing.T) {
	bubbletest.Test(t, func(t *testing.T) {
		primary := layertest.NewScripted()
		f := layertest.Fallback(t, primary, fallback.Options{Default: headgate.OnErrorAllow})
		c := headgate.Check{Rule: headgate.MustRule("r", headgate.PerSecond(1_000_000)), Key: "k"}
		random := rand.New(rand.NewPCG(1, 2))
		for end := time.Now().Add(time.Minute); time.Now().Before(end); time.Sleep(2 * time.Millisecond) {
			if primary.Feel(layertest.Well); random.IntN(3) == 0 {
				primary.Feel(layertest.Refuses)
			}
			layertest.Take(t, f.Store(), c)
		}
		if s := f.Stats(); s.Opened != 0 {
			t.Errorf("got %+v, want it never opened", s)
		}
	})
}

// TestComesAndGoes: a store that is well when it is probed, and away when it is asked, is
// asked less and less often, and the breaker does not open several times a second for ever.
func TestComesAndGoes(t *testing.T) {
	bubbletest.Test(t, func(t *testing.T) {
		primary := layertest.NewScripted()
		told := 0
		f := layertest.Fallback(t, primary, fallback.Options{Default: headgate.OnErrorAllow, Decided: func(error) { told++ }})
		c := headgate.Check{Rule: headgate.MustRule("r", headgate.PerSecond(1_000_000)), Key: "k"}
		const lasts = time.Minute
		for end := time.Now().Add(lasts); time.Now().Before(end); time.Sleep(time.Millisecond) {
			primary.Feel(layertest.Refuses)
			if f.Stats().State == fallback.Open {
				primary.Feel(layertest.Well)
			}
			layertest.Take(t, f.Store(), c)
		}
		// A tenth of a second on average between two probes.
		if s := f.Stats(); s.Opened > int64(lasts/(100*time.Millisecond)) || s.Opened < 10 {
			t.Errorf("it has opened %d times within %v", s.Opened, lasts)
		}
		if told > 150 { // the first outage lasts for 100 ms before it is one
			t.Errorf("it was told of %d requests one by one", told)
		}
		primary.Feel(layertest.Well)
		time.Sleep(5 * time.Second)
		if s := f.Stats(); s.State != fallback.Closed {
			t.Errorf("when it was well, %+v", s)
		}
	})
}

// TestPause: a store that answers nothing for a moment costs no caller his answer who waits for it.
// Only one that is away for longer, or refuses, is given up, and costs what has arrived meanwhile.
func TestPause(t *testing.T) {
	const each, ms = 2 * time.Millisecond, time.Millisecond
	for _, tt := range []struct {
		name         string
		health       layertest.Health
		lasts, waits time.Duration // waits is the callers' own deadline; 0 for none
		opens        int64
		most         time.Duration // unanswered are at most those who arrive in this time
	}{
		{"30 ms", layertest.Hangs, 30 * ms, 0, 0, 0},
		{"80 ms", layertest.Hangs, 80 * ms, 0, 0, 0},
		{"300 ms", layertest.Hangs, 300 * ms, 0, 0, 0},
		{"490 ms", layertest.Hangs, 490 * ms, 0, 0, 0},
		{"540 ms", layertest.Hangs, 540 * ms, 0, 0, 45 * ms},
		{"of callers who wait for 20 ms", layertest.Hangs, 400 * ms, 20 * ms, 0, 390 * ms},
		{"of callers who wait for 2 ms", layertest.Hangs, 2 * time.Second, 2 * ms, 0, 2 * time.Second},
		{"1 s", layertest.Hangs, time.Second, 0, 1, 1200 * ms},
		{"5 s", layertest.Hangs, 5 * time.Second, 0, 1, 5400 * ms},
		{"5 s, of callers who wait for 20 ms", layertest.Hangs, 5 * time.Second, 20 * ms, 1, 5500 * ms},
		{"refused for 4 ms", layertest.Refuses, 4 * ms, 0, 0, 8 * ms},
		{"refused for 90 ms", layertest.Refuses, 90 * ms, 0, 0, 95 * ms},
		{"refused for 200 ms", layertest.Refuses, 200 * ms, 0, 1, 275 * ms},
		{"refused for 5 s", layertest.Refuses, 5 * time.Second, 0, 1, 5700 * ms},
	} {
		t.Run(tt.name, func(t *testing.T) {
			bubbletest.Test(t, func(t *testing.T) {
				primary := layertest.NewScripted()
				f := layertest.Fallback(t, primary, fallback.Options{})
				checks := []headgate.Check{{Rule: headgate.MustRule("r", headgate.PerSecond(1_000_000)), Key: "k"}}
				var all sync.WaitGroup
				var mu sync.Mutex // guards failed, waiting and most
				var failed []time.Time
				var waiting, most int
				begin, back := time.Now(), time.Now().Add(time.Second+tt.lasts)
				time.AfterFunc(time.Second, func() { primary.Feel(tt.health) })
				time.AfterFunc(time.Second+tt.lasts, func() { primary.Feel(layertest.Well) })
				for time.Since(begin) < tt.lasts+2500*time.Millisecond {
					all.Go(func() {
						ctx := t.Context()
						if tt.waits > 0 {
							var cancel context.CancelFunc
							ctx, cancel = context.WithTimeout(ctx, tt.waits)
							defer cancel()
						}
						came := time.Now()
						mu.Lock()
						waiting++
						most = max(most, waiting)
						mu.Unlock()
						_, err := f.Store().Take(ctx, headgate.OpTake, checks, nil)
						mu.Lock()
						defer mu.Unlock()
						waiting--
						if err != nil {
							failed = append(failed, came)
						}
					})
					time.Sleep(each)
				}
				all.Wait()
				if got := time.Duration(len(failed)) * each; got > tt.most {
					t.Errorf("%d were not answered, who came in %v; want %v at most", len(failed), got, tt.most)
				}
				if s := f.Stats(); s.Opened != tt.opens || s.State != fallback.Closed {
					t.Errorf("got %+v, want it opened %d times", s, tt.opens)
				}
				if most > int(layertest.Deadline/each)+30 {
					t.Errorf("%d waited at a time", most)
				}
				if n := len(failed); n > 0 && failed[n-1].Sub(back) > 710*ms {
					t.Errorf("the last who was not answered came %v after it was back", failed[n-1].Sub(back))
				}
			})
		})
	}
}

// TestStopped: a process that was stopped, or got no processor, finds all its deadlines passed at
// once, and does not blame the store.
func TestStopped(t *testing.T) {
	bubbletest.Test(t, func(t *testing.T) {
		primary := layertest.NewScripted()
		f := layertest.Fallback(t, primary, fallback.Options{})
		checks := []headgate.Check{{Rule: headgate.MustRule("r", headgate.PerSecond(1_000_000)), Key: "k"}}
		take := func() error {
			_, err := f.Store().Take(t.Context(), headgate.OpTake, checks, nil)
			return err
		}
		for range 10 {
			primary.Feel(layertest.Hangs)
			var all sync.WaitGroup
			for i := range 100 {
				all.Go(func() {
					time.Sleep(time.Duration(i) * 40 * time.Millisecond / 100)
					if err := take(); err == nil {
						t.Error("it was answered")
					}
				})
			}
			all.Wait()
			primary.Feel(layertest.Well)
			for range 10 {
				if err := take(); err != nil {
					t.Error(err)
				}
				time.Sleep(time.Millisecond)
			}
		}
		if s := f.Stats(); s.Opened != 0 || s.Failures != 1000 {
			t.Errorf("got %+v", s)
		}
	})
}

// TestOnError: what a request of several checks comes to while the store is gone.
func TestOnError(t *testing.T) {
	a, b := headgate.MustRule("a", headgate.PerMinute(2)), headgate.MustRule("b", headgate.PerMinute(2), headgate.PerHour(1))
	check := func(r *headgate.Rule, o headgate.OnError, shadow bool) headgate.Check {
		return headgate.Check{Rule: r, Key: "k", Hints: headgate.Hints{OnError: o}, Shadow: shadow}
	}
	const (
		ret   = headgate.OnErrorReturn
		deny  = headgate.OnErrorDeny
		open  = headgate.OnErrorAllow
		local = headgate.OnErrorLocal
	)
	for _, tt := range []struct {
		name      string
		otherwise headgate.OnError
		checks    []headgate.Check
		want      string // of each request of two: sources and whether they admit; or error
	}{
		{"nothing is said", ret, []headgate.Check{check(a, ret, false)}, "error error"},
		{"deny", ret, []headgate.Check{check(a, deny, false)}, "error error"},
		{"deny, though the default is not", open, []headgate.Check{check(a, deny, false)}, "error error"},
		{"the default is deny", deny, []headgate.Check{check(a, ret, false)}, "error error"},
		{"allow", ret, []headgate.Check{check(a, open, false)}, "open+ open+"},
		{"the default is allow", open, []headgate.Check{check(a, ret, false)}, "open+ open+"},
		{"local", ret, []headgate.Check{check(b, local, false)}, "local+local+ local+local-"},
		{"the default is local", local, []headgate.Check{check(b, ret, false)}, "local+local+ local+local-"},
		{"one denies", ret, []headgate.Check{check(a, open, false), check(b, deny, false)}, "error error"},
		{"one denies, one is local", ret, []headgate.Check{check(a, local, false), check(b, deny, false)}, "error error"},
		{"a shadow cannot deny", ret, []headgate.Check{check(a, open, false), check(b, deny, true)}, "open+open+open+ open+open+open+"},
		{"local ones decide", ret, []headgate.Check{check(a, open, false), check(b, local, false)}, "open+local+local+ open+local+local-"},
		{"in the order of the checks", ret, []headgate.Check{check(b, local, false), check(a, open, false)}, "local+local+open+ local+local-open+"},
		{"a local shadow", ret, []headgate.Check{check(b, local, true), check(a, open, false)}, "local+local+open+ local+local-open+"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			bubbletest.Test(t, func(t *testing.T) {
				primary := layertest.NewScripted()
				f := layertest.Fallback(t, primary, fallback.Options{Default: tt.otherwise})
				layertest.Fail(t, f, primary, layertest.Refuses)
				var got []string
				for range 2 {
					decisions, err := f.Store().Take(t.Context(), headgate.OpTake, tt.checks, nil)
					switch {
					case errors.Is(err, headgate.ErrUnavailable):
						got = append(got, "error")
						continue
					case err != nil:
						t.Fatal(err)
					}
					text, place := "", 0
					for i, c := range tt.checks {
						for j := range c.Rule.Limits() {
							d := decisions[place]
							place++
							text += d.Source.String() + map[bool]string{true: "+", false: "-"}[d.Allowed]
							if d.Rule != c.Rule || d.Check != i || d.Shadow != c.Shadow || d.Limit.Slot() != c.Rule.Limits()[j].Slot() || d.At == 0 {
								t.Errorf("decision %d is %+v", place, d)
							}
						}
					}
					if place != len(decisions) {
						t.Errorf("%d decisions, want %d", len(decisions), place)
					}
					got = append(got, text)
				}
				if strings.Join(got, " ") != tt.want {
					t.Errorf("got %s, want %s", strings.Join(got, " "), tt.want)
				}
			})
		})
	}
}

// TestOtherOperations: a reset needs the store; a peek and a refund go where the
// takes went.
func TestOtherOperations(t *testing.T) {
	bubbletest.Test(t, func(t *testing.T) {
		primary := layertest.NewScripted()
		f := layertest.Fallback(t, primary, fallback.Options{Default: headgate.OnErrorLocal})
		c := headgate.Check{Rule: headgate.MustRule("r", headgate.PerHour(3)), Key: "k"}
		do := func(op headgate.Op, c headgate.Check) (headgate.Decision, error) {
			d, err := f.Store().Take(t.Context(), op, []headgate.Check{c}, nil)
			if err != nil || len(d) == 0 {
				return headgate.Decision{}, err
			}
			return d[0], nil
		}
		layertest.Fail(t, f, primary, layertest.Refuses)
		d, err := do(headgate.OpTake, c)
		if err != nil || d.Remaining != 2 {
			t.Fatalf("take: %+v, %v", d, err)
		}
		if d, err := do(headgate.OpPeek, c); err != nil || d.Remaining != 2 || d.Source != headgate.SourceLocal {
			t.Errorf("peek: %+v, %v", d, err)
		}
		c.At = d.At
		if d, err := do(headgate.OpRefund, c); err != nil || d.Remaining != 3 || d.Source != headgate.SourceLocal {
			t.Errorf("refund: %+v, %v", d, err)
		}
		if s := f.Stats(); s.Debts != 0 {
			t.Errorf("%d debts for what was given back", s.Debts)
		}
		if _, err := do(headgate.OpReset, c); !errors.Is(err, headgate.ErrUnavailable) {
			t.Errorf("reset: %v", err)
		}
		c.Cost = -1
		if _, err := do(headgate.OpTake, c); !errors.Is(err, headgate.ErrInvalid) {
			t.Errorf("an invalid check: %v", err)
		}
		// While the store is well, the local counters follow it.
		layertest.Recover(t, f, primary)
		c = headgate.Check{Rule: c.Rule, Key: "other"}
		for _, op := range []headgate.Op{headgate.OpTake, headgate.OpTake, headgate.OpRefund, headgate.OpTake} {
			if _, err := do(op, c); err != nil {
				t.Fatal(err)
			}
		}
		layertest.Fail(t, f, primary, layertest.Refuses)
		if d, err := do(headgate.OpPeek, c); err != nil || d.Remaining != 1 {
			t.Errorf("after two takes of three: %+v, %v", d, err)
		}
		layertest.Recover(t, f, primary)
		if _, err := do(headgate.OpReset, c); err != nil {
			t.Fatal(err)
		}
		layertest.Fail(t, f, primary, layertest.Refuses)
		if d, err := do(headgate.OpPeek, c); err != nil || d.Remaining != 3 {
			t.Errorf("after a reset: %+v, %v", d, err)
		}
	})
}

// TestCallers: a caller who goes away says nothing of the store; a deadline of a
// caller's own does if the store had time to answer.
func TestCallers(t *testing.T) {
	bubbletest.Test(t, func(t *testing.T) {
		primary := layertest.NewScripted()
		f := layertest.Fallback(t, primary, fallback.Options{})
		checks := []headgate.Check{{Rule: headgate.MustRule("r", headgate.PerSecond(1000)), Key: "k"}}
		primary.Feel(layertest.Hangs)
		attempt := func(within time.Duration, cancelled bool) error {
			ctx, cancel := context.WithTimeout(t.Context(), within)
			defer cancel()
			if cancelled {
				go func() {
					time.Sleep(8 * time.Millisecond)
					cancel()
				}()
			}
			_, err := f.Store().Take(ctx, headgate.OpTake, checks, nil)
			time.Sleep(10 * time.Millisecond)
			return err
		}
		for range 50 {
			if err := attempt(time.Minute, true); !errors.Is(err, context.Canceled) {
				t.Fatalf("cancelled: %v", err)
			}
			if err := attempt(4*time.Millisecond, false); !errors.Is(err, context.DeadlineExceeded) {
				t.Fatalf("of 4 ms: %v", err)
			}
		}
		if s := f.Stats(); s.State != fallback.Closed || s.Failures != 0 {
			t.Errorf("after callers without patience: %+v", s)
		}
		for range 40 { // of them, more than half a second goes by
			if err := attempt(6*time.Millisecond, false); !errors.Is(err, context.DeadlineExceeded) && f.Stats().State == fallback.Closed {
				t.Fatalf("of 6 ms: %v", err)
			}
		}
		if s := f.Stats(); s.State != fallback.Open || s.Failures < 30 {
			t.Errorf("after callers with patience: %+v", s)
		}
		ctx, cancel := context.WithCancel(t.Context())
		cancel()
		if _, err := f.Store().Take(ctx, headgate.OpTake, checks, nil); !errors.Is(err, headgate.ErrUnavailable) {
			t.Errorf("open, of somebody who is gone: %v", err)
		}
	})
}

// TestShortOfTime: a caller who waits for less than the store may take is told what can be decided
// without it, in time. If nothing can, all of the caller's time is the store's.
func TestShortOfTime(t *testing.T) {
	bubbletest.Test(t, func(t *testing.T) {
		primary := layertest.NewScripted()
		f := layertest.Fallback(t, primary, fallback.Options{})
		primary.Feel(layertest.Hangs)
		for o, want := range map[headgate.OnError]time.Duration{headgate.OnErrorLocal: 15 * time.Millisecond, headgate.OnErrorAllow: 15 * time.Millisecond, headgate.OnErrorDeny: 20 * time.Millisecond} {
			ctx, cancel := context.WithTimeout(t.Context(), 20*time.Millisecond)
			defer cancel()
			came := time.Now()
			check := headgate.Check{Rule: headgate.MustRule("r", headgate.PerSecond(1000)), Key: "k", Hints: headgate.Hints{OnError: o}}
			_, err := f.Store().Take(ctx, headgate.OpTake, []headgate.Check{check}, nil)
			if took := time.Since(came); took != want || (err == nil) != (o != headgate.OnErrorDeny) {
				t.Errorf("%v: after %v got %v, want it after %v", o, took, err, want)
			}
		}
	})
}

// TestErrorsThatAreAnswers do not open the breaker, and get no other decision.
func TestErrorsThatAreAnswers(t *testing.T) {
	bubbletest.Test(t, func(t *testing.T) {
		f := layertest.Fallback(t, layertest.NewScripted(), fallback.Options{Default: headgate.OnErrorAllow})
		for range 100 {
			if _, err := f.Store().Take(t.Context(), headgate.OpTake, nil, nil); !errors.Is(err, headgate.ErrInvalid) {
				t.Fatal(err)
			}
			time.Sleep(time.Millisecond)
		}
		if s := f.Stats(); s.State != fallback.Closed || s.Failures != 0 {
			t.Errorf("got %+v", s)
		}
	})
}

// TestChanged is told of each change once, in order.
func TestChanged(t *testing.T) {
	bubbletest.Test(t, func(t *testing.T) {
		primary := layertest.NewScripted()
		var mu sync.Mutex // guards told
		var told []string
		f := layertest.Fallback(t, primary, fallback.Options{
			Default: headgate.OnErrorAllow, Learn: time.Minute,
			Changed: func(was, is fallback.Stats) {
				word := was.State.String() + " → " + is.State.String()
				if is.Learning {
					word += ", learning"
				}
				if is.NodesError != nil {
					word += ", deaf"
				}
				mu.Lock()
				defer mu.Unlock()
				told = append(told, word)
			},
		})
		layertest.Fail(t, f, primary, layertest.Hangs)
		primary.Lose()
		layertest.Recover(t, f, primary)
		time.Sleep(time.Minute)
		primary.Deafen(true)
		time.Sleep(time.Minute)
		mu.Lock()
		defer mu.Unlock()
		want := []string{"closed → open", "open → open, learning", "open → half_open, learning", "half_open → closed, learning", "closed → closed", "closed → closed, deaf"}
		if got := strings.Join(told, "; "); got != strings.Join(want, "; ") {
			t.Errorf("told %s\nwant %s", got, strings.Join(want, "; "))
		}
	})
}
