package chaos

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/redis/rueidis"

	"github.com/headgate/headgate"
)

const (
	callers  = 16     // goroutines that send requests
	counters = 24     // each with a limit of its own
	count    = 20_000 // units of each limit

	// stuckAfter is how long anything may take until it counts as stuck.
	stuckAfter = 2 * time.Minute
)

// load is requests that go on whatever happens to the store. A quarter of them take a
// unit of two limits.
type load struct {
	store  headgate.Store
	checks []headgate.Check
	start  time.Time
	// admitted are the units that callers have been told they may use.
	admitted []atomic.Int64
	row      atomic.Int64 // requests that succeeded since the last failure
	enough   int64        // of them, and the store counts as well

	stopped atomic.Bool
	all     sync.WaitGroup

	mu     sync.Mutex // guards what follows
	events []event
	odd    error // what must not happen
}

// event is how a request ended.
type event struct {
	at            time.Duration // since the start of the load
	took          time.Duration
	word          string // what a failure says; empty if it succeeded
	first, second int8   // the limits it was under; second is -1 if there was one
}

// limits are those of a trial: half of them fixed windows from the first request on,
// half sliding windows.
func limits() []headgate.Check {
	rules := []*headgate.Rule{
		headgate.MustRule("fixed", headgate.Limit{
			Algorithm: headgate.FixedWindow, Align: headgate.AlignFirst, Count: count, Period: 24 * time.Hour,
		}),
		headgate.MustRule("sliding", headgate.Sliding(count, 24*time.Hour)),
	}
	checks := make([]headgate.Check, counters)
	for i := range checks {
		checks[i] = headgate.Check{Rule: rules[i%len(rules)], Key: strconv.Itoa(i)}
	}
	return checks
}

func startLoad(ctx context.Context, store headgate.Store, pause time.Duration, row int) *load {
	l := &load{
		store: store, checks: limits(), start: time.Now(),
		admitted: make([]atomic.Int64, counters), enough: int64(row),
	}
	for i := range callers {
		l.all.Go(func() { l.call(ctx, i, pause) })
	}
	return l
}

// call sends requests, one after another, with pauses between them.
func (l *load) call(ctx context.Context, caller int, pause time.Duration) {
	var events []event
	for n := caller; !l.stopped.Load(); n++ {
		e := event{first: int8(n * 7 % counters), second: -1}
		checks := []headgate.Check{l.checks[e.first]}
		if n%4 == 0 {
			e.second = (e.first + 5) % counters
			checks = append(checks, l.checks[e.second])
		}
		began := time.Since(l.start)
		out, err := l.store.Take(ctx, headgate.OpTake, checks, nil)
		e.at = time.Since(l.start)
		e.took = e.at - began
		if err != nil {
			e.word = word(err)
			l.row.Store(0)
			l.check(err)
		} else {
			l.row.Add(1)
			if headgate.NewVerdict(out).Allowed {
				l.admitted[e.first].Add(1)
				if e.second >= 0 {
					l.admitted[e.second].Add(1)
				}
			}
		}
		events = append(events, e)
		time.Sleep(pause)
	}
	l.mu.Lock()
	l.events = append(l.events, events...)
	l.mu.Unlock()
}

// check notes an error that is not of the one kind that the store has.
func (l *load) check(err error) {
	if errors.Is(err, headgate.ErrUnavailable) {
		return
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	l.odd = fmt.Errorf("an error that is not ErrUnavailable: %w", err)
}

// word names a failure: the first word of what the server answered, or what was the
// matter with the way to it.
func word(err error) string {
	var refused *rueidis.RedisError
	switch {
	case errors.As(err, &refused):
		first, _, _ := strings.Cut(refused.Error(), " ")
		return first
	case errors.Is(err, context.DeadlineExceeded):
		return "deadline"
	case strings.Contains(err.Error(), "calls have no answer yet"):
		return "too many wait"
	}
	return "connection"
}

// units are what callers were admitted under the given limits.
func (l *load) units(of []int) int64 {
	sum := int64(0)
	for _, i := range of {
		sum += l.admitted[i].Load()
	}
	return sum
}

// well waits until requests succeed one after another.
func (l *load) well(t testing.TB, what string) {
	t.Helper()
	l.row.Store(0)
	until(t, what, func() bool { return l.row.Load() > l.enough })
}

// end waits for the callers: none of them may be stuck.
func (l *load) end(t testing.TB) {
	t.Helper()
	l.stopped.Store(true)
	done := make(chan struct{})
	go func() {
		defer close(done)
		l.all.Wait()
	}()
	select {
	case <-done:
	case <-time.After(stuckAfter):
		t.Fatalf("chaos: callers are stuck in the store for %v", stuckAfter)
	}
	slices.SortFunc(l.events, func(a, b event) int { return int(a.at - b.at) })
	if l.odd != nil {
		t.Errorf("chaos: %v", l.odd)
	}
}

// drain takes all that is left of every limit, and returns what was admitted beyond
// the limits in all.
func (l *load) drain(ctx context.Context, t testing.TB) int64 {
	t.Helper()
	over := int64(0)
	for i := range l.checks {
		check := l.checks[i]
		until(t, "all that is left of a limit is taken", func() bool {
			out, err := l.store.Take(ctx, headgate.OpPeek, []headgate.Check{check}, nil)
			if err != nil {
				return false
			}
			check.Cost = max(1, out[0].Remaining)
			out, err = l.store.Take(ctx, headgate.OpTake, []headgate.Check{check}, nil)
			if err != nil {
				return false
			}
			if headgate.NewVerdict(out).Allowed {
				l.admitted[i].Add(check.Cost)
				return false
			}
			return check.Cost == 1
		})
		over += max(0, l.admitted[i].Load()-count)
	}
	return over
}

// until waits for what must come to be.
func until(t testing.TB, what string, is func() bool) {
	t.Helper()
	for end := time.Now().Add(stuckAfter); !is(); time.Sleep(5 * time.Millisecond) {
		if time.Now().After(end) {
			t.Fatalf("chaos: not within %v: %s", stuckAfter, what)
		}
	}
}
