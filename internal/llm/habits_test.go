package llm

import (
	"context"
	"fmt"
	"math/rand/v2"
	"net/http"
	"strings"
	"testing"

	"github.com/headgate/headgate"
	"github.com/headgate/headgate/policy"
	"github.com/headgate/headgate/policy/models"
	"github.com/headgate/headgate/store/memory"
)

// spender makes calls of one model under one rule, on a store whose clock stands still.
type spender struct {
	t      *testing.T
	set    *policy.Set
	store  *memory.Store
	habits Habits
	p      Provider
	open   []spending

	used  int64 // of all calls, in truth
	bound int64 // how much that may be, by the last call that was admitted
}

type spending struct {
	*Passage
	r        headgate.Reservation
	reserved int64
}

func newSpender(t *testing.T, limit int64, typical bool) *spender {
	t.Helper()
	rule := policy.Rule{
		Limits: headgate.MustRule("output", headgate.Limit{Algorithm: headgate.FixedWindow, Count: limit, Align: headgate.AlignYear}),
		Counts: models.OutputTokens, Reservation: policy.Reservation{Typical: typical},
	}
	set, err := policy.New([]policy.Rule{rule})
	if err != nil {
		t.Fatal(err)
	}
	return &spender{t: t, set: set, store: memory.New(memory.Clock(func() int64 { return 1_700_000_000_000_000 }))}
}

// begin asks for a call that may have so much output, and reports whether it is admitted.
func (s *spender) begin(most int64) bool {
	s.t.Helper()
	call, err := s.p.Begin(Chat, s.set, nil, nil, fmt.Appendf(nil, `{"model":"m","max_tokens":%d}`, most), 1<<20)
	if err != nil {
		s.t.Fatal(err)
	}
	found, err := s.set.DecideUsage(nil, 1, &call.Usage, nil)
	if err != nil {
		s.t.Fatal(err)
	}
	call.Reserve(&s.habits, found.Checks)
	r, decisions, err := s.store.Reserve(context.Background(), headgate.Terms{}, found.Checks, nil)
	if err != nil {
		s.t.Fatal(err)
	}
	if !headgate.NewVerdict(decisions).Allowed {
		return false
	}
	s.open = append(s.open, spending{call, r, found.Checks[0].Units()})
	s.bound = found.Checks[0].Rule.Limits()[0].Count
	var reserved int64
	for _, one := range s.open {
		s.bound += one.Usage.Output - one.reserved
		reserved += one.reserved
	}
	if most := found.Checks[0].Rule.Limits()[0].Count + (parts/leastParts-1)*reserved; s.bound > most {
		s.t.Fatalf("the limit may be exceeded up to %d, more than %d", s.bound, most)
	}
	return true
}

// end ends an open call, which has used so much. Unless told, nobody hears of it.
func (s *spender) end(i int, used int64, told bool) {
	s.t.Helper()
	one := s.open[i]
	s.open = append(s.open[:i], s.open[i+1:]...)
	meter := s.p.Answered(http.StatusOK, http.Header{}, one.Passage)
	if told {
		meter.Pass(fmt.Appendf(nil, `{"usage":{"prompt_tokens":1,"completion_tokens":%d}}`, used))
		meter.End(true)
	}
	units, _ := one.Settle(&one.r, http.StatusOK)
	if _, err := s.store.Settle(context.Background(), one.r, units, nil); err != nil {
		s.t.Fatal(err)
	}
	if s.used += used; units[0] < used {
		s.t.Fatalf("a call that has used %d is charged %d", used, units[0])
	}
}

// Whatever calls come to use, they use no more than the limit if what they declare is reserved. If
// what is typical is reserved, they exceed it by no more than the calls in progress declare besides,
// and nine times what is reserved for them.
func TestOvershoot(t *testing.T) {
	t.Parallel()
	over := 0
	for seed := range uint64(40) {
		for _, typical := range []bool{false, true} {
			r := rand.New(rand.NewPCG(seed, 1)) //nolint:gosec // for a test
			limit := r.Int64N(2000) + 1000
			s := newSpender(t, limit, typical)
			greedy := r.IntN(200) // from this step on, calls use all that they declare
			for step := range 300 {
				if r.IntN(3) > 0 {
					s.begin(r.Int64N(100) + 1)
				}
				for len(s.open) > 0 && (r.IntN(5) < 2 || step == 299) {
					i := r.IntN(len(s.open))
					used := s.open[i].Usage.Output
					if step < greedy {
						used = max(1, used/int64(5+r.IntN(20)))
					}
					s.end(i, used, r.IntN(20) > 0)
				}
			}
			most := limit
			if typical {
				most = s.bound
			}
			if s.used > most {
				t.Fatalf("seed %d, typical %v: %d units were used, of a limit of %d, and at most %d may be", seed, typical, s.used, limit, most)
			}
			if s.used > limit {
				over++
			}
		}
	}
	if over == 0 {
		t.Error("no limit was exceeded, so the test shows nothing")
	}
}

// What is reserved is what is declared until there is a habit, and then what nearly all calls have
// used, a tenth at least.
func TestTypical(t *testing.T) {
	t.Parallel()
	for _, tt := range []struct {
		what string
		used []int64 // of calls that declare 100, again and again
		n    int
		want int64
	}{
		{"nothing is known", nil, 0, 100},
		{"too little is known", []int64{5}, enough - 1, 100},
		{"all use little", []int64{1}, enough, 10},
		{"all use half", []int64{50}, 100, 50},
		{"a little more than half", []int64{51}, 100, 55},
		{"one of twenty uses all", append(make([]int64, 19), 100), 100, 10},
		{"two of twenty use all", append(make([]int64, 18), 100, 100), 100, 100},
		{"more than is declared", []int64{1000}, 100, 100},
		{"for long", []int64{30}, 10_000, 30},
	} {
		h, k := new(Habits), habitKey{model: "m"}
		for i := range tt.n {
			h.learn(k, 100, tt.used[i%len(tt.used)])
		}
		if got := h.typical(k, 100); got != tt.want {
			t.Errorf("%s: %d are reserved, want %d", tt.what, got, tt.want)
		}
		if got := h.typical(habitKey{model: "other"}, 100); got != 100 {
			t.Errorf("%s: of another model %d are reserved", tt.what, got)
		}
		// What was usual long ago is forgotten.
		for range full {
			h.learn(k, 100, 80)
		}
		if got := h.typical(k, 100); got < 80 {
			t.Errorf("%s: calls have changed to 80, and %d are reserved", tt.what, got)
		}
	}
}

// The memory is bounded, whatever keys come, and who keeps coming is remembered.
func TestHabitsAreBounded(t *testing.T) {
	t.Parallel()
	h, often := new(Habits), habitKey{rule: "r", key: "often"}
	for range enough {
		h.learn(often, 100, 10)
	}
	for i := range 5 * maxHabits {
		h.learn(habitKey{rule: "r", key: strings.Repeat("x", i%7), model: fmt.Sprint(i)}, 100, 10)
		if i%1000 == 0 && h.typical(often, 100) != 10 {
			t.Fatal("who keeps coming is forgotten")
		}
	}
	if n := len(h.recent) + len(h.earlier); n > 2*maxHabits {
		t.Errorf("there are %d habits", n)
	}
}
