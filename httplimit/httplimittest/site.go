package httplimittest

import (
	"fmt"
	"io"
	"net/http"
	"sync/atomic"
)

// Site is what stands behind the limits. Its methods are safe for concurrent use.
type Site struct {
	served atomic.Int64
	read   chan struct{} // one for each first event that was read
	ending chan struct{} // one for each slow item that is to be answered
}

func newSite() *Site {
	return &Site{read: make(chan struct{}, 1), ending: make(chan struct{})}
}

// slow is an item whose answer waits for end.
const slow = "slow"

// Item is the answer to GET /items/{id}.
func (s *Site) Item(id string) string {
	s.served.Add(1)
	if id == slow {
		<-s.ending
	}
	return "item " + id
}

// end has one request for a slow item answered, which may still be on its way.
func (s *Site) end() { s.ending <- struct{}{} }

// Echo is called for POST /echo, which answers with the request's body.
func (s *Site) Echo() { s.served.Add(1) }

// Events writes the answer to GET /events, in two parts: the second comes only
// when the client has the first. So write must flush.
func (s *Site) Events(write func(text string) error) error {
	s.served.Add(1)
	if err := write("first\n"); err != nil {
		return err
	}
	<-s.read
	return write("last\n")
}

// ServeItem is Item for net/http and routers that set path values.
func (s *Site) ServeItem(w http.ResponseWriter, r *http.Request) {
	fmt.Fprint(w, s.Item(r.PathValue("id")))
}

// ServeEcho is Echo for net/http.
func (s *Site) ServeEcho(w http.ResponseWriter, r *http.Request) {
	s.Echo()
	// Reading the body while it is answered needs leave with HTTP/1.1, which
	// other frameworks do not have: all of it is read first.
	body, err := io.ReadAll(r.Body)
	if err != nil {
		http.Error(w, err.Error(), http.StatusBadRequest)
		return
	}
	// A client that is gone misses nothing.
	_, _ = w.Write(body)
}

// ServeEvents is Events for net/http.
func (s *Site) ServeEvents(w http.ResponseWriter, _ *http.Request) {
	// The test notices what a client does not get.
	_ = s.Events(func(text string) error {
		if _, err := io.WriteString(w, text); err != nil {
			return err
		}
		return http.NewResponseController(w).Flush()
	})
}
