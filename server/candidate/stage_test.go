package candidate

import (
	"context"
	"fmt"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/headgate/headgate"
	"github.com/headgate/headgate/policy"
	"github.com/headgate/headgate/server/decide"
	"github.com/headgate/headgate/store/memory"
)

// stage is a service that decides by one policy and tries another.
type stage struct {
	decide.Decider
	t               testing.TB
	trial           *Trial
	live, candidate atomic.Pointer[decide.Policy]
	liveStore       *memory.Store
}

// newStage runs a trial until the test ends. The options may lack all but what the
// test is about.
func newStage(t testing.TB, live, candidate *policy.Set, o Options) *stage {
	t.Helper()
	s := &stage{t: t, liveStore: memory.New()}
	s.setLive(live)
	s.setCandidate(candidate)
	o.Live, o.Policy = func() decide.Policy { return *s.live.Load() }, func() decide.Policy { return *s.candidate.Load() }
	if o.Store == nil {
		o.Clock = new(Clock)
		o.Store = memory.New(memory.Clock(o.Clock.Now))
	}
	s.trial = New(o)
	s.Decider = &decide.Over{Rules: o.Live, Store: s.liveStore, Decided: s.trial.Decided, Settled: s.trial.Settled}
	return s
}

// run has the trial compare until the test ends.
func (s *stage) run() *stage {
	ctx, cancel := context.WithCancel(context.Background())
	var running sync.WaitGroup
	running.Go(func() { s.trial.Run(ctx) })
	s.t.Cleanup(func() {
		cancel()
		running.Wait()
	})
	return s
}

func (s *stage) setLive(set *policy.Set)      { s.live.Store(next(s.live.Load(), set)) }
func (s *stage) setCandidate(set *policy.Set) { s.candidate.Store(next(s.candidate.Load(), set)) }

func next(before *decide.Policy, set *policy.Set) *decide.Policy {
	p := &decide.Policy{}
	if set != nil {
		p = &decide.Policy{Set: set, Version: 1, Hash: fmt.Sprintf("%p", set)}
	}
	if before != nil {
		p.Version += before.Version
	}
	return p
}

// ask has the service decide, and reports whether the request is admitted.
func (s *stage) ask(op headgate.Op, d policy.Descriptor) bool {
	s.t.Helper()
	r := decide.Request{Ask: decide.Ask{Op: op, Descriptor: d}, Given: decide.GivenDescriptor}
	out := r.Decide(s.t.Context(), s.Decider)
	if out.Kind != decide.Decided {
		s.t.Fatal(out.Err)
	}
	return out.Verdict.Allowed
}

// takes has the service decide n requests of a user.
func (s *stage) takes(n int, entries ...policy.Entry) {
	s.t.Helper()
	for range n {
		s.ask(headgate.OpTake, entries)
	}
}

// named has the service decide checks that are named.
func (s *stage) named(checks ...decide.Named) {
	s.t.Helper()
	ask := decide.Ask{Policy: s.Policy(), Named: checks}
	for _, n := range checks {
		var err error
		if ask.Checks, err = ask.Policy.AppendCheck(ask.Checks, n.Rule, n.Key, n.Cost); err != nil {
			s.t.Fatal(err)
		}
	}
	if _, err := s.Take(s.t.Context(), &ask, nil); err != nil {
		s.t.Fatal(err)
	}
}

// report waits until nothing waits to be compared.
func (s *stage) report() Report {
	s.t.Helper()
	for deadline := time.Now().Add(2 * time.Minute); s.trial.bytes.Load() > 0; time.Sleep(100 * time.Microsecond) {
		if time.Now().After(deadline) {
			s.t.Fatal("the trial does not come to an end")
		}
	}
	return s.trial.Report(true)
}

// want compares the outcomes.
func (s *stage) want(bothAdmitted, bothDenied, newlyDenied, newlyAdmitted int64) Report {
	s.t.Helper()
	r := s.report()
	if r.BothAdmitted != bothAdmitted || r.BothDenied != bothDenied || r.NewlyDenied != newlyDenied || r.NewlyAdmitted != newlyAdmitted || r.Undecidable != 0 || r.NotCompared != (NotCompared{}) ||
		r.Compared != bothAdmitted+bothDenied+newlyDenied+newlyAdmitted {
		s.t.Errorf("both admit %d, both deny %d, newly denied %d, newly admitted %d, undecidable %d (%s) of %d; not compared %+v; want %d, %d, %d, %d",
			r.BothAdmitted, r.BothDenied, r.NewlyDenied, r.NewlyAdmitted, r.Undecidable, r.WhyUndecidable, r.Compared, r.NotCompared, bothAdmitted, bothDenied, newlyDenied, newlyAdmitted)
	}
	return r
}

// limits is a rule for each user with so many units an hour.
func limits(name string, count int64, per ...string) policy.Rule {
	r := policy.Rule{Limits: perHour(name, count)}
	for _, entry := range per {
		r.Per = append(r.Per, policy.Part{Entry: entry})
	}
	return r
}

func perHour(name string, count int64) *headgate.Rule {
	return headgate.MustRule(name, headgate.Limit{Algorithm: headgate.FixedWindow, Align: headgate.AlignFirst, Count: count, Period: time.Hour})
}

func set(t testing.TB, rules []policy.Rule, opts ...policy.Option) *policy.Set {
	t.Helper()
	s, err := policy.New(rules, opts...)
	if err != nil {
		t.Fatal(err)
	}
	return s
}

func user(name string) policy.Entry { return policy.Entry{Name: "user", Value: name} }
