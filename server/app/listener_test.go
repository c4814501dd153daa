package app

import (
	"net"
	"testing"
)

// TestBoundedListener: connections beyond the bound are closed, and there is room again when one
// of the others has ended.
func TestBoundedListener(t *testing.T) {
	inner, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	l := &boundedListener{Listener: inner, free: make(chan struct{}, 2)}
	defer l.Close()
	accepted := make(chan net.Conn)
	ended := make(chan error, 1)
	go func() {
		for {
			c, err := l.Accept()
			if err != nil {
				ended <- err
				return
			}
			accepted <- c
		}
	}()
	dial := func() net.Conn {
		c, err := net.Dial("tcp", l.Addr().String())
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { _ = c.Close() })
		return c
	}
	dial()
	one := <-accepted
	dial()
	<-accepted
	third := dial()
	if n, err := third.Read(make([]byte, 1)); err == nil {
		t.Fatalf("the third connection is served: %d bytes", n)
	}
	for range 2 { // To close twice frees one place.
		_ = one.Close()
	}
	dial()
	<-accepted
	if n, err := dial().Read(make([]byte, 1)); err == nil {
		t.Fatalf("one too many is served: %d bytes", n)
	}
	if err := l.Close(); err != nil {
		t.Fatal(err)
	}
	if err := <-ended; err == nil {
		t.Error("it accepts after it was closed")
	}
}
