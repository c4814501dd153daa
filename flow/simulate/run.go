package simulate

import (
	"cmp"
	"context"
	"errors"
	"math"
	"math/rand/v2"
	"slices"
	"sync"
	"time"

	"github.com/headgate/headgate/flow"
)

// Clock is the time of a simulation. For gates that read time.Now or wait, it is the clock of a bubble
// of testing/synctest, which advances when all goroutines wait. See also [Virtual].
type Clock struct {
	// Sleep is time.Sleep.
	Sleep func(time.Duration)
	// Settle waits until all goroutines except the caller's wait; it is synctest.Wait.
	Settle func()
}

// Virtual returns a clock that advances only when the simulation says so, and how to read it. It needs
// no bubble, and is several times as fast. It is for gates that can be told which clock to read, and
// that never wait.
func Virtual() (clock Clock, now func() time.Duration) {
	var at time.Duration
	return Clock{Sleep: func(d time.Duration) { at += d }}, func() time.Duration { return at }
}

// Subject is the gate that is tested.
type Subject struct {
	Name string
	Gate flow.Gate
	// Waits says that the gate's Acquire may wait. The simulation is then slower.
	Waits bool
	// Limit returns the gate's limit, or is nil if it has none.
	Limit func() float64
}

// Run puts the subject in front of the scenario's server, and returns the result. Unless the clock is
// [Virtual], it must run within a bubble, and the gate must have been made there too.
func Run(clock Clock, s Scenario, subject Subject) *Result {
	if s.To == 0 {
		s.To = s.Length
	}
	s.Loads = slices.Clone(s.Loads)
	for i := range s.Loads {
		if s.Loads[i].Sizes.Draw == nil {
			s.Loads[i].Sizes = logNormal(s.Server.Spread)
		}
	}
	r := &run{
		Scenario: s, clock: clock, subject: subject, began: time.Now(),
		result: newResult(s, subject.Name),
	}
	for i := range s.Loads {
		r.arrivals(&s.Loads[i], rand.New(rand.NewPCG(s.Seed, uint64(i))))
	}
	r.events.add(0, r.look)
	for len(r.events.heap) > 0 {
		e := r.events.next()
		if e.at > r.now {
			clock.Sleep(e.at - r.now)
			r.now = e.at
		}
		e.do()
		if subject.Waits {
			r.answers()
		}
	}
	return r.result
}

// run is a simulation in progress.
type run struct {
	Scenario
	clock   Clock
	subject Subject
	began   time.Time
	now     time.Duration
	events  events
	result  *Result

	busy     int        // the number of workers that work
	backlog  []*attempt // first come, first served, from first on
	first    int
	inServer int

	// shared has the requests in a shared server by the work that each request in it will have had
	// when they end. had is how much each has had since the beginning, as of the time hadAt, and
	// pace how much each gets in a nanosecond.
	shared events
	had    time.Duration
	hadAt  time.Duration
	pace   float64
	turn   int // counts the calls of share

	waiting int // the number of attempts that wait at the gate
	mu      sync.Mutex
	box     []answer // answers for goroutines that waited at the gate
}

// call is what a client wants. It takes one or several attempts.
type call struct {
	load  *Load
	came  time.Duration
	tries int
	work  float64 // as a multiple of Server.Work
	stall bool
	down  bool // fails at once
}

// attempt is one try of a call.
type attempt struct {
	*call
	sent   time.Duration
	permit flow.Permit
	over   bool // answered, or given up
}

type answer struct {
	a      *attempt
	permit flow.Permit
	err    error
}

// arrivals schedules the calls of a load one after the other. It is a Poisson process with the peak
// rate, thinned to the present rate.
func (r *run) arrivals(l *Load, random *rand.Rand) {
	at := time.Duration(0)
	var next func()
	schedule := func() {
		at += time.Duration(random.ExpFloat64() / l.Peak * float64(time.Second))
		if at < r.Length {
			r.events.add(at, next)
		}
	}
	next = func() {
		keep := random.Float64()*l.Peak < l.Rate(at)
		work := l.Sizes.Draw(at, random)
		fate := random.Float64()
		if keep {
			c := &call{
				load: l, came: at, work: work,
				stall: fate < share(r.Server.Stalls, at), down: fate >= 1-share(r.Server.Down, at),
			}
			r.result.came(c)
			r.send(c)
		}
		schedule()
	}
	schedule()
}

// send makes one attempt of a call.
func (r *run) send(c *call) {
	c.tries++
	a := &attempt{call: c, sent: r.now}
	r.result.sent(c)
	request := flow.Request{Tenant: c.load.Tenant, Class: c.load.Class}
	if !r.subject.Waits {
		permit, err := r.subject.Gate.TryAcquire(context.Background(), request)
		r.decided(answer{a, permit, err})
		return
	}
	r.waiting++
	go func() {
		ctx, cancel := context.WithDeadline(context.Background(), r.began.Add(a.sent+c.load.Deadline))
		defer cancel()
		permit, err := r.subject.Gate.Acquire(ctx, request)
		r.mu.Lock()
		defer r.mu.Unlock()
		r.box = append(r.box, answer{a, permit, err})
	}()
}

// answers handles the gate's answers to attempts that waited.
func (r *run) answers() {
	for {
		r.clock.Settle()
		r.mu.Lock()
		box := r.box
		r.box = nil
		r.mu.Unlock()
		if len(box) == 0 {
			return
		}
		// The gate may have admitted several at once, and their goroutines may have run in any
		// order.
		slices.SortFunc(box, func(a, b answer) int { return cmp.Compare(a.a.sent, b.a.sent) })
		for _, got := range box {
			r.waiting--
			r.decided(got)
		}
	}
}

// decided continues with an attempt that the gate has admitted or refused.
func (r *run) decided(got answer) {
	a := got.a
	if got.err != nil {
		rejection, refused := errors.AsType[*flow.Rejection](got.err)
		r.failed(a.call, refused, refused && !rejection.Retry)
		return
	}
	a.permit = got.permit
	if a.load.Deadline > 0 {
		late := flow.Overload
		if a.load.Leaves {
			late = flow.Canceled
		}
		r.events.add(a.sent+a.load.Deadline, func() { r.end(a, late) })
	}
	if r.Server.Fails != nil && r.Server.Fails(r.now, r.inServer) {
		r.events.add(r.now+time.Millisecond, func() { r.end(a, flow.Ignore) })
		return
	}
	if a.down {
		r.events.add(r.now+time.Millisecond, func() { r.end(a, flow.Overload) })
		return
	}
	if a.stall {
		return
	}
	r.inServer++
	r.backlog = append(r.backlog, a)
	r.work()
}

// share is work for a shared server: it ends what has had enough, and divides the workers anew.
func (r *run) share() {
	r.had += time.Duration(math.Ceil(r.pace * float64(r.now-r.hadAt)))
	r.hadAt = r.now
	for _, a := range r.backlog {
		r.shared.add(r.had+time.Duration(a.work*float64(time.Second)), func() {
			r.inServer--
			r.end(a, flow.Success)
		})
	}
	r.backlog = r.backlog[:0]
	for len(r.shared.heap) > 0 && r.shared.heap[0].at <= r.had {
		r.shared.next().do()
	}
	n := len(r.shared.heap)
	if n == 0 {
		return
	}
	r.pace = min(float64(r.Server.Workers(r.now))/float64(n), 1) / r.Server.Work(r.now).Seconds()
	r.turn++
	if r.pace == 0 {
		return // Without workers nothing ends; look sees when there are some again.
	}
	turn := r.turn
	r.events.add(r.now+time.Duration(math.Ceil(float64(r.shared.heap[0].at-r.had)/r.pace)), func() {
		if r.turn == turn {
			r.share()
		}
	})
}

// work lets free workers begin requests that wait in the server.
func (r *run) work() {
	if r.Server.Shared {
		r.share()
		return
	}
	for r.busy < r.Server.Workers(r.now) && r.first < len(r.backlog) {
		a := r.backlog[r.first]
		r.backlog[r.first] = nil
		if r.first++; r.first == len(r.backlog) {
			r.backlog, r.first = r.backlog[:0], 0
		}
		r.busy++
		took := time.Duration(a.work * float64(r.Server.Work(r.now)))
		r.events.add(r.now+took, func() {
			r.busy--
			r.inServer--
			r.end(a, flow.Success)
			r.work()
		})
	}
}

// end gives the permit of an attempt back, once.
func (r *run) end(a *attempt, outcome flow.Outcome) {
	if a.over {
		return
	}
	a.over = true
	a.permit.Done(outcome)
	if outcome == flow.Success {
		r.result.good(a, r.now)
		return
	}
	if outcome != flow.Ignore {
		r.result.took(a, r.now)
	}
	r.failed(a.call, false, false)
}

// failed repeats a call that has failed, if its client does so.
func (r *run) failed(c *call, refused, never bool) {
	if refused {
		r.result.refused(c)
	}
	if c.tries < c.load.Tries && !(never && c.load.Obedient) {
		r.events.add(r.now+c.load.Pause, func() { r.send(c) })
	}
}

// look records the limit and the number of requests in the server, at regular instants.
func (r *run) look() {
	limit := math.NaN()
	if r.subject.Limit != nil {
		limit = r.subject.Limit()
	}
	r.result.look(r.now, limit, r.inServer)
	// The number of workers may have grown.
	r.work()
	if next := r.now + step; next <= r.Length {
		r.events.add(next, r.look)
	}
}
