package target

import (
	"errors"
	"io"
	"net"
	"testing"
	"time"

	"github.com/headgate/headgate/store/redis/internal/guard"
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

// TestCallsOfAReplica: a call that is in flight on a connection to a replica may be made again when that is closed, and
// one on a connection of the same name that may lead to a primary is not.
func TestCallsOfAReplica(t *testing.T) {
	t.Parallel()
	for _, same := range []bool{true, false} {
		server := startSentinel(t, nobody) // stands in for both servers
		links := newLinks(dial)
		connect := func() net.Conn {
			c, err := links.dial(t.Context(), nil, server.address, &net.Dialer{Timeout: time.Minute}, nil)
			if err != nil {
				t.Fatal(err)
			}
			return c
		}
		refused := connect()
		inFlight := refused
		if !same {
			inFlight = connect()
		}
		if _, err := io.WriteString(refused, "*2\r\n$3\r\nGET\r\n$1\r\nk\r\n"); err != nil {
			t.Fatal(err)
		}
		if _, err := refused.Read(make([]byte, 64)); err != nil {
			t.Fatal(err)
		}
		links.dropReplica()
		_, err := inFlight.Read(make([]byte, 64))
		calls := 0
		guards := guard.New(guard.Options{Timeout: time.Minute, Most: 10})
		_, _ = guard.Patient(t.Context(), guards.Any, true, func() (int, error) {
			if calls++; calls > 1 {
				return 0, nil
			}
			return 0, err
		})
		if again := calls > 1; err == nil || again != same {
			t.Errorf("the same connection: %t; a call that ends with %v is made again: %t", same, err, again)
		}
		links.Close()
	}
}
