package gateway

import (
	"bufio"
	"net"
	"net/http"
	"time"
)

// writer is the way to the client: it knows what was sent, and gives up on a
// client that takes nothing. It belongs to an exchange and is used again with it.
type writer struct {
	http.ResponseWriter
	control   *http.ResponseController
	upgrading *upgrading
	status    int
	sent      int64
	upgraded  *upgraded // what the connection has become; nil if it is still HTTP
	// waited is for how long the client was waited for, if timed.
	timed  bool
	waited time.Duration
	// informing changes the headers of an informational answer, and reports whether the
	// client understands one.
	informing func(http.Header) bool

	watch  *watch
	within time.Duration // how long a write may take
	ticks  int64         // the same
}

// begin has the writer write to next.
func (w *writer) begin(next http.ResponseWriter) {
	w.ResponseWriter, w.control = next, http.NewResponseController(next)
	w.status, w.sent, w.upgraded, w.timed, w.waited = 0, 0, nil, false, 0
	w.watch.begin(w.control)
}

// end is called when the handler ends. With flush the answer is complete, and goes
// over HTTP/1. It returns how much was sent.
func (w *writer) end(flush bool) int64 {
	sent := w.sent
	switch {
	case w.upgraded != nil:
		sent = w.upgraded.sent.Load()
	case flush && w.ResponseWriter.Header()["Content-Length"] != nil:
		// Nothing is left for the server to send, then, for which it has no bound.
		w.start()
		_ = w.control.Flush() // Whoever is gone is told nothing.
		w.stop()
	default:
		_ = w.control.SetWriteDeadline(time.Now().Add(w.within))
	}
	w.watch.end()
	w.ResponseWriter, w.control, w.upgraded = nil, nil, nil
	return sent
}

func (w *writer) start() { w.watch.writeBy.Store(w.watch.of.now.Load() + w.ticks) }

func (w *writer) stop() { w.watch.writeBy.Store(0) }

// WriteHeader implements [http.ResponseWriter].
func (w *writer) WriteHeader(status int) {
	switch {
	case w.upgraded != nil:
		return // The connection is no longer the server's.
	case status == http.StatusContinue:
		// The server sends it when the body is first read, which an upstream server that
		// says so brings about; a client would get it twice.
		return
	case status == http.StatusSwitchingProtocols:
		// HTTP/2 has none, and who says so over it goes on as before. To HTTP/1.1 it would
		// be the answer.
		return
	case status < 200:
		// It is sent at once.
		if !w.informing(w.Header()) {
			return
		}
		w.start()
		defer w.stop()
	case w.status == 0:
		w.status = status
	}
	w.ResponseWriter.WriteHeader(status)
}

// Write implements [http.ResponseWriter].
func (w *writer) Write(p []byte) (int, error) {
	if w.status == 0 {
		w.status = http.StatusOK
	}
	var began time.Time
	if w.timed {
		began = time.Now()
	}
	w.start()
	n, err := w.ResponseWriter.Write(p)
	w.stop()
	if w.timed {
		w.waited += time.Since(began)
	}
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
	up, err := w.upgrading.add(conn, rw.Reader)
	if err != nil {
		_ = conn.Close()
		return nil, nil, err
	}
	// The answer itself is written past the writer.
	w.upgraded, w.status = up, http.StatusSwitchingProtocols
	return up, bufio.NewReadWriter(rw.Reader, bufio.NewWriter(up)), nil
}
