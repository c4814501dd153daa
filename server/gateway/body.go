package gateway

import (
	"errors"
	"io"
	"net/http"
	"os"
	"sync"
	"time"

	"github.com/headgate/headgate/config/gatewayfile"
)

// The reasons for which a request's body ended too early.
var (
	errTooLarge = errors.New("gateway: the body is too large")
	errTooSlow  = errors.New("gateway: the body comes too slowly")
)

// body is the body of a request to an upstream server, bounded in size and in time. The transport
// reads it in a goroutine of its own, which may outlive the handler.
type body struct {
	inner   io.ReadCloser
	within  time.Duration
	minRate int64  // bytes per second; 0 if the length is not known
	left    int64  // how many bytes may still come; negative means no bound
	ending  func() // called when the body and its trailers were read; may be nil

	http1 bool

	mu      sync.Mutex // guards what follows
	idle    *sync.Cond // signals that busy has become false
	busy    bool       // a read is under way
	control *http.ResponseController
	ended   bool // the handler has ended, so control must not be used any more
	started bool
	until   time.Time // the deadline that is now set
	reading time.Time // when the present read began
	waited  time.Duration
	read    int64
	whole   bool  // the body was read to its end
	err     error // the error of the client
}

// newBody returns the body of r, which must have one.
func newBody(r *http.Request, inner io.ReadCloser, control *http.ResponseController, c *gatewayfile.Clients, most int64) *body {
	b := &body{inner: inner, within: c.Body, left: -1, control: control, http1: r.ProtoMajor == 1}
	b.idle = sync.NewCond(&b.mu)
	if most > 0 {
		b.left = most
	}
	if r.ContentLength > 0 && c.MinRate > 0 {
		b.minRate = c.MinRate
	}
	return b
}

// Read implements [io.Reader].
func (b *body) Read(p []byte) (int, error) {
	if !b.allow() {
		return 0, http.ErrBodyReadAfterClose
	}
	if b.left >= 0 && int64(len(p)) > b.left {
		p = p[:b.left+1] // one more byte shows that the body is too large
	}
	n, err := b.inner.Read(p)
	if b.left >= 0 {
		if int64(n) > b.left {
			n, err = int(b.left), errTooLarge
		}
		b.left -= int64(n)
	}
	b.note(n, err)
	return n, err
}

// allow sets the deadline of the next read. It returns false if the handler has ended. It moves the
// deadline only after a quarter of the time has passed, because a body comes in many small pieces,
// and each move costs time.
func (b *body) allow() bool {
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.ended {
		return false
	}
	b.busy, b.reading = true, time.Now()
	until := b.reading.Add(b.within)
	if b.minRate > 0 {
		// Until this deadline, the average rate stays high enough. Only the time during which the
		// gateway waited for the client counts, because an upstream server may read the body
		// slowly.
		until = until.Add(time.Duration(b.read/b.minRate)*time.Second - b.waited)
	}
	if !b.started || until.Sub(b.until) > b.within/4 {
		b.started, b.until = true, until
		// A server that cannot set a deadline has bounds of its own.
		_ = b.control.SetReadDeadline(until)
	}
	return true
}

// note records the result of a read.
func (b *body) note(n int, err error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.busy = false
	b.idle.Broadcast()
	b.read += int64(n)
	b.waited += time.Since(b.reading)
	if err == nil || b.ended {
		return
	}
	switch {
	case errors.Is(err, io.EOF):
		b.whole = true
		if b.ending != nil {
			b.ending()
		}
		// From now on, the server checks whether the client is still there.
		_ = b.control.SetReadDeadline(time.Time{})
	case errors.Is(err, os.ErrDeadlineExceeded), !time.Now().Before(b.until):
		// For trailers that come too late, net/http returns another error than for a late body.
		b.err = errTooSlow
	default:
		b.err = err
	}
}

// Close implements [io.Closer]. The transport closes a body that it could not send. The body
// belongs to the server, and may still be sent to another target, so Close does nothing.
func (b *body) Close() error { return nil }

// end is called when the handler ends. It returns how many bytes were read.
func (b *body) end() int64 {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.ended = true
	// The answer may be complete before the body is. When the handler ends, the server aborts a
	// read that is under way, and thereby removes the deadline. It would then read the rest of the
	// body for as long as the client likes. So this makes such a read fail first, and sets the
	// deadline anew. Without a read under way, the deadline stays.
	if b.busy && b.http1 && b.control.SetReadDeadline(time.Unix(1, 0)) == nil {
		for b.busy {
			b.idle.Wait()
		}
		_ = b.control.SetReadDeadline(time.Now().Add(b.within))
	}
	return b.read
}

// failure returns the client's error, or nil.
func (b *body) failure() error {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.err
}

// waitedFor returns how long the gateway has waited for the client.
func (b *body) waitedFor() time.Duration {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.waited
}

// complete reports whether the whole body has come.
func (b *body) complete() bool {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.whole
}

// untouched reports whether nothing was read yet.
func (b *body) untouched() bool {
	b.mu.Lock()
	defer b.mu.Unlock()
	return !b.started
}
