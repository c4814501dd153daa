package httplimit

import (
	"bufio"
	"errors"
	"io"
	"net"
	"net/http"
	"os"
	"sync/atomic"
	"time"

	"github.com/headgate/headgate/flow"
	"github.com/headgate/headgate/internal/admission"
)

// witness is a ResponseWriter that records what is sent. It can flush and be hijacked if the
// wrapped writer can.
type witness struct {
	http.ResponseWriter
	passage *Passage
	status  int
	bytes   int64

	// The following fields are for passages with a permit only.
	timed bool
	began time.Time
	// client is how long the server has waited for the client, in nanoseconds: for the request, and
	// for the client to take the response. A handler may do both at once.
	client  atomic.Int64
	flushed atomic.Bool
}

// patience is how long the server may wait for a client without regard to the rest of the time.
const patience = 5 * time.Millisecond

// watch makes the witness measure how long the server waits for the request's client. The request
// is the caller's own copy.
func (w *witness) watch(r *http.Request) {
	w.timed, w.began = true, time.Now()
	if r.Body != nil && r.Body != http.NoBody {
		r.Body = &watchedBody{r.Body, w}
	}
}

// waited reports whether the server waited for the client for so much of the time that the duration
// of the request says nothing about load.
func (w *witness) waited() bool {
	client := time.Duration(w.client.Load())
	return client > patience && 4*client > time.Since(w.began)
}

// now is the time, if it matters.
func (w *witness) now() (t time.Time) {
	if w.timed {
		t = time.Now()
	}
	return t
}

// since adds the time since then to the time that the server has waited for the client.
func (w *witness) since(then time.Time) {
	if w.timed {
		w.client.Add(int64(time.Since(then)))
	}
}

// watchedBody is a request body that measures how long the server waits for it.
type watchedBody struct {
	io.ReadCloser
	of *witness
}

// Read implements [io.Reader].
func (b *watchedBody) Read(p []byte) (int, error) {
	defer b.of.since(b.of.now())
	return b.ReadCloser.Read(p)
}

// Unwrap is for [http.ResponseController].
func (w *witness) Unwrap() http.ResponseWriter { return w.ResponseWriter }

// begin records the status. A response that goes on for as long as its client likes must not hold a
// permit until its end.
func (w *witness) begin(status int) {
	if w.status != 0 {
		return
	}
	w.status = status
	if w.timed && (status == http.StatusSwitchingProtocols || admission.IsEvents(w.Header()["Content-Type"])) {
		w.passage.held.Done(flow.Ignore)
	}
}

// WriteHeader implements [http.ResponseWriter].
func (w *witness) WriteHeader(status int) {
	// A status below 200 is not the final one, unless the protocol changes.
	if status >= http.StatusOK || status == http.StatusSwitchingProtocols {
		w.begin(status)
	}
	w.ResponseWriter.WriteHeader(status)
}

// Write implements [io.Writer].
func (w *witness) Write(b []byte) (int, error) {
	w.begin(http.StatusOK)
	then := w.now()
	n, err := w.ResponseWriter.Write(b)
	w.since(then)
	w.bytes += int64(n)
	return n, err
}

// ReadFrom lets the server send files as fast as it can.
func (w *witness) ReadFrom(src io.Reader) (int64, error) {
	w.begin(http.StatusOK)
	if w.timed && !isFile(src) {
		// Only writing depends on the client.
		return io.Copy(struct{ io.Writer }{w}, src)
	}
	then := w.now()
	n, err := io.Copy(w.ResponseWriter, src)
	w.since(then)
	w.bytes += n
	return n, err
}

// isFile reports whether src can be read without waiting for anybody.
func isFile(src io.Reader) bool {
	if part, ok := src.(*io.LimitedReader); ok {
		src = part.R
	}
	_, ok := src.(*os.File)
	return ok
}

// Flush implements [http.Flusher].
func (w *witness) Flush() { _ = w.FlushError() }

// FlushError is for [http.ResponseController]. To flush is to send a status.
func (w *witness) FlushError() error {
	then := w.now()
	err := http.NewResponseController(w.ResponseWriter).Flush()
	w.since(then)
	if !errors.Is(err, http.ErrNotSupported) {
		w.begin(http.StatusOK)
		w.flushed.Store(true)
	}
	return err
}

// Hijack implements [http.Hijacker].
func (w *witness) Hijack() (net.Conn, *bufio.ReadWriter, error) {
	conn, rw, err := http.NewResponseController(w.ResponseWriter).Hijack()
	if err == nil {
		w.begin(http.StatusSwitchingProtocols)
		if w.timed {
			w.passage.held.Done(flow.Ignore)
		}
	}
	return conn, rw, err
}
