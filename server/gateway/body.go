package gateway

import (
	"errors"
	"io"
	"net/http"
	"os"
	"sync"
	"time"
)

// Why a request's body ended before its time.
var (
	errTooLarge = errors.New("gateway: the body is too large")
	errTooSlow  = errors.New("gateway: the body comes too slowly")
)

// body is the body of a request on its way to an upstream server: bounded in size
// and in time. The transport reads it in a goroutine of its own, which may outlive
// the handler.
type body struct {
	inner   io.ReadCloser
	within  time.Duration
	minRate int64  // bytes a second; 0 if the length is not known
	left    int64  // how much there may still be; negative is no bound
	ending  func() // called when its end has been read, and its trailers are there; may be nil

	http1 bool

	mu      sync.Mutex // guards what follows
	idle    *sync.Cond // signals that busy has become false
	busy    bool       // a read is under way
	control *http.ResponseController
	ended   bool // the handler has, and with it what control controls
	started bool
	until   time.Time // the deadline that is set
	reading time.Time // when the read began that is under way
	waited  time.Duration
	read    int64
	whole   bool  // it has been read to its end
	err     error // that of the client
}

// newBody returns the body of r, which has one.
func newBody(r *http.Request, inner io.ReadCloser, control *http.ResponseController, c *Clients, most int64) *body {
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
		p = p[:b.left+1] // one more tells what is too large
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

// allow sets the deadline of the next read. It reports false if the handler has
// ended. The deadline is moved when a quarter of it is over: a body comes in many
// small pieces, and each move costs.
func (b *body) allow() bool {
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.ended {
		return false
	}
	b.busy, b.reading = true, time.Now()
	until := b.reading.Add(b.within)
	if b.minRate > 0 {
		// Beyond this the average is below the rate. Only the time counts in which
		// the client was waited for: an upstream may take the body slowly.
		until = until.Add(time.Duration(b.read/b.minRate)*time.Second - b.waited)
	}
	if !b.started || until.Sub(b.until) > b.within/4 {
		b.started, b.until = true, until
		// A server that cannot do it has bounds of its own.
		_ = b.control.SetReadDeadline(until)
	}
	return true
}

// note keeps what a read has come to.
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
		// From here on the server looks whether the client is still there.
		_ = b.control.SetReadDeadline(time.Time{})
	case errors.Is(err, os.ErrDeadlineExceeded), !time.Now().Before(b.until):
		// Of trailers that do not come in time another error tells.
		b.err = errTooSlow
	default:
		b.err = err
	}
}

// Close implements [io.Closer]. The transport closes a body that it has not been
// able to send; it is the server's to close, and may be sent to another target.
func (b *body) Close() error { return nil }

// end is called when the handler ends. It returns how much was read.
func (b *body) end() int64 {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.ended = true
	// The answer may be complete before the body is. The server ends a read that is
	// then under way, and takes the deadline away with that; it reads the rest for as
	// long as the client likes. Without such a read, the deadline stays.
	if b.busy && b.http1 && b.control.SetReadDeadline(time.Unix(1, 0)) == nil {
		for b.busy {
			b.idle.Wait()
		}
		_ = b.control.SetReadDeadline(time.Now().Add(b.within))
	}
	return b.read
}

// failure is why the client's part of the request went wrong, or nil.
func (b *body) failure() error {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.err
}

// waitedFor is for how long the client was waited for.
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
