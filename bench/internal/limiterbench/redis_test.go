package limiterbench

import (
	"fmt"
	"math"
	"strings"
	"testing"
	"time"

	"github.com/headgate/headgate/bench/internal/measure"
	"github.com/headgate/headgate/bench/internal/servers"
	"github.com/headgate/headgate/bench/internal/workload"
)

// started runs a server for the length of a test. A program that is missing
// fails the test: `make test` installs what it needs.
func started(t *testing.T, program string) *servers.Redis {
	t.Helper()
	s, err := servers.StartRedis(t.Context(), program)
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
func onEach(t *testing.T, test func(t *testing.T, s *servers.Redis)) {
	t.Helper()
	for _, program := range []string{"redis-server", "valkey-server"} {
		t.Run(program, func(t *testing.T) { test(t, started(t, program)) })
	}
}

func TestRedisContendersAdmitAndDeny(t *testing.T) {
	onEach(t, func(t *testing.T, s *servers.Redis) {
		for _, c := range strict() {
			t.Run(c.name, func(t *testing.T) { admitsAndDenies(t, c, s.Addr) })
		}
	})
}

// TestFloorRefills holds the bare script to its rate: it is only a floor if it
// decides rightly.
func TestFloorRefills(t *testing.T) {
	s := started(t, "redis-server")
	q := workload.Limit{Count: 2, Period: 400 * time.Millisecond}
	l, err := openBare(t.Context(), s.Addr, workload.Limits{q, q})
	if err != nil {
		t.Fatal(err)
	}
	defer func() {
		if err := l.close(); err != nil {
			t.Error(err)
		}
	}()
	began := time.Now()
	admitted := 0
	for admitted < 6 {
		allowed, err := l.take(workload.Wide, "k")
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
	windows := []window{{5, time.Hour}, {3, 200 * time.Millisecond}}
	onEach(t, func(t *testing.T, s *servers.Redis) {
		for _, c := range windowed(windows) {
			t.Run(c.name, func(t *testing.T) {
				l, err := c.open(t.Context(), s.Addr, strictLimits)
				if err != nil {
					t.Fatal(err)
				}
				defer func() {
					if err := l.close(); err != nil {
						t.Error(err)
					}
				}()
				key := ""
				answer := func(name string) bool {
					t.Helper()
					take := l.take
					if name == "fill" {
						take = l.fill
					}
					allowed, err := take(workload.Wide, key)
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
					if !denied && (time.Since(began) < windows[1].period || keys == 100) {
						t.Fatalf("after %v a take beside what was filled is allowed", time.Since(began))
					}
				}
				time.Sleep(250 * time.Millisecond)
				ask("take", true)
				ask("take", false) // The long window is full now.
				ask("fill", false)
				owned, err := s.Keys(t.Context(), 10*keys, l.prefix)
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

// TestRedis: every question is answered. Figures of so short a time mean nothing.
func TestRedis(t *testing.T) {
	s := started(t, "redis-server")
	plan := redisPlan{
		Plan: measure.Plan{Rounds: 2, Slice: 20 * time.Millisecond, Keys: 1000}, callers: []int{1, 4},
		windows: []window{{20, time.Minute}, {6, 500 * time.Millisecond}}, windowKeys: 20,
		// What the server keeps for its clients comes and goes, and is less than so many keys.
		weighed: 10_000,
	}
	text, err := compareAll(t.Context(), &measure.Work{Redis: s}, plan, strict())
	if err != nil {
		t.Fatal(err)
	}
	if want := len(plan.callers) + 4 + 3; len(text.Bars) != want {
		t.Errorf("there are %d bars, want %d", len(text.Bars), want)
	}
	for _, b := range text.Bars {
		if math.IsNaN(b.Got) || b.Got <= 0 {
			t.Errorf("%s: got %v", b.What, b.Got)
		}
	}
	for _, c := range strict() {
		if got := strings.Count(text.String(), "| "+c.name+" "); got < 3 {
			t.Errorf("%q is in %d tables, want 3", c.name, got)
		}
	}
}

// TestCompare: each contender has its samples under each condition.
func TestCompare(t *testing.T) {
	s := started(t, "redis-server")
	plan := redisPlan{Plan: measure.Plan{Rounds: 2, Slice: 20 * time.Millisecond, Keys: 1000}, callers: []int{1, 4}}
	rows, err := compare(t.Context(), &measure.Work{Redis: s}, plan, strict(), workload.Uniform(1000, 4096, 1), deniesNarrow)
	if err != nil {
		t.Fatal(err)
	}
	for _, r := range rows {
		for _, callers := range plan.callers {
			samples := r.Samples[callers]
			if len(samples) != plan.Rounds {
				t.Errorf("%s: %d samples, want %d", r.Name, len(samples), plan.Rounds)
			}
			for _, s := range samples {
				if s.Done == 0 || s.Took.TotalCount() != int64(s.Done) || s.Calls == 0 {
					t.Errorf("%s: empty sample %+v", r.Name, s)
				}
			}
		}
	}
}

func TestRedisRefusesAContenderThatIsWrong(t *testing.T) {
	plan := redisPlan{Plan: measure.Plan{Rounds: 1, Slice: time.Second, Keys: 100}, callers: []int{2}}
	_, err := compareAll(t.Context(), &measure.Work{Redis: started(t, "redis-server")}, plan, []contender{yesToAll})
	if err == nil || !strings.Contains(err.Error(), "yes to all") || !strings.Contains(err.Error(), "narrow") {
		t.Errorf("the error is %v, want the contender and the class of the key named", err)
	}
}

func TestWindowQuestionsVisitEveryKeyInTurn(t *testing.T) {
	plan, visits := redisPlan{windowKeys: 50}, make(chan string, 150)
	if _, err := plan.ask(t.Context(), func(_ workload.Class, key string) (bool, error) { visits <- key; return true, nil }, 3, true); err != nil {
		t.Fatal(err)
	}
	close(visits)
	count := map[string]int{}
	for key := range visits {
		count[key]++
	}
	for i := range plan.windowKeys {
		if n := count[workload.Key(i)]; n != 3 {
			t.Errorf("key %d was visited %d times, want 3", i, n)
		}
	}
}
