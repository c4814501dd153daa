package keepalive

import (
	"io"
	"maps"
	"net/http"
)

// serveHTTP serves a request that net/http has read. After enough plain requests in a row it takes
// the connection from net/http, and sends the answer itself.
func (s *Server) serveHTTP(w http.ResponseWriter, r *http.Request) {
	c, ok := r.Context().Value(connKey{}).(*conn)
	switch {
	case !ok || s.pool == nil:
	case !s.plain(r):
		c.penalty = max(c.penalty, again)
	case c.penalty > 0:
		c.penalty--
	default:
		s.settle(c, w, r)
		return
	}
	s.next.ServeHTTP(w, r)
}

// plain reports whether the request is one that could be answered on standby if it arrived there
// complete.
func (s *Server) plain(r *http.Request) bool {
	return r.Method == http.MethodPost && r.ProtoMajor == 1 && r.ProtoMinor == 1 && r.ContentLength > 0 && r.ContentLength < most &&
		!r.Close && r.TLS == nil && r.Header["Expect"] == nil && r.Header["Upgrade"] == nil && s.instant(r.URL.Path)
}

// settle answers a plain request, and then puts the connection on standby.
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
	defer s.running.Done() // Net/http does not wait for a hijacked connection.
	nc, buffered, err := http.NewResponseController(w).Hijack()
	if err != nil {
		a.copyTo(w)
		return
	}
	// Peeking only at what is buffered cannot fail.
	rest, _ := buffered.Reader.Peek(buffered.Reader.Buffered())
	var out []byte
	out, c.last = a.appendTo(nil)
	c.conclude(nc, out, rest)
}

// wholeBody records whether a body was read to its end.
type wholeBody struct {
	io.ReadCloser
	read bool
}

func (b *wholeBody) Read(p []byte) (int, error) {
	n, err := b.ReadCloser.Read(p)
	b.read = b.read || err == io.EOF
	return n, err
}

// copyTo sends the answer through net/http instead of on standby.
func (a *answer) copyTo(w http.ResponseWriter) {
	maps.Copy(w.Header(), a.Header())
	if a.status != 0 {
		w.WriteHeader(a.status)
	}
	_, _ = w.Write(a.body) // An error has no consequence: the client may be gone.
}
