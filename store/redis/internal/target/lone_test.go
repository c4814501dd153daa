package target

import (
	"errors"
	"io"
	"net"
	"testing"
	"time"
)

// TestLoneLink: a lone connection is written to while there is nothing to read, and no more once
// the other side has closed it or has sent what nobody asked for.
func TestLoneLink(t *testing.T) {
	for name, spoil := range map[string]func(far net.Conn) error{
		"closed":  net.Conn.Close,
		"unasked": func(far net.Conn) error { _, err := far.Write([]byte("-ERR idle\r\n")); return err },
	} {
		t.Run(name, func(t *testing.T) {
			l, err := net.Listen("tcp", "127.0.0.1:0")
			if err != nil {
				t.Fatal(err)
			}
			defer l.Close()
			near, err := net.Dial("tcp", l.Addr().String())
			if err != nil {
				t.Fatal(err)
			}
			defer near.Close()
			far, err := l.Accept()
			if err != nil {
				t.Fatal(err)
			}
			defer far.Close()
			link := newLoneLink(near)
			for _, text := range []string{"one", "two"} {
				got := make([]byte, len(text))
				if _, err := link.Write([]byte(text)); err != nil {
					t.Fatal(err)
				}
				if _, err := io.ReadFull(far, got); err != nil || string(got) != text {
					t.Fatalf("got %q and %v, want %q", got, err, text)
				}
				if _, err := far.Write(got); err != nil {
					t.Fatal(err)
				}
				if _, err := io.ReadFull(link, got); err != nil {
					t.Fatal(err)
				}
			}
			if err := spoil(far); err != nil {
				t.Fatal(err)
			}
			n := 1
			for end := time.Now().Add(2 * time.Minute); err == nil && time.Now().Before(end); {
				n, err = link.Write([]byte("three")) // what was sent may take its time to come
			}
			if n != 0 || !errors.Is(err, ErrGone) {
				t.Errorf("wrote %d bytes with %v, want none and ErrGone", n, err)
			}
		})
	}
}
