package keepalive

import (
	"io"
	"maps"
	"net/http"
)

// serveHTTP serves what net/http has read. After enough plain requests in a row, the connection is
// taken from net/http together with the answer.
func (s *Server) serveHTTP(w http.ResponseWriter, r *http.Request) {
	c, ok := r.Context().Value(connKey{}).(*conn)
	switch {
	case !ok || s.pool == nil:
	case !s.plain(r):
		c.owed = max(c.owed, again)
	case c.owed > 0:
		c.owed--
	default:
		s.settle(c, w, r)
		return
	}
	s.next.ServeHTTP(w, r)
}

// plain reports whether the request is one that can be answered on standby, if it arrives there as
// a whole.
func (s *Server) plain(r *http.Request) bool {
	return r.Method == http.MethodPost && r.ProtoMajor == 1 && r.ProtoMinor == 1 && r.ContentLength > 0 && r.ContentLength < most &&
		!r.Close && r.TLS == nil && r.Header["Expect"] == nil && r.Header["Upgrade"] == nil && s.instant(r.URL.Path)
}

// settle answers a plain request, and has the connection wait for the next one on standby.
func (s *Server) settle(c *conn, w http.ResponseWriter, r *http.Request) {
	var a answer
	whole := &wholeBody{ReadCloser: r.Body}
	r.Body = whole
	s.next.ServeHTTP(&a, r)
	if !whole.read || a.Header().Get("Connection") != "" {
		a.copyTo(w)
		return
	}
	if !s.begin() {
		a.copyTo(w)
		return
	}
	defer s.running.Done() // Net/http waits no longer for a connection that was taken from it.
	nc, buffered, err := http.NewResponseController(w).Hijack()
	if err != nil {
		a.copyTo(w)
		return
	}
	// So many bytes are there already.
	rest, _ := buffered.Reader.Peek(buffered.Reader.Buffered())
	var out []byte
	out, c.last = a.appendTo(nil)
	c.conclude(nc, out, rest)
}

// wholeBody notes whether a body was read to its end.
type wholeBody struct {
	io.ReadCloser
	read bool
}

func (b *wholeBody) Read(p []byte) (int, error) {
	n, err := b.ReadCloser.Read(p)
	b.read = b.read || err == io.EOF
	return n, err
}

// copyTo answers by way of net/http after all.
func (a *answer) copyTo(w http.ResponseWriter) {
	maps.Copy(w.Header(), a.Header())
	if a.status != 0 {
		w.WriteHeader(a.status)
	}
	_, _ = w.Write(a.body) // The caller may be gone; there is nobody to tell.
}
