//go:build !race

// The race detector makes sync.Pool drop what it is given, and so allocate.

package candidate

import (
	"context"
	"testing"

	"github.com/headgate/headgate"
	"github.com/headgate/headgate/policy"
	"github.com/headgate/headgate/server/decide"
	"github.com/headgate/headgate/store/memory"
)

// costs are requests and what the trial may allocate for each on their path.
var costs = []struct {
	name       string
	descriptor policy.Descriptor
	most       float64
}{
	{"admitted", policy.Descriptor{user("anna"), {Name: "ip", Value: "192.0.2.7"}, {Name: "route", Value: "POST /v1/token"}}, 1},
	{"nothing to look at", policy.Descriptor{{Name: "path", Value: "/"}}, 0},
}

func costStage(t testing.TB) *stage {
	rules := []policy.Rule{limits("api", headgate.MaxCount, "user"), limits("network", headgate.MaxCount, "ip")}
	return newStage(t, set(t, rules), set(t, rules), Options{})
}

// Not parallel: other tests' allocations would be counted.
func TestAllocations(t *testing.T) {
	for _, tt := range costs {
		s := costStage(t)
		w := worker{trial: s.trial}
		ask := decide.Ask{Policy: s.Policy(), Descriptor: tt.descriptor}
		both := func() {
			s.trial.Decided(decide.Event{Ask: &ask})
			j := <-s.trial.queues[0]
			w.safely(context.Background(), j)
			s.trial.release(j)
		}
		both()
		if got := testing.AllocsPerRun(200, both); got > tt.most {
			t.Errorf("%s: %v allocations, may have %v", tt.name, got, tt.most)
		}
		if r := s.report(); r.Compared != 202 || r.BothAdmitted != 202 {
			t.Errorf("%s: %+v", tt.name, r)
		}
	}
}

// BenchmarkPath is what a trial adds to the path of a request, dropped is that
// while the queue is full, and compare what its worker does besides.
func BenchmarkPath(b *testing.B) {
	for _, bb := range costs {
		b.Run(bb.name, func(b *testing.B) {
			s := costStage(b)
			ask := decide.Ask{Policy: s.Policy(), Descriptor: bb.descriptor}
			s.trial.learn(s.live.Load().Set, s.candidate.Load().Set)
			b.ReportAllocs()
			for b.Loop() {
				s.trial.Decided(decide.Event{Ask: &ask})
				s.trial.release(<-s.trial.queues[0])
			}
		})
	}
	b.Run("dropped", func(b *testing.B) {
		s := costStage(b)
		s.takes(DefaultQueue, costs[0].descriptor...)
		ask := decide.Ask{Policy: s.Policy(), Descriptor: costs[0].descriptor}
		for b.Loop() {
			s.trial.Decided(decide.Event{Ask: &ask})
		}
	})
}

func BenchmarkCompare(b *testing.B) {
	s := costStage(b)
	ask := decide.Ask{Policy: s.Policy(), Descriptor: costs[0].descriptor}
	w := worker{trial: s.trial}
	s.trial.Decided(decide.Event{Ask: &ask})
	j := <-s.trial.queues[0]
	b.ReportAllocs()
	for b.Loop() {
		w.safely(context.Background(), j)
	}
}

// BenchmarkDecide is the decision itself, for comparison.
func BenchmarkDecide(b *testing.B) {
	s := costStage(b)
	d := &decide.Over{Rules: s.Policy, Store: memory.New()}
	r := decide.Request{Ask: decide.Ask{Descriptor: costs[0].descriptor}, Given: decide.GivenDescriptor}
	b.ReportAllocs()
	for b.Loop() {
		r.Decide(context.Background(), d)
	}
}
