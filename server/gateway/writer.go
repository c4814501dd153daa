package gateway

import (
	"bufio"
	"net"
	"net/http"
	"sync"
	"time"
)

// writer is the way to the client: it knows what was sent, and gives up on a
// client that takes nothing. It belongs to an exchange and is used again with it.
type writer struct {
	http.ResponseWriter
	control  *http.ResponseController
	upgrades *upgrades
	status   int
	sent     int64
	upgraded *upgraded // what the connection has become; nil if it is still HTTP

	// A deadline of the connection would do for HTTP/1. One of a stream of HTTP/2
	// resets it even if nothing is being written, so that a timer runs while
	// something is.
	within time.Duration
	timer  *time.Timer
	mu     sync.Mutex // guards until
	until  time.Time  // zero while nothing is being written
}

func newWriter(within time.Duration, u *upgrades) *writer {
	w := &writer{within: within, upgrades: u}
	w.timer = time.AfterFunc(time.Hour, w.expire)
	w.timer.Stop()
	return w
}

// begin has the writer write to next.
func (w *writer) begin(next http.ResponseWriter) {
	w.ResponseWriter, w.control = next, http.NewResponseController(next)
	w.status, w.sent, w.upgraded = 0, 0, nil
}

// end is called when the handler ends: what the server still has to send is bound
// too. It returns how much was sent.
func (w *writer) end() int64 {
	sent := w.sent
	if w.upgraded != nil {
		sent = w.upgraded.sent.Load()
	} else {
		_ = w.control.SetWriteDeadline(time.Now().Add(w.within))
	}
	w.ResponseWriter, w.control, w.upgraded = nil, nil, nil
	return sent
}

func (w *writer) start() {
	w.mu.Lock()
	w.until = time.Now().Add(w.within)
	w.mu.Unlock()
	w.timer.Reset(w.within)
}

func (w *writer) stop() {
	w.timer.Stop()
	w.mu.Lock()
	w.until = time.Time{}
	w.mu.Unlock()
}

// expire ends the write that takes too long. The timer may have gone off for an
// earlier one.
func (w *writer) expire() {
	w.mu.Lock()
	defer w.mu.Unlock()
	if !w.until.IsZero() && !time.Now().Before(w.until) {
		_ = w.control.SetWriteDeadline(time.Unix(1, 0))
	}
}

// WriteHeader implements [http.ResponseWriter].
func (w *writer) WriteHeader(status int) {
	if w.upgraded != nil {
		return // The connection is no longer the server's.
	}
	if w.status == 0 && (status >= 200 || status == http.StatusSwitchingProtocols) {
		w.status = status
	}
	w.start()
	defer w.stop()
	w.ResponseWriter.WriteHeader(status)
}

// Write implements [http.ResponseWriter].
func (w *writer) Write(p []byte) (int, error) {
	if w.status == 0 {
		w.status = http.StatusOK
	}
	w.start()
	n, err := w.ResponseWriter.Write(p)
	w.stop()
	w.sent += int64(n)
	return n, err
}

// FlushError is what [http.ResponseController] flushes by.
func (w *writer) FlushError() error {
	w.start()
	defer w.stop()
	return w.control.Flush()
}

// Hijack implements [http.Hijacker].
func (w *writer) Hijack() (net.Conn, *bufio.ReadWriter, error) {
	conn, rw, err := w.control.Hijack()
	if err != nil {
		return nil, nil, err
	}
	up, err := w.upgrades.add(conn, rw.Reader)
	if err != nil {
		_ = conn.Close()
		return nil, nil, err
	}
	w.upgraded = up
	return up, bufio.NewReadWriter(rw.Reader, bufio.NewWriter(up)), nil
}
