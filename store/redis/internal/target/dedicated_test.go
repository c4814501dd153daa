package target

import (
	"errors"
	"io"
	"net"
	"testing"
	"time"
)

// TestDedicatedConn: a dedicated connection is written to while there is nothing to read, and no more
// once the other side has closed it or has sent what nobody asked for.
func TestDedicatedConn(t *testing.T) {
	for name, spoil := range map[string]func(far net.Conn) error{
		"closed":  net.Conn.Close,
		"unasked": func(far net.Conn) error { _, err := far.Write([]byte("-ERR idle\r\n")); return err },
	} {
		t.Run(name, func(t *testing.T) {
			near, far := dedicatedConns(t)
			for _, text := range []string{"one", "two"} {
				got := make([]byte, len(text))
				if _, err := near.Write([]byte(text)); err != nil {
					t.Fatal(err)
				}
				if _, err := io.ReadFull(far, got); err != nil || string(got) != text {
					t.Fatalf("got %q and %v, want %q", got, err, text)
				}
				if _, err := far.Write(got); err != nil {
					t.Fatal(err)
				}
				if _, err := io.ReadFull(near, got); err != nil {
					t.Fatal(err)
				}
			}
			if err := spoil(far); err != nil {
				t.Fatal(err)
			}
			n, err := 1, error(nil)
			for end := time.Now().Add(2 * time.Minute); err == nil && time.Now().Before(end); {
				n, err = near.Write([]byte("three")) // what was sent may take its time to come
			}
			if n != 0 || !errors.Is(err, ErrGone) {
				t.Errorf("wrote %d bytes with %v, want none and ErrGone", n, err)
			}
		})
	}
}

// dedicatedConns returns both ends of a connection. The near one is a dedicated link.
func dedicatedConns(t *testing.T) (near *dedicatedConn, far net.Conn) {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	dialed, err := net.Dial("tcp", l.Addr().String())
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { dialed.Close() })
	if far, err = l.Accept(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { far.Close() })
	return newDedicatedConn(dialed), far
}
