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

// wait returns the time until an attempt may be sent. Between two attempts is the time for which all
// were rejected: an outage fails at most as many calls again as arrive in it.
func (r *rejections) wait(now time.Time) time.Duration {
	if now.Sub(r.sent) > 2*longest {
		*r = rejections{sent: r.sent} // Nobody has called for long, so nothing is known.
	}
	if !r.closed() {
		return 0
	}
	return r.sent.Add(min(r.last.Sub(r.since), longest)).Sub(now)
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

// Accepted records an attempt that the endpoint has accepted.
func (t *Throttle) Accepted(endpoint string) {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.all.accept()
	t.endpoint(endpoint).accept()
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
