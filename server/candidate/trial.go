package candidate

import (
	"context"
	"hash/maphash"
	"log/slog"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/headgate/headgate"
	"github.com/headgate/headgate/policy"
	"github.com/headgate/headgate/server/decide"
)

// The defaults of [Options].
const (
	// DefaultQueue is how many decisions may wait for each worker.
	DefaultQueue = 1024
	// DefaultQueueBytes bounds the texts of all that wait.
	DefaultQueueBytes = 16 << 20
)

// Options are what a trial needs.
type Options struct {
	// Live returns the policy in force. Required.
	Live func() decide.Policy
	// Policy returns the candidate; its Set is nil while there is none, because
	// its file was never without mistakes. Required.
	Policy func() decide.Policy
	// Store keeps the candidate's counters, and no others. Required.
	Store headgate.Store
	// Clock is what the store decides by, if it was made to: it then stands at the
	// time of the request that is compared. It needs a single worker.
	Clock *Clock
	// Workers is how many decisions are compared at a time; zero means one. A
	// store in this process needs one, a store across a network as many as calls
	// are to be on their way.
	Workers int
	// Queue and QueueBytes bound what waits. Zero means the defaults.
	Queue      int
	QueueBytes int64
	// Logger takes panics. Nil means none.
	Logger *slog.Logger
}

// Trial compares decisions. It is safe for concurrent use; make one with [New].
type Trial struct {
	options Options
	ledger  headgate.Ledger // the store, if it is one
	seed    maphash.Seed
	queues  []chan *job
	bytes   atomic.Int64 // in the queues
	jobs    sync.Pool    // of *job
	began   time.Time

	pair    atomic.Pointer[pair]
	figures atomic.Pointer[figures]
	renew   sync.Mutex // held to exchange the figures
	total   *figures   // since the beginning
}

// New returns a trial that compares nothing before Run.
func New(options Options) *Trial {
	options.Workers = max(options.Workers, 1)
	if options.Queue == 0 {
		options.Queue = DefaultQueue
	}
	if options.QueueBytes == 0 {
		options.QueueBytes = DefaultQueueBytes
	}
	if options.Logger == nil {
		options.Logger = slog.New(slog.DiscardHandler)
	}
	t := &Trial{options: options, seed: maphash.MakeSeed(), began: time.Now()}
	t.ledger, _ = options.Store.(headgate.Ledger)
	t.total = newFigures(decide.Policy{}, decide.Policy{}, t.began)
	t.jobs.New = func() any { return new(job) }
	for range options.Workers {
		t.queues = append(t.queues, make(chan *job, options.Queue))
	}
	return t
}

// Run compares until ctx ends. What waits then is left alone.
func (t *Trial) Run(ctx context.Context) {
	var workers sync.WaitGroup
	for _, queue := range t.queues {
		workers.Go(func() {
			w := worker{trial: t}
			for {
				select {
				case <-ctx.Done():
					return
				case j := <-queue:
					w.safely(ctx, j)
					t.release(j)
				}
			}
		})
	}
	workers.Wait()
}

// Decided is for [decide.Over]: it is told of each request, on its path.
func (t *Trial) Decided(e decide.Event) {
	if e.Ask.Policy.Set == nil || t.options.Policy().Set == nil || !followed(e.Ask) {
		return
	}
	if e.Err != nil {
		t.miss(e.Ask.Policy, undecided)
		return
	}
	j := t.jobs.Get().(*job)
	j.copy(&e, t.wanted(e.Ask.Policy))
	t.enqueue(j, e.Ask.Checks)
}

// followed reports whether the trial does with the candidate what was done with the policy in force:
// a policy has a say in the request, and it is more than a peek. A charge is no decision: what it is
// for was compared when it was decided.
func followed(ask *decide.Ask) bool {
	if ask.Parts != nil {
		return slices.ContainsFunc(ask.Parts.List, func(p decide.Part) bool {
			return p.Op != headgate.OpPeek && p.Brought == nil && !p.Nothing
		})
	}
	return ask.Op != headgate.OpPeek && ask.Op != headgate.OpCharge && !ownRules(ask)
}

// ownRules reports whether the caller has brought its rules along: to such a request
// no policy has anything to say.
func ownRules(ask *decide.Ask) bool {
	if len(ask.Checks) == 0 || len(ask.Descriptor) > 0 || len(ask.Named) > 0 {
		return false
	}
	limits := ask.Checks[0].Rule
	r := ask.Policy.Rule(limits.Name())
	return r == nil || r.Limits != limits &&
		(r.Tariff == nil || r.Tariff.Other != limits) &&
		!slices.ContainsFunc(r.Overrides, func(o policy.Override) bool { return o.Limits == limits })
}

// Settled is for [decide.Over]: it is told of each settlement.
func (t *Trial) Settled(r headgate.Reservation, units []int64, err error) {
	if err != nil || t.ledger == nil || t.options.Policy().Set == nil || len(r.Checks) != len(units) || len(units) == 0 {
		return
	}
	j := t.jobs.Get().(*job)
	j.settle(&r, units)
	t.enqueue(j, r.Checks)
}

// enqueue hands the job to the worker of its request: what one client does stays
// in order.
func (t *Trial) enqueue(j *job, checks []headgate.Check) {
	var hash uint64
	if len(t.queues) > 1 {
		for i := range checks {
			hash = hash*0x9e3779b97f4a7c15 ^ maphash.String(t.seed, checks[i].Key)
		}
		if len(checks) == 0 {
			hash = maphash.String(t.seed, j.text)
		}
	}
	if t.bytes.Add(j.size()) <= t.options.QueueBytes {
		select {
		case t.queues[hash%uint64(len(t.queues))] <- j:
			return
		default:
		}
	}
	t.miss(j.live, dropped)
	t.release(j)
}

func (t *Trial) release(j *job) {
	t.bytes.Add(-j.size())
	large := j.large()
	if j.reset(); !large {
		t.jobs.Put(j)
	}
}

// Waiting is how many decisions wait to be compared.
func (t *Trial) Waiting() int {
	n := 0
	for _, queue := range t.queues {
		n += len(queue)
	}
	return n
}

// pair is two policies, and what they look at.
type pair struct {
	live, candidate *policy.Set
	wanted          map[string]bool
}

// wanted returns the names of the entries that the policies look at, or nil for
// all if that has not been worked out: then all are copied. Nested limits look at
// all, and at their order.
func (t *Trial) wanted(live decide.Policy) map[string]bool {
	if p := t.pair.Load(); live.Nested == nil && p != nil && p.live == live.Set && p.candidate == t.options.Policy().Set {
		return p.wanted
	}
	return nil
}

// learn works out what the policies look at. It takes its time, and so is not done
// on the path of a request.
func (t *Trial) learn(live, candidate *policy.Set) {
	if p := t.pair.Load(); live == nil || p != nil && p.live == live && p.candidate == candidate {
		return
	}
	wanted := make(map[string]bool)
	for _, set := range []*policy.Set{live, candidate} {
		for _, entry := range set.Entries() {
			wanted[entry] = true
		}
	}
	t.pair.Store(&pair{live, candidate, wanted})
}

// compared returns the figures of two policies; nil if newer ones have taken
// their place.
func (t *Trial) compared(live, candidate decide.Policy) *figures {
	f := t.figures.Load()
	if f.of(live, candidate) {
		return f
	}
	t.renew.Lock()
	defer t.renew.Unlock()
	f = t.figures.Load()
	switch {
	case f.of(live, candidate):
		return f
	case f != nil && (live.Version < f.live.Version || candidate.Version < f.candidate.Version):
		return nil
	}
	since := time.Now()
	if f == nil {
		since = t.began
	}
	f = newFigures(live, candidate, since)
	t.figures.Store(f)
	return f
}

// miss counts a request that cannot be compared.
func (t *Trial) miss(live decide.Policy, why missed) {
	t.total.missed[why].Add(1)
	if live.Set == nil {
		return
	}
	if f := t.compared(live, t.options.Policy()); f != nil {
		f.missed[why].Add(1)
	}
}
