package target

import (
	"bytes"
	"errors"
	"io"
	"net"
	"os"
	"sync"
	"testing"
	"time"
)

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

// TestLoneLinkFull: a text that no buffer holds arrives whole, in both directions. Both sides have
// to wait for each other many times.
func TestLoneLinkFull(t *testing.T) {
	near, far := dedicatedConns(t)
	text := make([]byte, 16<<20)
	for i := range text {
		text[i] = byte(i / 3)
	}
	for _, way := range []struct {
		name     string
		from, to net.Conn
	}{{"writing", near, far}, {"reading", far, near}} {
		var all sync.WaitGroup
		all.Go(func() {
			if n, err := way.from.Write(text); n != len(text) || err != nil {
				t.Errorf("%s: %d bytes were written, %v", way.name, n, err)
			}
		})
		got := make([]byte, len(text))
		if _, err := io.ReadFull(way.to, got); err != nil || !bytes.Equal(got, text) {
			t.Errorf("%s: something else arrived, %v", way.name, err)
		}
		all.Wait()
	}
}

// TestLoneLinkEnds: a read ends at its deadline, when the connection is closed, and when the other
// side has closed it. So does a write for which there is no room.
func TestLoneLinkEnds(t *testing.T) {
	read := func(l *dedicatedConn) error {
		_, err := l.Read(make([]byte, 1))
		return err
	}
	fill := func(l *dedicatedConn) (err error) {
		for text := make([]byte, 1<<20); err == nil; {
			_, err = l.Conn.Write(text)
		}
		return err
	}
	deadline := func(l *dedicatedConn, _ net.Conn) error { return l.SetDeadline(time.Now().Add(20 * time.Millisecond)) }
	hangUp := func(l *dedicatedConn, _ net.Conn) error { return l.Close() }
	for name, test := range map[string]struct {
		do    func(*dedicatedConn) error
		spoil func(near *dedicatedConn, far net.Conn) error
		want  error // nil: any
	}{
		"read, deadline":  {read, deadline, os.ErrDeadlineExceeded},
		"read, closed":    {read, hangUp, net.ErrClosed},
		"read, hung up":   {read, func(_ *dedicatedConn, far net.Conn) error { return far.Close() }, io.EOF},
		"write, deadline": {fill, deadline, os.ErrDeadlineExceeded},
		"write, closed":   {fill, hangUp, net.ErrClosed},
		"write, hung up":  {fill, func(_ *dedicatedConn, far net.Conn) error { return far.Close() }, nil},
	} {
		t.Run(name, func(t *testing.T) {
			near, far := dedicatedConns(t)
			ended := make(chan error)
			go func() { ended <- test.do(near) }()
			if err := test.spoil(near, far); err != nil {
				t.Error(err)
			}
			if err := <-ended; err == nil || test.want != nil && !errors.Is(err, test.want) {
				t.Errorf("got %v, want %v", err, test.want)
			}
		})
	}
}

// TestLoneLinkAllocates: a call allocates nothing here.
func TestLoneLinkAllocates(t *testing.T) {
	near, far := dedicatedConns(t)
	text, got := []byte("PING"), make([]byte, 4)
	if n := testing.AllocsPerRun(100, func() {
		if _, err := near.Write(text); err != nil {
			t.Fatal(err)
		}
		if _, err := io.ReadFull(far, got); err != nil {
			t.Fatal(err)
		}
		if _, err := far.Write(text); err != nil {
			t.Fatal(err)
		}
		if _, err := io.ReadFull(near, got); err != nil {
			t.Fatal(err)
		}
	}); n != 0 {
		t.Errorf("%v allocations", n)
	}
}
