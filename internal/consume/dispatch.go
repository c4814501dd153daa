package consume

import (
	"cmp"
	"errors"
	"slices"
	"sync"
	"time"

	"github.com/headgate/headgate"
	"github.com/headgate/headgate/flow"
)

// dispatching says what to do with items. All functions are needed. Those that are called with
// the lock must not take it.
type dispatching[T any] struct {
	// Source has Context, Wants, Begin and End. An item still counts as queued in Begin.
	Source[T]
	// Lock is the caller's. It guards the dispatcher together with what the caller keeps of its
	// items.
	Lock sync.Locker
	// Gate decides what may begin. Nil lets everything in.
	Gate flow.Gate
	// Workers is how many items may ask the gate or run at a time, 1 or more.
	Workers int
	// Run does the work, without the lock. It gives the permit back, and sees to it that End is
	// called, even if it does not return.
	Run func(T, flow.Permit)
	// Refused is called with the lock for each refusal, and for a gate that fails. The item is asked
	// about again.
	Refused func(T, error)
	// Never is called with the lock for an item that the gate can never let in.
	Never func(T, error)
}

// dispatcher starts items. The lock of its Config guards it.
type dispatcher[T any] struct {
	config     dispatching[T]
	workers    int
	valves     map[string]*valve[T]
	free       valve[T] // of what does not ask
	open, busy queue[*valve[T]]
	queued     int // how many items wait
}

// valve holds the items that ask the gate with the same key.
type valve[T any] struct {
	key   string
	items line[T]
	// asking is how many are asking the gate now, at most width: after a refusal one item
	// tries, and each that is let in doubles the width.
	asking, width int
	// closed means that the gate has refused, until the timer opens the valve. busy means
	// that an item which ends may open it as well, and waits that it is among those from
	// which that chooses.
	closed, busy, waits bool
	timer               *time.Timer
	// listed means that the valve is among those to take from.
	listed bool
}

type work[T any] struct {
	item    T
	turn    uint64 // the one with the least goes first
	request flow.Request
}

// pauses at the gate when it cannot say when to come again, and when it fails.
const (
	askAgain      = 10 * time.Millisecond
	askAfterError = 250 * time.Millisecond
)

// newDispatcher returns a dispatcher without items.
func newDispatcher[T any](config dispatching[T]) *dispatcher[T] {
	d := &dispatcher[T]{config: config, valves: make(map[string]*valve[T])}
	d.free.width = config.Workers
	return d
}

// Ask sends an item on its way: it asks the gate as soon as a worker is free and none with
// the same key is held back or has an earlier turn. The caller holds the lock.
func (d *dispatcher[T]) Ask(item T, turn uint64, request flow.Request) {
	v := d.valves[request.Key]
	if v == nil {
		v = &valve[T]{key: request.Key, width: 1}
		d.valves[v.key] = v
	}
	v.items.push(work[T]{item, turn, request})
	d.queued++
	d.list(v)
}

// Start is Ask for an item that does not ask the gate. The caller holds the lock.
func (d *dispatcher[T]) Start(item T, turn uint64) {
	d.free.items.push(work[T]{item: item, turn: turn})
	d.queued++
	d.list(&d.free)
}

// list puts a valve among those to take from if there is something to take, and sees to
// it that somebody takes it.
func (d *dispatcher[T]) list(v *valve[T]) {
	if !v.listed && !v.closed && len(v.items) > 0 && v.asking < v.width {
		v.listed = true
		d.open.push(v)
	}
	if len(v.items) == 0 && v.asking == 0 && !v.closed && d.valves[v.key] == v {
		delete(d.valves, v.key)
	}
	d.hire()
}

// hire starts a worker if there is work for one more.
func (d *dispatcher[T]) hire() {
	if len(d.open) > 0 && d.workers < d.config.Workers {
		d.workers++
		go d.work()
	}
}

// take returns the next item and its valve, or nil: the valves one after the other, and the
// items of each by their turns.
func (d *dispatcher[T]) take() (*valve[T], work[T]) {
	for len(d.open) > 0 {
		v := d.open.pop()
		v.listed = false
		for len(v.items) > 0 {
			w := v.items.pop()
			wanted := d.config.Wants(w.item)
			if wanted {
				d.config.Begin(w.item)
			}
			if d.queued--; wanted {
				v.asking++
				d.list(v)
				return v, w
			}
		}
		d.list(v)
	}
	return nil, work[T]{}
}

// work runs items until there are none. A handler that ends its goroutine ends a worker,
// and another takes its place.
func (d *dispatcher[T]) work() {
	defer func() {
		d.config.Lock.Lock()
		defer d.config.Lock.Unlock()
		d.workers--
		d.hire()
	}()
	for {
		d.config.Lock.Lock()
		v, w := d.take()
		d.config.Lock.Unlock()
		if v == nil {
			return
		}
		d.pass(v, w)
	}
}

// pass asks the gate for an item and runs it.
func (d *dispatcher[T]) pass(v *valve[T], w work[T]) {
	var permit flow.Permit
	var err error
	if d.config.Gate != nil && v != &d.free {
		permit, err = d.config.Gate.TryAcquire(d.config.Context(w.item), w.request)
	}
	d.config.Lock.Lock()
	v.asking--
	if err == nil {
		v.width = min(2*v.width, d.config.Workers)
		d.list(v)
		d.config.Lock.Unlock()
		d.config.Run(w.item, permit)
		return
	}
	defer d.config.Lock.Unlock()
	defer d.config.End(w.item)
	d.refused(v, w, err)
}

// refused closes the valve, and puts the item back to where it was, unless it can never
// pass.
func (d *dispatcher[T]) refused(v *valve[T], w work[T], err error) {
	after, busy := askAfterError, false
	rejection, ok := errors.AsType[*flow.Rejection](err)
	switch {
	case !d.config.Wants(w.item):
		d.list(v)
		return
	case ok && rejection.RetryAfter == headgate.Never, errors.Is(err, headgate.ErrInvalid):
		d.config.Never(w.item, err)
		d.list(v)
		return
	case ok:
		after = max(rejection.RetryAfter, time.Millisecond)
		if rejection.RetryAfter <= 0 {
			after = askAgain
		}
		busy = rejection.Reason != flow.ReasonRate
	}
	d.config.Refused(w.item, err)
	v.items.push(w)
	d.queued++
	v.width = 1
	d.shut(v, stagger(after), busy)
}

// shut closes a valve for a while. One that is closed stays so for as long as it was to be.
func (d *dispatcher[T]) shut(v *valve[T], after time.Duration, busy bool) {
	if v.closed {
		return
	}
	v.closed, v.busy = true, busy
	if busy && !v.waits {
		v.waits = true
		d.busy.push(v)
	}
	v.timer = time.AfterFunc(after, func() {
		d.config.Lock.Lock()
		defer d.config.Lock.Unlock()
		d.reopen(v)
	})
}

func (d *dispatcher[T]) reopen(v *valve[T]) {
	if !v.closed {
		return
	}
	v.timer.Stop()
	v.closed, v.busy = false, false
	d.list(v)
}

// Freed opens a valve that waits for a permit, since one was given back. The caller holds
// the lock.
func (d *dispatcher[T]) Freed() {
	for len(d.busy) > 0 {
		v := d.busy.pop()
		v.waits = false
		if v.busy {
			d.reopen(v)
			return
		}
	}
}

// Prune forgets the items that are not wanted any more, which would otherwise stay until
// their valves open. The caller holds the lock.
func (d *dispatcher[T]) Prune() {
	d.queued = 0
	prune := func(v *valve[T]) {
		v.items = slices.DeleteFunc(v.items, func(w work[T]) bool { return !d.config.Wants(w.item) })
		slices.SortFunc(v.items, func(a, b work[T]) int { return cmp.Compare(a.turn, b.turn) })
		d.queued += len(v.items)
	}
	prune(&d.free)
	for _, v := range d.valves {
		prune(v)
	}
}

// line is a heap, by turns. That of container/heap would allocate for each item that comes and goes.
type line[T any] []work[T]

func (l *line[T]) push(w work[T]) {
	*l = append(*l, w)
	all := *l
	i := len(all) - 1
	for ; i > 0 && all[(i-1)/2].turn > w.turn; i = (i - 1) / 2 {
		all[i] = all[(i-1)/2]
	}
	all[i] = w
}

// pop takes the one whose turn it is; there must be one.
func (l *line[T]) pop() work[T] {
	all := *l
	first, last, n := all[0], all[len(all)-1], len(all)-1
	all[n] = work[T]{}
	if *l = all[:n]; n == 0 {
		*l = nil // frees an array that may have grown large
		return first
	}
	i := 0
	for next := 1; next < n; next = 2*i + 1 {
		if next+1 < n && all[next+1].turn < all[next].turn {
			next++
		}
		if last.turn <= all[next].turn {
			break
		}
		all[i], i = all[next], next
	}
	all[i] = last
	return first
}

// queue is first in, first out.
type queue[T any] []T

func (q *queue[T]) push(x T) { *q = append(*q, x) }

// pop takes the first one; there must be one.
func (q *queue[T]) pop() T {
	var zero T
	x := (*q)[0]
	(*q)[0] = zero
	if *q = (*q)[1:]; len(*q) == 0 {
		*q = nil // frees an array that may have grown large
	}
	return x
}
