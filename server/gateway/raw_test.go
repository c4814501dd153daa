package gateway

import (
	"bufio"
	"io"
	"net"
	"testing"
	"time"
)

// dial opens a connection that ends with the test.
func dial(t *testing.T, addr string) net.Conn {
	t.Helper()
	c, err := net.DialTimeout("tcp", addr, within)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = c.Close() })
	if err := c.SetDeadline(time.Now().Add(within)); err != nil {
		t.Fatal(err)
	}
	return c
}

// raw sends these very bytes, and returns what is answered.
func raw(t *testing.T, addr, text string) *bufio.Reader {
	t.Helper()
	c := dial(t, addr)
	if _, err := io.WriteString(c, text); err != nil {
		t.Fatal(err)
	}
	return bufio.NewReader(c)
}
