package target

import (
	"errors"
	"io"
	"net"
	"testing"
	"time"
)

// TestLinksClose: what a client has forgotten is closed, and nothing is connected afterwards.
func TestLinksClose(t *testing.T) {
	var listening net.ListenConfig
	l, err := listening.Listen(t.Context(), "tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	links := newLinks(dial)
	connect := func() (net.Conn, error) {
		return links.dial(t.Context(), nil, l.Addr().String(), &net.Dialer{Timeout: time.Minute}, nil)
	}
	forgotten, err := connect()
	if err != nil {
		t.Fatal(err)
	}
	closed, err := connect()
	if err != nil {
		t.Fatal(err)
	}
	if err := closed.Close(); err != nil {
		t.Fatal(err)
	}
	links.Close()
	if err := forgotten.SetDeadline(time.Now().Add(time.Minute)); !errors.Is(err, net.ErrClosed) {
		t.Errorf("the forgotten connection takes a deadline: %v", err)
	}
	for range 2 { // the server's side of both
		c, err := l.Accept()
		if err != nil {
			t.Fatal(err)
		}
		defer c.Close()
		if err := c.SetDeadline(time.Now().Add(time.Minute)); err != nil {
			t.Fatal(err)
		}
		if _, err := io.Copy(io.Discard, c); err != nil {
			t.Errorf("a connection was left open: %v", err)
		}
	}
	if c, err := connect(); err == nil {
		t.Errorf("connected to %v after Close", c.RemoteAddr())
	}
	if len(links.open) != 0 {
		t.Errorf("%d connections are kept", len(links.open))
	}
}
