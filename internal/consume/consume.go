// Package consume is what consumers of message brokers have in common: the way of a message from
// the broker to its end.
//
//	Submit → gate → handler ─┬→ done
//	            ↑            ├→ Wait, for the next try in place
//	            └────────────┘
//	                         └→ Forward: a letter to a retry tier or to the dead-letter queue → done
//
// A consumer embeds an [Item] into what it keeps of a message, tells the [Engine] its part with a
// [Source], and shares the Engine's lock.
package consume

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"sync"
	"time"

	"github.com/headgate/headgate/flow"
)

// Item is what an Engine keeps of a message M. Its lock guards it.
type Item[M any] struct {
	Message M
	// Tier is how many retry tiers the message has passed.
	Tier int
	// Tries is how often it has failed here. For a letter, it counts failures to publish.
	Tries int
	// Parked says that the message waits for its next try.
	Parked bool

	turn    uint64                          // zero if it has none
	publish func(ctx context.Context) error // nil unless a letter is to be published
	to      string
	sent    func()
}

// IsLetter reports whether a letter is to be published in place of the message.
func (it *Item[M]) IsLetter() bool { return it.publish != nil }

func (it *Item[M]) base() *Item[M] { return it }

// Task is a pointer to a struct with an Item.
type Task[M any] interface {
	comparable
	base() *Item[M]
}

// Letter is what consumers write into a message for a retry tier or a dead-letter queue.
type Letter struct {
	To string
	// Reason is at most MaxReason bytes of the last error.
	Reason string
	// Attempts is how often the message was tried here, and Failed when that failed last.
	Attempts int
	Failed   time.Time
	// Tier is the number of the tier, from 1, and Due when the message may be tried again. Both are
	// zero for dead letters.
	Tier int
	Due  time.Time
}

// Headers of letters that are the same for all brokers.
const (
	HeaderPrefix   = "headgate-"
	HeaderReason   = HeaderPrefix + "reason"
	HeaderAttempts = HeaderPrefix + "attempts"
	HeaderFailed   = HeaderPrefix + "failed"
	HeaderDue      = HeaderPrefix + "due"

	MaxReason = 1000
)

// Fate says what becomes of a message at the broker.
type Fate uint8

const (
	// Done means that the broker may forget the message.
	Done Fate = iota
	// Rejected means that no attempt could handle it, and that the broker decides about it.
	Rejected
	// Returned means that the message is to be delivered again: its handler was told to stop.
	Returned
)

// Source is the part of a consumer. All functions are needed. They are called with the Engine's
// lock, except for Context.
type Source[T any] struct {
	// Context is the parent of the contexts of handlers.
	Context func(T) context.Context
	// Wants reports whether an item may begin. It is also asked when an item begins to wait for its
	// next try, and when that time has come; the item is Parked then.
	Wants func(T) bool
	// Begin and End enclose the time in which an item asks the gate or runs.
	Begin, End func(T)
	// Letter returns a function that publishes a letter and waits until the broker has it. The
	// function is called without the lock.
	Letter func(T, Letter) func(ctx context.Context) error
	// Settle ends an item. An item that has ended is ignored.
	Settle func(T, Fate)
}

// Counts count what has happened to messages.
type Counts struct {
	Handled, Failed, Retried, Delayed, DeadLettered, Rejected, Discarded, Refused uint64
}

// Engine handles the messages of one consumer. It is the consumer's lock as well: Unlock also calls
// the hooks that Tell has collected, because they may need the lock themselves.
type Engine[M any, T Task[M]] struct {
	Config     Config[M] // does not change
	source     Source[T]
	mu         sync.Mutex
	callbacks  []func()
	dispatcher *dispatcher[T]
	// Counts and Running are guarded by the lock. Running is how many items run, or ask the gate.
	Counts  Counts
	Running int

	// busy and waiting are the total times of items that run and of those that could not begin, until
	// changed, when one of their numbers changed last.
	busy, waiting time.Duration
	changed       time.Time
	turns         uint64 // how many were given
}

// New returns an Engine. The Config must be complete and valid.
func New[M any, T Task[M]](config Config[M], source Source[T]) *Engine[M, T] {
	e := &Engine[M, T]{Config: config, source: source, changed: time.Now()}
	counting := source
	counting.End, counting.Begin = e.end, func(it T) {
		e.elapse()
		source.Begin(it)
		e.Running++
	}
	e.dispatcher = newDispatcher(dispatching[T]{
		Source:  counting,
		Lock:    e,
		Gate:    config.Gate,
		Workers: config.Workers,
		Run:     e.run,
		Refused: e.refused,
		Never:   func(it T, err error) { e.fail(it, Permanent(err)) },
	})
	return e
}

// Lock takes the consumer's lock.
func (e *Engine[M, T]) Lock() { e.mu.Lock() }

// Unlock returns the lock, and calls hooks.
func (e *Engine[M, T]) Unlock() {
	callbacks := e.callbacks
	e.callbacks = nil
	e.mu.Unlock()
	for _, f := range callbacks {
		f()
	}
}

// Tell makes Unlock call f. The caller holds the lock, as for all methods that follow.
func (e *Engine[M, T]) Tell(f func()) { e.callbacks = append(e.callbacks, f) }

// Trouble makes Unlock call the hook for errors.
func (e *Engine[M, T]) Trouble(err error) {
	if h := e.Config.Hooks.Error; h != nil && err != nil {
		e.Tell(func() { h(err) })
	}
}

// Enter gives an item its turn, if it has none. Of those that wait at the gate with the same key,
// the one that entered first goes first, also if it was submitted late or is tried again: nothing
// that came after it can be committed before.
func (e *Engine[M, T]) Enter(it T) {
	if b := it.base(); b.turn == 0 {
		e.turns++
		b.turn = e.turns
	}
}

// Submit makes an item ask the gate and run when its turn has come. A letter does not ask.
func (e *Engine[M, T]) Submit(it T) {
	e.elapse()
	e.Enter(it)
	if b := it.base(); b.IsLetter() {
		e.dispatcher.Start(it, b.turn)
	} else {
		e.dispatcher.Ask(it, b.turn, e.Config.Request(b.Message))
	}
}

// Prune forgets items that have not begun and are not wanted.
func (e *Engine[M, T]) Prune() {
	e.elapse()
	e.dispatcher.Prune()
}

// Load returns the total times since its last call of items that ran, and of items that could not
// begin because of a lack of workers or because of the gate.
func (e *Engine[M, T]) Load() (busy, waiting time.Duration) {
	e.elapse()
	busy, waiting = e.busy, e.waiting
	e.busy, e.waiting = 0, 0
	return busy, waiting
}

// elapse adds the time since the last change. It is called before a number changes.
func (e *Engine[M, T]) elapse() {
	now := time.Now()
	passed := now.Sub(e.changed)
	e.changed = now
	e.busy += time.Duration(e.Running) * passed
	e.waiting += time.Duration(e.dispatcher.queued) * passed
}

func (e *Engine[M, T]) end(it T) {
	e.elapse()
	e.source.End(it)
	e.Running--
}

// refused counts refusals of the gate, and reports its errors.
func (e *Engine[M, T]) refused(it T, err error) {
	e.elapse()
	e.Counts.Refused++
	if _, ok := errors.AsType[*flow.Rejection](err); !ok && e.source.Context(it).Err() == nil {
		e.Trouble(err)
	}
}

// run handles a message, or publishes its letter, and decides what comes next.
func (e *Engine[M, T]) run(it T, permit flow.Permit) {
	b, ctx := it.base(), e.source.Context(it)
	if b.IsLetter() {
		err := b.publish(ctx)
		e.Lock()
		defer e.Unlock()
		e.published(it, err)
		e.end(it)
		return
	}
	began := time.Now()
	call(ctx, permit, e.Config.Timeout, func(ctx context.Context) error {
		return e.Config.Handle(ctx, b.Message)
	}, func(err error) {
		permit.Done(e.Config.Outcome(err))
		took := time.Since(began)
		if h := e.Config.Hooks.Handled; h != nil {
			h(b.Message, err, took)
		}
		e.Lock()
		defer e.Unlock()
		defer e.end(it)
		e.dispatcher.Freed()
		e.Counts.Handled++
		if err != nil {
			e.Counts.Failed++
		}
		switch {
		case err == nil:
			e.source.Settle(it, Done)
		case ctx.Err() != nil:
			// The handler was told to stop, so this is not a failed attempt.
			e.source.Settle(it, Returned)
		default:
			e.fail(it, err)
		}
	})
}

// fail decides what happens after a failed attempt.
func (e *Engine[M, T]) fail(it T, err error) {
	b := it.base()
	b.Tries++
	switch {
	case hopeless(err):
		e.exhaust(it, err)
	case b.Tier == 0 && b.Tries <= e.Config.InPlace:
		e.again(it, err)
	case b.Tier < len(e.Config.Tiers):
		tier := e.Config.Tiers[b.Tier]
		e.send(it, Letter{To: tier.Name, Tier: b.Tier + 1, Due: time.Now().Add(tier.Delay)}, err, func() {
			e.Counts.Delayed++
			e.retried(it, tier.Name, tier.Delay, err)
		})
	default:
		e.exhaust(it, err)
	}
}

// exhaust handles a message whose attempts have all failed.
func (e *Engine[M, T]) exhaust(it T, err error) {
	switch e.Config.Exhausted {
	case Block:
		it.base().turn = 0 // Others go first, or what always fails would be all that is tried.
		e.again(it, err)
	case Discard:
		e.Counts.Discarded++
		e.gaveUp(e.Config.Hooks.Discarded, it, err)
		e.source.Settle(it, Done)
	case Reject:
		e.Counts.Rejected++
		e.gaveUp(e.Config.Hooks.Discarded, it, err)
		e.source.Settle(it, Rejected)
	case ToDeadLetter:
		e.send(it, Letter{To: e.Config.DeadLetter}, err, func() {
			e.Counts.DeadLettered++
			e.gaveUp(e.Config.Hooks.DeadLettered, it, err)
		})
	}
}

func (e *Engine[M, T]) gaveUp(hook func(M, error), it T, err error) {
	if hook != nil {
		e.Tell(func() { hook(it.base().Message, err) })
	}
}

func (e *Engine[M, T]) retried(it T, tier string, delay time.Duration, err error) {
	if h := e.Config.Hooks.Retried; h != nil {
		e.Tell(func() { h(it.base().Message, tier, delay, err) })
	}
}

// again makes an item wait for its next try in place.
func (e *Engine[M, T]) again(it T, err error) {
	wait := max(e.backoff(it), stagger(comeAgain(err)))
	e.Counts.Retried++
	e.retried(it, "", wait, err)
	e.Wait(it, wait)
}

func (e *Engine[M, T]) backoff(it T) time.Duration {
	return Backoff(it.base().Tries, e.Config.Backoff, e.Config.MaxBackoff)
}

// Wait submits an item after d, unless it is not wanted any more. An item that nobody will want by
// then is returned at once.
func (e *Engine[M, T]) Wait(it T, d time.Duration) {
	b := it.base()
	b.Parked = true
	if !e.source.Wants(it) {
		e.source.Settle(it, Returned)
		return
	}
	time.AfterFunc(d, func() {
		e.Lock()
		defer e.Unlock()
		if e.source.Wants(it) {
			b.Parked = false
			e.Submit(it)
		}
	})
}

// Forward makes an item a letter, which Submit publishes. After that, sent is called, and the
// item is done.
func (e *Engine[M, T]) Forward(it T, letter Letter, reason error, sent func()) {
	b := it.base()
	letter.Reason = shortened(reason.Error())
	letter.Attempts, letter.Failed = b.Tries, time.Now()
	b.publish, b.to, b.sent, b.Tries = e.source.Letter(it, letter), letter.To, sent, 0
}

// shortened returns at most MaxReason bytes of a text, in a form that a header can hold.
func shortened(text string) string {
	return strings.ToValidUTF8(text[:min(len(text), MaxReason)], "")
}

func (e *Engine[M, T]) send(it T, letter Letter, reason error, sent func()) {
	e.Forward(it, letter, reason, sent)
	e.Submit(it)
}

// published handles the result of publishing a letter. Until that has succeeded, the item is not
// done and is tried again: no message is dropped because its letter cannot be published.
func (e *Engine[M, T]) published(it T, err error) {
	b := it.base()
	switch {
	case err == nil:
		b.sent()
		e.source.Settle(it, Done)
	case e.source.Context(it).Err() == nil:
		b.Tries++
		e.Trouble(fmt.Errorf("%s: publishing to %q: %w", e.Config.Broker, b.to, err))
		e.Wait(it, e.backoff(it))
	}
}
