package fallback

import (
	"errors"
	"fmt"
	"math/rand/v2"
	"sync"
	"sync/atomic"
	"time"

	"github.com/headgate/headgate"
	"github.com/headgate/headgate/internal/errtext"
	"github.com/headgate/headgate/store/layered/internal/layer"
)

// State is the state of a circuit breaker.
type State uint8

const (
	// Closed is the normal state: all requests ask the store.
	Closed State = iota
	// Open means that only probes ask the store.
	Open
	// HalfOpen means that a probe was answered, and that a growing part of the requests ask the
	// store.
	HalfOpen

	states // the number of states
)

var stateNames = [states]string{"closed", "open", "half_open"}

// String returns "closed", "open" or "half_open".
func (s State) String() string {
	if s < states {
		return stateNames[s]
	}
	return fmt.Sprintf("state(%d)", uint8(s))
}

const (
	// silence is how long a store must have answered nothing to open the breaker, while its calls
	// end at their deadlines: longer than a fork, a disk that syncs, or a processor that others use
	// keeps a store busy.
	silence = 500 * time.Millisecond
	// ticks is how many ticks this process must have kept since the first of these calls ended: if
	// it was stopped, or gets no processor, its deadlines pass whatever the store does.
	ticks = 5
	tick  = 10 * time.Millisecond
	// refused is how much time must lie between the first and the last failure if the store refuses
	// calls, or their connections break. Such calls fail at once, so that it costs little to go on
	// asking. When one node of three is gone, a third of the requests fail, and at 500 a second five
	// of them in a row every second; 50 in a row never.
	refused = 100 * time.Millisecond
	// halfOpenFailures is how many failures in a row open a half-open breaker
	// again.
	halfOpenFailures = 2
	// rampFloor: a half-open breaker lets the first request ask the store, and then one in rampFloor.
	rampFloor = 16
	// rampPart: the ramp takes one in rampPart of the time that the store was away, at most.
	rampPart = 8
	// settled is how long the store must have been well, at most, for its next failure to be a new
	// outage.
	settled = time.Second
)

// breaker decides whether a request asks the store. While the store answers, that costs a look at
// the clock and three atomic loads. All times are in ns since base.
type breaker struct {
	failures int64         // in a row, that open it
	ramp     time.Duration // how long it is half open at most
	base     time.Time

	// word has the state in its two lowest bits and the number of changes above them. So calls that
	// began before the last change can be recognized and ignored.
	word         atomic.Uint64
	answeredFrom atomic.Int64  // when a call began that was answered; at most slack before the last such call
	row          atomic.Int64  // failures since the store last answered
	ticksKept    atomic.Int64  // ticks since the row began
	rowBegan     chan struct{} // has a value when a row begins, so that the ticks are counted
	rampBegan    atomic.Int64  // when the breaker became half open
	rampTime     atomic.Int64  // how long it is half open
	unasked      atomic.Bool   // no request has asked since it became half open

	failing sync.Mutex // guards what follows, and that a row begins once
	since   int64      // since when the store has answered nothing, as far as the row tells
	first   int64      // when the first call of the row failed

	refusal atomic.Pointer[error] // what requests are told while it is open

	mu        sync.Mutex // makes changes of state follow one another
	changed   func()     // called after each change, with mu held
	awaySince int64      // since when the store has been away; guarded by mu, like backSince
	backSince int64      // when the breaker was closed
}

// slack keeps calls that are answered from writing answeredFrom all the time.
const slack = int64(time.Millisecond)

func (b *breaker) now() int64 { return int64(time.Since(b.base)) }

func stateOf(word uint64) State { return State(word & 3) }

// enter reports whether a request may ask the store. The word is to be passed to failed.
func (b *breaker) enter() (word uint64, ask bool) {
	word = b.word.Load()
	switch stateOf(word) {
	case Closed:
		return word, true
	case HalfOpen:
		if b.unasked.Load() && b.unasked.CompareAndSwap(true, false) {
			return word, true // at once: by chance it could be the fiftieth
		}
		past, rises := b.now()-b.rampBegan.Load(), max(b.rampTime.Load(), 1)
		return word, rand.Int64N(rises) < max(past, rises/rampFloor)
	}
	return word, false
}

// answered records that the store has answered a call that began then.
func (b *breaker) answered(began int64) {
	if began-b.answeredFrom.Load() > slack {
		b.answeredFrom.Store(began)
	}
	if b.row.Load() != 0 {
		b.row.Store(0)
	}
}

// failed records that the store has not answered a call that began with the word, then.
func (b *breaker) failed(word uint64, began int64, err error) {
	if b.word.Load() != word {
		return
	}
	b.failing.Lock()
	row, now := b.row.Add(1), b.now()
	if row == 1 {
		b.since, b.first = max(began, b.answeredFrom.Load()), now
		b.ticksKept.Store(0)
		signal(b.rowBegan)
	}
	since, lasts := b.since, now-b.first
	b.failing.Unlock()
	switch {
	case stateOf(word) == HalfOpen:
		if row < halfOpenFailures {
			return
		}
	case row < b.failures:
		return
	case timedOut(err):
		if b.ticksKept.Load() < ticks || now-since < int64(silence) {
			return
		}
	case lasts < int64(refused):
		return
	}
	away := time.Duration(now - since).Round(time.Millisecond)
	refusal := fmt.Errorf("%w: %w, since it has answered nothing for %v and %d calls in a row have failed, the last with: %s",
		headgate.ErrUnavailable, layer.ErrNotAsked, away, row, errtext.Text(err))
	b.open(word, since, &refusal)
}

// signal wakes the goroutine that reads from the channel. It does not wait.
func signal(c chan<- struct{}) {
	select {
	case c <- struct{}{}:
	default:
	}
}

// timedOut reports whether a call ended because there was no answer in time.
func timedOut(err error) bool {
	ended, found := errors.AsType[interface {
		error
		Timeout() bool
	}](err)
	return found && ended.Timeout()
}

// open goes from a word to Open, unless somebody else has changed the state first. since is when the
// store has stopped answering.
func (b *breaker) open(word uint64, since int64, refusal *error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.word.Load() != word {
		return
	}
	// A store that comes and goes is in one outage.
	if stateOf(word) == Closed && since-b.backSince > min(b.backSince-b.awaySince, int64(settled)) {
		b.awaySince = since
	}
	b.refusal.Store(refusal)
	b.become(word, Open)
}

// close goes from a word to HalfOpen or Closed, unless somebody else has changed the state first.
func (b *breaker) close(word uint64, to State) {
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.word.Load() != word {
		return
	}
	now := b.now()
	if to == Closed {
		b.backSince = now
	} else {
		b.rampTime.Store(min(int64(b.ramp), (now-b.awaySince)/rampPart))
		b.rampBegan.Store(now)
		b.unasked.Store(true)
	}
	b.become(word, to)
}

func (b *breaker) become(word uint64, to State) {
	b.row.Store(0)
	b.word.Store((word>>2+1)<<2 | uint64(to))
	b.changed()
}

// away returns how long the store has been away.
func (b *breaker) away() time.Duration {
	b.mu.Lock()
	defer b.mu.Unlock()
	return time.Duration(b.now() - b.awaySince)
}
