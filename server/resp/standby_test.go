package resp

import (
	"errors"
	"net"
	"runtime"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/headgate/headgate/server/standby"
	"github.com/headgate/headgate/store/memory"
)

// TestStandbyFails: without a standby each connection has a goroutine, and a further listener does
// not try again, while connections of the first one look whether there is a standby.
func TestStandbyFails(t *testing.T) {
	s := New(over(samplePolicy(t), memory.New()), Options{Instant: true})
	var tried atomic.Int32
	s.newStandby = func(idle time.Duration) (*standby.Pool, error) {
		if tried.Add(1) == 1 {
			return nil, errors.New("no epoll")
		}
		return standby.New(idle)
	}
	served := make(chan error, 2)
	for range 2 {
		l, err := net.Listen("tcp", "127.0.0.1:0")
		if err != nil {
			t.Fatal(err)
		}
		go func() { served <- s.Serve(l) }()
		c := dial(t, l.Addr().String())
		for range settled + 2 {
			c.write(wire("PING"))
			if got := c.answer(); got != "+PONG" {
				t.Errorf("answered %s", got)
			}
		}
	}
	if err := s.Close(); err != nil {
		t.Error(err)
	}
	for range 2 {
		if err := <-served; err != nil {
			t.Error(err)
		}
	}
	s.running.Wait()
	if n := tried.Load(); n != 1 {
		t.Errorf("a standby was tried %d times", n)
	}
}

// TestLeavesAndReturns: commands that are not for the standby, and those that arrive in pieces, are
// answered as all others are, and what follows them, too.
func TestLeavesAndReturns(t *testing.T) {
	_, addr := start(t, over(samplePolicy(t), memory.New()), Options{})
	c := dial(t, addr)
	for range 3 {
		// Three commands in one piece, of which the one in the middle makes it leave.
		c.write(wire("ECHO", "one") + wire("HG.RULES") + wire("ECHO", "two"))
		if got := c.answer(); got != "one" {
			t.Fatalf("answered %s", got)
		}
		if got := c.answer(); !strings.HasPrefix(got, "[version 1 ") {
			t.Fatalf("answered %s", got)
		}
		if got := c.answer(); got != "two" {
			t.Fatalf("answered %s", got)
		}
		for range settled + 2 {
			c.write(wire("PING"))
			if got := c.answer(); got != "+PONG" {
				t.Fatalf("answered %s", got)
			}
		}
		command := wire("ECHO", "three")
		c.write(command[:8])
		runtime.Gosched()
		c.write(command[8:])
		if got := c.answer(); got != "three" {
			t.Fatalf("answered %s", got)
		}
		for range settled + 2 {
			c.write(wire("PING"))
			if got := c.answer(); got != "+PONG" {
				t.Fatalf("answered %s", got)
			}
		}
	}
}

// TestMuchAtOnce: more answers than are sent at once, to somebody who reads slowly.
func TestMuchAtOnce(t *testing.T) {
	_, addr := start(t, over(samplePolicy(t), memory.New()), Options{})
	c := dial(t, addr)
	const n, each = 4000, 2000
	long := strings.Repeat("x", each)
	go func() {
		all := strings.Repeat(wire("ECHO", long), n)
		_, _ = c.Write([]byte(all)) // The answers would be missing.
	}()
	for i := range n {
		if got := c.answer(); got != long {
			t.Fatalf("answer %d is %.20s…", i, got)
		}
	}
}
