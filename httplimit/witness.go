package httplimit

import (
	"bufio"
	"errors"
	"io"
	"net"
	"net/http"
	"os"
	"strings"
	"sync/atomic"
	"time"

	"github.com/headgate/headgate/flow"
)

// witness is a ResponseWriter that notes what is sent. It can flush and be hijacked
// if what it wraps can.
type witness struct {
	http.ResponseWriter
	passage *Passage
	status  int
	bytes   int64

	// What follows is for passages with a permit only.
	timed bool
	began time.Time
	// client is for how long the client was waited for, in nanoseconds: to send its
	// request, and to take the response. A handler may do both at once.
	client  atomic.Int64
	flushed atomic.Bool
}

// patience is how long a client may be waited for in any case.
const patience = 5 * time.Millisecond

// watch has the time noted that the client of the request takes. The request is the
// caller's own copy.
func (w *witness) watch(r *http.Request) {
	w.timed, w.began = true, time.Now()
	if r.Body != nil && r.Body != http.NoBody {
		r.Body = &watchedBody{r.Body, w}
	}
}

// waited reports whether the client has had so much of the time that how long the request
// took says nothing about the server.
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

// since notes that the client was waited for since then.
func (w *witness) since(then time.Time) {
	if w.timed {
		w.client.Add(int64(time.Since(then)))
	}
}

// watchedBody is the body of a request whose client is waited for.
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

// begin notes the status. A response that goes on for as long as its client likes must not
// hold a permit until then.
func (w *witness) begin(status int) {
	if w.status != 0 {
		return
	}
	w.status = status
	if w.timed && (status == http.StatusSwitchingProtocols || isStream(w.Header())) {
		w.passage.held.Done(flow.Ignore)
	}
}

// isStream reports whether a response is one of server-sent events.
func isStream(h http.Header) bool {
	return len(h["Content-Type"]) > 0 && strings.HasPrefix(h["Content-Type"][0], "text/event-stream")
}

// WriteHeader implements [http.ResponseWriter].
func (w *witness) WriteHeader(status int) {
	// What comes before 200 is not the end, unless the protocol changes.
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
		// Only the writing is up to the client.
		return io.Copy(struct{ io.Writer }{w}, src)
	}
	then := w.now()
	n, err := io.Copy(w.ResponseWriter, src)
	w.since(then)
	w.bytes += n
	return n, err
}

// isFile reports whether nobody has to be waited for to read from src.
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
