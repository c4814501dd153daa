package retry

import (
	"math/rand/v2"
	"sync"
	"time"
)

// Throttle fails calls to a service that rejects them all. So the service is not overrun, and
// callers do not wait in vain. Some calls are always sent, and find out within seconds that the
// service has recovered, however long it was down. What one endpoint of the service rejects does
// not fail calls to others. A Throttle is safe for concurrent use. The zero Throttle has seen no
// calls.
type Throttle struct {
	mu        sync.Mutex // guards what follows
	all       rejections
	endpoints [64]rejections // by a hash of their names
	told      time.Time      // when others were told of rejections last
}

const (
	// fewest is how many attempts must be rejected in a row before calls are failed to a service that has accepted nearly
	// all, and shortest is the time that this must take: what lasts shorter is a pause, and retries get over it.
	fewest, shortest = 6, 400 * time.Millisecond
	// One that accepts a part of all attempts is not down, and gets them all: of the rows that end by chance, one in
	// e^unusual is longer by unusual times the usual one. A service that has rejected most in a row is down.
	unusual, most = 8, 40
	// lately is how many rows it takes to learn what is usual.
	lately = 8
	// fromOne is how many rejections count for the whole service if only one endpoint rejects.
	fromOne = fewest / 2
	// few is how many attempts of its own a client must have had rejected in a row if others have had enough, so that
	// one which cannot reach the service does not have calls of the others fail.
	few = 2
	// longest is the longest time between two attempts.
	longest = 4700 * time.Millisecond
	// Others are told of rejections so many times at once, and later each time after shortest.
	tellings = 3
)

// rejections is what is known of attempts that were rejected.
type rejections struct {
	row         int       // how many were rejected since one was accepted; at most most
	told        int       // how many of them others were told of
	usual       float64   // how many were rejected on average before one was accepted
	since, last time.Time // when the first and the last of the row were rejected
	sent        time.Time // when an attempt was sent last
}

// enough is how many must be rejected in a row before calls fail.
func (r *rejections) enough() int { return min(fewest+int(unusual*r.usual), most) }

// closed reports whether calls fail, apart from some.
func (r *rejections) closed() bool { return r.row >= r.enough() && r.last.Sub(r.since) >= shortest }

// apart returns the time between two attempts while calls fail: the time for which all were rejected. So an
// outage fails at most as many calls again as arrive in it.
func (r *rejections) apart() time.Duration { return min(r.last.Sub(r.since), longest) }

// wait returns the time until an attempt may be sent.
func (r *rejections) wait(now time.Time) time.Duration {
	if now.Sub(r.sent) > 2*longest {
		r.row, r.told = 0, 0 // Nobody has called for long, so nothing is known.
	}
	if !r.closed() {
		return 0
	}
	return r.sent.Add(r.apart()).Sub(now)
}

// accept records an attempt that was accepted, and reports whether others were told of rejections before.
func (r *rejections) accept() (told bool) {
	told = r.told > 0
	if r.row < most { // An outage says nothing of what is usual while there is none.
		r.usual += (float64(r.row) - r.usual) / lately
	}
	r.row, r.told = 0, 0
	return told
}

func (r *rejections) reject(now time.Time) {
	if r.row == 0 {
		r.since = now
	}
	r.last = now
	r.row = min(r.row+1, most)
}

// untold returns of how many of the row others were not told, and takes in that they are.
func (r *rejections) untold() int {
	n := r.row - r.told
	r.told = r.row
	return n
}

// hear takes in what all clients have had rejected in a row, if this one has had some of its own.
func (r *rejections) hear(now time.Time, row Row, own int) {
	if r.row < own || row.Count < r.enough() || row.Lasted < shortest {
		return
	}
	r.row = max(r.row, r.enough())
	if since := now.Add(-row.Lasted); since.Before(r.since) {
		r.since = since
	}
}

// Wait returns zero if a call to the endpoint is to be sent now. Otherwise the call is to fail, and
// Wait returns the time until another one may be sent. Any text can be the name of an endpoint.
func (t *Throttle) Wait(endpoint string, now time.Time) time.Duration {
	t.mu.Lock()
	defer t.mu.Unlock()
	e := t.endpoint(endpoint)
	if wait := max(t.all.wait(now), e.wait(now)); wait > 0 {
		return wait
	}
	t.all.sent, e.sent = now, now
	return 0
}

// Closed reports whether calls to the endpoint fail, apart from some. Then a call that was rejected
// is not to be retried.
func (t *Throttle) Closed(endpoint string) bool {
	t.mu.Lock()
	defer t.mu.Unlock()
	return t.failing(endpoint).closed()
}

// Pause returns for how long a retry is to wait at least: if a few attempts were rejected in a row, until it will be
// known whether that was a pause of the service.
func (t *Throttle) Pause(endpoint string, now time.Time) time.Duration {
	t.mu.Lock()
	defer t.mu.Unlock()
	e := t.endpoint(endpoint)
	if e.row < few {
		return 0
	}
	return max(e.since.Add(shortest+rand.N(shortest/2)).Sub(now), 0)
}

// Row is attempts of all clients of a service that were rejected in a row.
type Row struct {
	Count  int
	Lasted time.Duration // since the first of them
}

// Tell returns of how many attempts that were rejected in a row other clients of the service are to be told: of those
// to the endpoint, and of all. If it is not to be done now, both are zero.
func (t *Throttle) Tell(endpoint string, now time.Time) (this, all int) {
	t.mu.Lock()
	defer t.mu.Unlock()
	next := t.told.Add(shortest)
	if earliest := now.Add((1 - tellings) * shortest); next.Before(earliest) {
		next = earliest
	}
	if next.After(now) || t.failing(endpoint).closed() {
		return 0, 0
	}
	t.told = next
	return t.endpoint(endpoint).untold(), t.all.untold()
}

// Hear takes in what all clients of the service, this one too, have told each other: what was rejected in a row by the
// endpoint, and by several ones. It counts for a client that has had a few rejected itself since one was accepted.
func (t *Throttle) Hear(endpoint string, now time.Time, this, several Row) {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.endpoint(endpoint).hear(now, this, few)
	t.all.hear(now, several, fromOne+1)
}

// Probe returns what other clients of the service are to be told of a call that is sent while others fail: for how long
// it is the only one, whether they are those to all endpoints, and of how many rejections. If no calls fail, alone is
// zero.
func (t *Throttle) Probe(endpoint string) (alone time.Duration, all bool, rejected int) {
	t.mu.Lock()
	defer t.mu.Unlock()
	r := t.failing(endpoint)
	if !r.closed() {
		return 0, false, 0
	}
	return r.apart(), r == &t.all, max(r.untold(), 1)
}

// Postpone takes back that a call is sent which Wait has let through: another one is to be sent after d, because one of
// another client finds out. If all clients have had too few rejected in a row, it does nothing, and reports false:
// then each finds out for itself.
func (t *Throttle) Postpone(endpoint string, now time.Time, d time.Duration, rejected int) bool {
	t.mu.Lock()
	defer t.mu.Unlock()
	if rejected < t.failing(endpoint).enough() {
		return false
	}
	for _, r := range [...]*rejections{&t.all, t.endpoint(endpoint)} {
		if r.closed() {
			r.sent = now.Add(d - r.apart())
		}
	}
	return true
}

// Accepted records an attempt that the endpoint has accepted, and reports whether other clients were told of some that
// were rejected before.
func (t *Throttle) Accepted(endpoint string) (told bool) {
	t.mu.Lock()
	defer t.mu.Unlock()
	all, this := t.all.accept(), t.endpoint(endpoint).accept()
	return all || this
}

// Rejected records an attempt that the endpoint has rejected.
func (t *Throttle) Rejected(endpoint string, now time.Time) {
	t.mu.Lock()
	defer t.mu.Unlock()
	e := t.endpoint(endpoint)
	if e.row < fromOne || t.all.row >= t.all.enough() {
		t.all.reject(now)
	}
	e.reject(now)
}

// failing is what has calls to the endpoint fail, if any do.
func (t *Throttle) failing(endpoint string) *rejections {
	if t.all.closed() {
		return &t.all
	}
	return t.endpoint(endpoint)
}

func (t *Throttle) endpoint(name string) *rejections {
	hash := uint32(2166136261) // FNV-1a
	for i := range len(name) {
		hash = (hash ^ uint32(name[i])) * 16777619
	}
	return &t.endpoints[hash%uint32(len(t.endpoints))]
}
