package retry

import (
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
}

const (
	// enough is how many attempts must be rejected in a row before calls are failed, and shortest
	// is the time that this must take: what lasts shorter is a pause, and retries get over it.
	enough, shortest = 10, 400 * time.Millisecond
	// worth is how many rejected attempts one that is accepted makes up for. So a service that
	// accepts a part of all attempts gets them all.
	worth = enough - 1
	// fromOne is how many rejections count for the whole service if only one endpoint rejects.
	fromOne = enough / 2
	// few is how many of an own must be rejected in a row if others have had enough: each process of a fleet that calls a
	// service which accepts a part of all attempts is to see that it does.
	few = 3
	// longest is the longest time between two attempts.
	longest = 4700 * time.Millisecond
)

// rejections is what is known of attempts that were rejected.
type rejections struct {
	count       int       // at most enough; accepted attempts make up for some
	first, last time.Time // when the first and the last of them were rejected
	since       time.Time // when the first was rejected after the last that was accepted
	sent        time.Time // when an attempt was sent last
}

// closed reports whether calls fail, apart from some.
func (r *rejections) closed() bool { return r.count == enough && r.last.Sub(r.first) >= shortest }

// apart returns the time between two attempts while calls fail: the time for which all were rejected. So an
// outage fails at most as many calls again as arrive in it.
func (r *rejections) apart() time.Duration {
	if !r.closed() {
		return 0
	}
	return min(r.last.Sub(r.since), longest)
}

// wait returns the time until an attempt may be sent.
func (r *rejections) wait(now time.Time) time.Duration {
	if now.Sub(r.sent) > 2*longest {
		*r = rejections{sent: r.sent} // Nobody has called for long, so nothing is known.
	}
	if !r.closed() {
		return 0
	}
	return r.sent.Add(r.apart()).Sub(now)
}

// accept records an attempt that was accepted. One that was accepted by chance while calls fail does not
// end the outage: a few rejections have them fail again.
func (r *rejections) accept() {
	if !r.closed() {
		r.first = time.Time{}
	}
	r.count = max(r.count-worth, 0)
	r.since = time.Time{}
}

func (r *rejections) reject(now time.Time) {
	if r.first.IsZero() {
		r.first = now
	}
	if r.since.IsZero() {
		r.since = now
	}
	r.last = now
	r.count = min(r.count+1, enough)
}

// enough records that others have had enough rejected, too, within d.
func (r *rejections) enough(now time.Time, d time.Duration) {
	if d == 0 || r.count < few {
		return
	}
	r.count = enough
	if since := now.Add(-d); since.Before(r.since) {
		r.first, r.since = since, since
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
	return t.all.closed() || t.endpoint(endpoint).closed()
}

// Apart returns the time between two calls that are sent while the others fail: those to the endpoint, and all. Zero
// stands for none that fail.
func (t *Throttle) Apart(endpoint string) (this, all time.Duration) {
	t.mu.Lock()
	defer t.mu.Unlock()
	return t.endpoint(endpoint).apart(), t.all.apart()
}

// Postpone takes back that a call is sent which Wait has let through: another one is to be sent after d. So clients
// of one service can send such calls in turn.
func (t *Throttle) Postpone(endpoint string, now time.Time, d time.Duration) {
	t.mu.Lock()
	defer t.mu.Unlock()
	for _, r := range [...]*rejections{&t.all, t.endpoint(endpoint)} {
		if r.closed() {
			r.sent = now.Add(d - r.apart())
		}
	}
}

// Enough records that clients of the service have had enough attempts rejected in a row, all of them together:
// within the time this by the endpoint, and within several by several ones. Zero stands for too few. It counts for a
// client that has had a few rejected itself since one was accepted.
func (t *Throttle) Enough(endpoint string, now time.Time, this, several time.Duration) {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.endpoint(endpoint).enough(now, this)
	t.all.enough(now, several)
}

// Accepted records an attempt that the endpoint has accepted, and reports whether it has rejected others before.
func (t *Throttle) Accepted(endpoint string) (again bool) {
	t.mu.Lock()
	defer t.mu.Unlock()
	e := t.endpoint(endpoint)
	again = !e.since.IsZero()
	t.all.accept()
	e.accept()
	return again
}

// Rejected records an attempt that the endpoint has rejected.
func (t *Throttle) Rejected(endpoint string, now time.Time) {
	t.mu.Lock()
	defer t.mu.Unlock()
	e := t.endpoint(endpoint)
	if e.count < fromOne || t.all.count == enough {
		t.all.reject(now)
	}
	e.reject(now)
}

func (t *Throttle) endpoint(name string) *rejections {
	hash := uint32(2166136261) // FNV-1a
	for i := range len(name) {
		hash = (hash ^ uint32(name[i])) * 16777619
	}
	return &t.endpoints[hash%uint32(len(t.endpoints))]
}
