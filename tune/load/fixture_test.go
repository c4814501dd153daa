package load

import (
	"context"
	"errors"
	"log/slog"
	"net"
	"net/http"
	"sync"
	"testing"
	"time"

	"github.com/headgate/headgate/internal/bubbletest"
)

// pipes is a network within a bubble of package synctest, in which time is exact.
type pipes struct {
	conns chan net.Conn
	ended chan struct{}
	once  sync.Once
}

func (p *pipes) Accept() (net.Conn, error) {
	select {
	case c := <-p.conns:
		return c, nil
	case <-p.ended:
		return nil, net.ErrClosed
	}
}

func (p *pipes) Close() error {
	p.once.Do(func() { close(p.ended) })
	return nil
}

func (p *pipes) Addr() net.Addr { return &net.IPAddr{} }

func (p *pipes) dial(ctx context.Context) (net.Conn, error) {
	ours, theirs := net.Pipe()
	select {
	case p.conns <- theirs:
		return ours, nil
	case <-ctx.Done():
		return nil, ctx.Err()
	}
}

// bubble runs a test against a service, under a clock of its own. Naps are exact.
func bubble(t *testing.T, h http.Handler, o Options, run func(t *testing.T, c *Client)) {
	t.Helper()
	inBubble(t, serving(h), o, run)
}

// serving is a server with both versions of HTTP.
func serving(h http.Handler) *http.Server {
	s := &http.Server{Handler: h, ErrorLog: slog.NewLogLogger(slog.DiscardHandler, slog.LevelError), Protocols: new(http.Protocols)}
	s.Protocols.SetHTTP1(true)
	s.Protocols.SetUnencryptedHTTP2(true)
	return s
}

// service serves until it is closed.
type service interface {
	Serve(l net.Listener) error
	Close() error
}

// inBubble is bubble with any server.
func inBubble(t *testing.T, server service, o Options, run func(t *testing.T, c *Client)) {
	t.Helper()
	bubbletest.Test(t, func(t *testing.T) {
		p := &pipes{conns: make(chan net.Conn), ended: make(chan struct{})}
		served := make(chan error)
		go func() { served <- server.Serve(p) }()
		o.pipe = p.dial
		if o.nap == nil {
			o.nap = time.Sleep
		}
		if o.Targets == nil {
			o.Targets = []*Target{target(t, Request{URL: "http://service/"})}
		}
		c, err := New(t.Context(), o)
		if err != nil {
			t.Fatal(err)
		}
		run(t, c)
		c.Close()
		_ = server.Close() // It cuts off what is left.
		if err := <-served; !errors.Is(err, http.ErrServerClosed) && !errors.Is(err, net.ErrClosed) {
			t.Error(err)
		}
		// What the service is still busy with ends before the bubble does.
		time.Sleep(time.Hour)
	})
}

func target(t *testing.T, r Request) *Target {
	t.Helper()
	one, err := NewTarget(r)
	if err != nil {
		t.Fatal(err)
	}
	return one
}

// workers is a service that does so many requests at once, each for that long.
func workers(n int, each time.Duration) http.Handler {
	var busy chan struct{} // of the bubble that it is used in
	var made sync.Once
	return http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) {
		made.Do(func() { busy = make(chan struct{}, n) })
		select {
		case busy <- struct{}{}:
			time.Sleep(each)
			<-busy
		case <-r.Context().Done():
		}
	})
}

// near reports whether a number is within a part of what it should be.
func near(got, want, part float64) bool { return got >= want*(1-part) && got <= want*(1+part) }
