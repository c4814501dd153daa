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

// condition is the state of a target and its counters. It is kept when the options change, if the
// target stays.
type condition struct {
	inFlight atomic.Int64
	// requests and failures count since the start.
	requests, failures atomic.Int64
	// down is the result of health checks. looked says whether there were any.
	down, looked atomic.Bool

	// inRow counts the failures since the last answer. ejections counts how often the target was
	// ejected since then.
	inRow, ejections atomic.Int32
	// until is the time until which the target is ejected, in nanoseconds since 1970.
	until atomic.Int64
}

// ejected reports whether requests avoid the target because of its failures.
func (t *target) ejected() bool {
	until := t.until.Load()
	return until != 0 && time.Now().UnixNano() < until
}

// answered records that the target has answered.
func (t *target) answered() {
	// Loads do not make processors compete for the cache line, but stores do.
	if t.inRow.Load() != 0 {
		t.inRow.Store(0)
	}
	if t.ejections.Load() != 0 {
		t.ejections.Store(0)
		t.until.Store(0)
	}
}

// failed records that the target has not answered. It returns for how long the target is ejected
// from now on, or zero, and whether this is the first failure since an answer.
func (t *target) failed() (ejected time.Duration, first bool) {
	t.failures.Add(1)
	now, until := time.Now(), t.until.Load()
	inRow := int(t.inRow.Add(1))
	first = inRow == 1
	if inRow < t.eject.After || now.UnixNano() < until {
		return 0, first
	}
	// After that time, the next request tries the target again. One more failure then ejects it
	// again.
	d := min(t.eject.For<<min(t.ejections.Load(), 15), max(MaxEject, t.eject.For))
	if !t.until.CompareAndSwap(until, now.Add(d).UnixNano()) {
		return 0, first
	}
	t.ejections.Add(1)
	return d, first
}
