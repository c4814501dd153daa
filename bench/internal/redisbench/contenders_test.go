package redisbench

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/headgate/headgate/bench/internal/workload"
)

// started runs a server for the length of a test. A program that is missing
// fails the test: `make test` installs what it needs.
func started(t *testing.T, program string) *Server {
	t.Helper()
	s, err := Start(t.Context(), program)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := s.Stop(); err != nil {
			t.Error(err)
		}
	})
	return s
}

// onEach runs a test on both kinds of server.
func onEach(t *testing.T, test func(t *testing.T, s *Server)) {
	t.Helper()
	for _, program := range []string{"redis-server", "valkey-server"} {
		t.Run(program, func(t *testing.T) { test(t, started(t, program)) })
	}
}

// TestContendersAdmitAndDeny holds every contender to what the harness takes for
// granted: exactly Count units pass for a new key, and keys do not share.
func TestContendersAdmitAndDeny(t *testing.T) {
	const wide, narrow = 5, 1
	q := workload.Limits{{Count: wide, Period: time.Hour}, {Count: narrow, Period: time.Hour}}
	onEach(t, func(t *testing.T, s *Server) {
		for _, c := range Field().Strict {
			t.Run(c.Name, func(t *testing.T) {
				l, err := c.Open(t.Context(), s.Addr, q)
				if err != nil {
					t.Fatal(err)
				}
				defer func() {
					if err := l.Close(); err != nil {
						t.Error(err)
					}
				}()
				for i := range 2 * workload.NarrowEvery {
					class, key := workload.ClassOf(i), workload.Key(i)
					for n := range wide + 3 {
						if err := insist(t.Context(), l, class, key, int64(n) < q[class].Count); err != nil {
							t.Fatalf("request %d: %v", n+1, err)
						}
					}
				}
			})
		}
	})
}

// TestFloorRefills holds the bare script to its rate: it is only a floor if it
// decides rightly.
func TestFloorRefills(t *testing.T) {
	s := started(t, "redis-server")
	q := workload.Limit{Count: 2, Period: 400 * time.Millisecond}
	l, err := openFloor(t.Context(), s.Addr, workload.Limits{q, q})
	if err != nil {
		t.Fatal(err)
	}
	defer func() {
		if err := l.Close(); err != nil {
			t.Error(err)
		}
	}()
	began := time.Now()
	admitted := 0
	for admitted < 6 {
		allowed, err := l.Take(t.Context(), workload.Wide, "k")
		if err != nil {
			t.Fatal(err)
		}
		if allowed {
			admitted++
		}
	}
	// Two at once, four more at one in 200 ms: never sooner, whatever the machine
	// does meanwhile.
	if took := time.Since(began); took < 4*q.Interval()-time.Millisecond {
		t.Errorf("six units passed within %v, want at least %v", took, 4*q.Interval())
	}
}

func TestWindowContendersAdmitAndDeny(t *testing.T) {
	windows := []Window{{5, time.Hour}, {3, 200 * time.Millisecond}}
	onEach(t, func(t *testing.T, s *Server) {
		for _, c := range Field().Windows {
			t.Run(c.Name, func(t *testing.T) {
				l, err := c.Open(t.Context(), s.Addr, windows)
				if err != nil {
					t.Fatal(err)
				}
				defer func() {
					if err := l.Close(); err != nil {
						t.Error(err)
					}
				}()
				key := ""
				answer := func(name string) bool {
					t.Helper()
					take := l.Take
					if name == "fill" {
						take = l.Fill
					}
					allowed, err := take(t.Context(), key)
					if err != nil {
						t.Fatalf("%s: %v", name, err)
					}
					return allowed
				}
				ask := func(name string, want bool) {
					t.Helper()
					if allowed := answer(name); allowed != want {
						t.Fatalf("%s: allowed is %t, want %t", name, allowed, want)
					}
				}
				// Filling passes the short window by, and counts in it, unless that is over
				// on a machine that is busy.
				keys := 0
				for denied := false; !denied; {
					keys++
					key = fmt.Sprint("k", keys)
					began := time.Now()
					for range 4 {
						ask("fill", true)
					}
					denied = !answer("take")
					if !denied && (time.Since(began) < windows[1].Period || keys == 100) {
						t.Fatalf("after %v a take beside what was filled is allowed", time.Since(began))
					}
				}
				time.Sleep(250 * time.Millisecond)
				ask("take", true)
				ask("take", false) // The long window is full now.
				ask("fill", false)
				owned, err := s.keys(t.Context(), 10*keys, l.Owns)
				if err != nil {
					t.Fatal(err)
				}
				if len(owned) != keys {
					t.Errorf("it owns the keys %q, want %d", owned, keys)
				}
			})
		}
	})
}

func TestRunAnswersEveryQuestion(t *testing.T) {
	s := started(t, "redis-server")
	if !strings.HasPrefix(s.Version, "redis-server ") || len(s.Version) < len("redis-server 6.2") {
		t.Errorf("the version is %q", s.Version)
	}
	plan := Plan{
		Rounds: 2, Slice: 20 * time.Millisecond, Callers: []int{1, 4}, Keys: 1000,
		Windows: []Window{{20, time.Minute}, {6, 500 * time.Millisecond}}, WindowKeys: 20,
		// What the server keeps for its clients comes and goes, and is less than so many keys.
		WeighedKeys: 10_000,
	}
	field := Field()
	o, err := Run(t.Context(), s, plan, field)
	if err != nil {
		t.Fatal(err)
	}
	for _, series := range o.Strict {
		for _, callers := range plan.Callers {
			checkSamples(t, series.Contender.Name, series.Samples[callers], plan.Rounds)
		}
	}
	for _, series := range o.Several {
		checkSamples(t, series.Contender.Name, series.Samples[many], plan.Rounds)
	}
	for _, w := range o.Windows {
		checkSamples(t, w.Contender.Name+", admitted", w.Admitted, plan.Rounds)
		checkSamples(t, w.Contender.Name+", denied", w.Denied, plan.Rounds)
		if w.BytesPerKey <= 0 {
			t.Errorf("%s: %v bytes a key", w.Contender.Name, w.BytesPerKey)
		}
	}
	for _, f := range o.Footprint {
		if f.Total <= 0 || f.Each <= 0 {
			t.Errorf("%s: %v bytes a key, %v by MEMORY USAGE", f.Contender.Name, f.Total, f.Each)
		}
	}
	text := o.Markdown()
	for _, c := range field.Strict {
		if !strings.Contains(text, c.Name) {
			t.Errorf("the tables lack %q", c.Name)
		}
	}
	if len(o.Bars()) == 0 {
		t.Error("there are no bars, although Headgate was measured")
	}
}

func checkSamples(t *testing.T, name string, samples []Sample, rounds int) {
	t.Helper()
	if len(samples) != rounds {
		t.Errorf("%s: %d samples, want %d", name, len(samples), rounds)
	}
	for _, s := range samples {
		if s.Decisions == 0 || s.Latency.TotalCount() != int64(s.Decisions) || s.Server.Calls == 0 {
			t.Errorf("%s: empty sample %+v", name, s)
		}
	}
}

func TestRunRefusesAContenderThatIsWrong(t *testing.T) {
	s := started(t, "redis-server")
	plan := Plan{Rounds: 1, Slice: time.Second, Callers: []int{2}, Keys: 100}
	_, err := Run(t.Context(), s, plan, Entry{Strict: []Contender{yesToAll()}})
	if err == nil || !strings.Contains(err.Error(), "yes to all") || !strings.Contains(err.Error(), "narrow") {
		t.Errorf("the error is %v, want the contender and the class of the key named", err)
	}
}

func TestStartNamesAMissingServer(t *testing.T) {
	if _, err := Start(t.Context(), "no-such-server"); err == nil || !strings.Contains(err.Error(), "no-such-server") {
		t.Errorf("the error is %v, want the program named", err)
	}
}
