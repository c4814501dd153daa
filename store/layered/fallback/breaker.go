package fallback

import (
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
	// quiet is how long failures in a row must go on to open the breaker. Any answer ends the row,
	// so a store of which only a part has failed is still asked.
	quiet = 5 * time.Millisecond
	// halfOpenFailures is how many failures in a row open a half-open breaker
	// again.
	halfOpenFailures = 2
	// rampFloor: a half-open breaker begins by letting one in rampFloor requests ask the store.
	rampFloor = 16
)

// breaker decides whether a request asks the store. While the store answers, that costs two atomic
// loads.
type breaker struct {
	failures int64         // in a row, that open it
	ramp     time.Duration // how long it is half open
	base     time.Time     // what times are counted from, in ns

	// word has the state in its two lowest bits and the number of changes above them. So calls that
	// began before the last change can be recognized and ignored.
	word  atomic.Uint64
	row   atomic.Int64 // failures since the store last answered
	since atomic.Int64 // when the row began
	began atomic.Int64 // when the breaker became half open

	refusal atomic.Pointer[error] // what requests are told while it is open

	mu      sync.Mutex // makes changes of state follow one another
	changed func()     // called after each change, with mu held
}

func (b *breaker) now() int64 { return int64(time.Since(b.base)) }

func stateOf(word uint64) State { return State(word & 3) }

// enter reports whether a request may ask the store. The word is to be passed to failed.
func (b *breaker) enter() (word uint64, ask bool) {
	word = b.word.Load()
	switch stateOf(word) {
	case Closed:
		return word, true
	case HalfOpen:
		past := b.now() - b.began.Load()
		return word, rand.Int64N(int64(b.ramp)) < max(past, int64(b.ramp)/rampFloor)
	}
	return word, false
}

// answered records that the store has answered.
func (b *breaker) answered() {
	if b.row.Load() != 0 {
		b.row.Store(0)
	}
}

// failed records that the store has not answered a call that began with the word.
func (b *breaker) failed(word uint64, err error) {
	if b.word.Load() != word {
		return
	}
	row, now := b.row.Add(1), b.now()
	if row == 1 {
		b.since.Store(now)
	}
	switch {
	case stateOf(word) == HalfOpen && row >= halfOpenFailures,
		stateOf(word) == Closed && row >= b.failures && now-b.since.Load() >= int64(quiet):
		text := errtext.Text(err)
		refusal := fmt.Errorf("%w: %w, since %d calls in a row failed, the last with: %s", headgate.ErrUnavailable, layer.ErrNotAsked, row, text)
		b.change(word, Open, &refusal)
	}
}

// change goes to a state, unless somebody else has changed it first.
func (b *breaker) change(word uint64, to State, refusal *error) bool {
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.word.Load() != word {
		return false
	}
	if refusal != nil {
		b.refusal.Store(refusal)
	}
	if to == HalfOpen {
		b.began.Store(b.now())
	}
	b.row.Store(0)
	b.word.Store((word>>2+1)<<2 | uint64(to))
	b.changed()
	return true
}
