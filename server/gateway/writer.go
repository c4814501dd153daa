package gateway

import (
	"bufio"
	"net"
	"net/http"
	"time"
)

// writer writes to the client. It counts what was sent, and gives up if the client accepts nothing.
// It belongs to an exchange and is reused with it.
type writer struct {
	http.ResponseWriter
	control   *http.ResponseController
	upgrading *upgrading
	status    int
	sent      int64
	upgraded  *upgraded // the upgraded connection; nil while it uses HTTP
	// waited is how long writes have waited for the client, if timed is set.
	timed  bool
	waited time.Duration
	// informing changes the headers of an informational answer, and reports whether the client
	// understands such answers.
	informing func(http.Header) bool

	watch  *watch
	within time.Duration // how long a write may take
	ticks  int64         // the same time in ticks
}

// begin makes the writer write to next.
func (w *writer) begin(next http.ResponseWriter) {
	w.ResponseWriter, w.control = next, http.NewResponseController(next)
	w.status, w.sent, w.upgraded, w.timed, w.waited = 0, 0, nil, false, 0
	w.watch.begin(w.control)
}

// end is called when the handler ends. flush says that the answer is complete and uses HTTP/1. end
// returns how many bytes were sent.
func (w *writer) end(flush bool) int64 {
	sent := w.sent
	switch {
	case w.upgraded != nil:
		sent = w.upgraded.sent.Load()
	case flush && w.ResponseWriter.Header()["Content-Length"] != nil:
		// Flushing leaves nothing for the server to send, because the server's own write would have
		// no time limit.
		w.start()
		_ = w.control.Flush() // it fails if the client has gone
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
		return // the connection does not belong to the server any more
	case status == http.StatusContinue:
		// The server sends this itself when the body is first read, which such an answer of the
		// upstream server causes. The client would get it twice.
		return
	case status == http.StatusSwitchingProtocols:
		// HTTP/2 has no such answer, and the exchange continues as before. For HTTP/1.1, it would
		// be the final answer.
		return
	case status < 200:
		// An informational answer is sent at once.
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

// FlushError is called by [http.ResponseController] to flush.
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
	// The answer to the upgrade does not pass through this writer.
	w.upgraded, w.status = up, http.StatusSwitchingProtocols
	return up, bufio.NewReadWriter(rw.Reader, bufio.NewWriter(up)), nil
}
