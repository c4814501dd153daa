package flow

import (
	"flag"
	"os"
	"path/filepath"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/headgate/headgate/flow/simulate"
	"github.com/headgate/headgate/internal/bubbletest"
)

var write = flag.String("write", "", "run all scenarios, and write the page and its charts into this `directory`")

func run(t *testing.T, c contender, s simulate.Scenario) *simulate.Result {
	t.Helper()
	var r *simulate.Result
	bubbletest.Test(t, func(t *testing.T) {
		subject, err := c.make()
		if err != nil {
			t.Fatal(err)
		}
		subject.Name = c.name
		r = simulate.Run(simulate.Clock{Sleep: time.Sleep, Settle: bubbletest.Wait}, s, subject)
	})
	return r
}

// find returns the contender of that name.
func find(t *testing.T, name string) contender {
	t.Helper()
	for _, c := range contenders {
		if c.name == name {
			return c
		}
	}
	t.Fatalf("there is no contender %q", name)
	return contender{}
}

// When a server loses half of its workers, the limit has to follow ten times sooner than
// failsafe-go's, in the median of some runs.
func TestFollowsSoonerThanFailsafe(t *testing.T) {
	took := func(name string, runs uint64) time.Duration {
		var all []time.Duration
		for seed := range runs {
			s := simulate.Halved()
			s.Seed += seed
			d := run(t, find(t, name), s).Reaches(simulate.HalvedAt, simulate.BackAt, 0.2)
			if d < 0 {
				d = simulate.BackAt - simulate.HalvedAt
			}
			all = append(all, d)
		}
		slices.Sort(all)
		t.Logf("%s: near the optimum after %v", name, all)
		return all[len(all)/2]
	}
	// Theirs differ less, and take longer.
	ours, theirs := took("Headgate, knee", 15), took("failsafe-go, limiter", 3)
	if 10*ours > theirs {
		t.Errorf("near the optimum after %v, failsafe-go after %v; want a tenth", ours, theirs)
	}
}

// Every contender gets through a scenario, and serves somebody.
func TestContenders(t *testing.T) {
	s := simulate.Quiet()
	s.Length = 20 * time.Second
	for _, c := range contenders {
		if r := run(t, c, s); r.All.Good == 0 || r.All.Calls == 0 {
			t.Errorf("%s: %+v", c.name, r.All)
		}
	}
}

// TestWrite writes docs/flow-simulation.md if it is told where the documents are.
func TestWrite(t *testing.T) {
	if *write == "" {
		return
	}
	p := page{results: make(map[string][]*simulate.Result), cells: make(map[string][]cell), back: make(map[string]string)}
	var mu sync.Mutex // guards p
	t.Run("runs", func(t *testing.T) {
		for _, s := range scenarios() {
			t.Run(s.Name, func(t *testing.T) {
				t.Parallel()
				var results []*simulate.Result
				for _, c := range contenders {
					results = append(results, run(t, c, s))
				}
				mu.Lock()
				defer mu.Unlock()
				p.results[s.Name] = results
			})
		}
		for _, g := range groups() {
			for _, s := range g.scenarios {
				t.Run(s.Name, func(t *testing.T) {
					t.Parallel()
					cells, back := row(s, g.healthy, func(c contender, s simulate.Scenario) *simulate.Result { return run(t, c, s) })
					mu.Lock()
					defer mu.Unlock()
					p.cells[s.Name], p.back[s.Name] = cells, back
				})
			}
		}
	})
	if err := os.MkdirAll(filepath.Join(*write, "flow-simulation"), 0o755); err != nil {
		t.Fatal(err)
	}
	for name, text := range p.files() {
		if err := os.WriteFile(filepath.Join(*write, name), text, 0o644); err != nil {
			t.Fatal(err)
		}
	}
}
