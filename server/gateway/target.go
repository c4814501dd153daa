package gateway

import (
	"net/http"
	"net/url"
	"sync/atomic"
	"time"
)

// target is one server of a pool. It is safe for concurrent use.
type target struct {
	name      string // as in the options
	url       *url.URL
	transport *http.Transport
	eject     Eject
	*condition
}

// condition is how a target is, and what it has done. It outlives a change of the
// options that keeps the target.
type condition struct {
	inFlight atomic.Int64
	// requests and failures count since the start.
	requests, failures atomic.Int64
	// down is what health checks think, and looked whether there were any.
	down, looked atomic.Bool

	// inRow counts the failures since the last answer, and ejections how often the
	// target was passed over since then.
	inRow, ejections atomic.Int32
	// until is up to when it is passed over, in nanoseconds since 1970.
	until atomic.Int64
}

// ejected reports whether the target is passed over.
func (t *target) ejected() bool {
	until := t.until.Load()
	return until != 0 && time.Now().UnixNano() < until
}

// answered notes that there was an answer.
func (t *target) answered() {
	// Loads are shared between processors, stores are not.
	if t.inRow.Load() != 0 {
		t.inRow.Store(0)
	}
	if t.ejections.Load() != 0 {
		t.ejections.Store(0)
		t.until.Store(0)
	}
}

// failed notes that there was none. It returns for how long the target is passed
// over from now on, zero if it is not, and whether there was an answer before.
func (t *target) failed() (ejected time.Duration, first bool) {
	t.failures.Add(1)
	now, until := time.Now(), t.until.Load()
	inRow := int(t.inRow.Add(1))
	first = inRow == 1
	if inRow < t.eject.After || now.UnixNano() < until {
		return 0, first
	}
	// Whoever comes when it is over tries again: one more failure is enough then.
	d := min(t.eject.For<<min(t.ejections.Load(), 15), max(MaxEject, t.eject.For))
	if !t.until.CompareAndSwap(until, now.Add(d).UnixNano()) {
		return 0, first
	}
	t.ejections.Add(1)
	return d, first
}
