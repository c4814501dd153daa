package socket_test

import (
	"bytes"
	"crypto/tls"
	"errors"
	"io"
	"net"
	"os"
	"path/filepath"
	"sync"
	"testing"
	"time"

	"github.com/headgate/headgate/internal/socket"
)

// pair returns both ends of a connection of a network. The near one is a socket.
func pair(t *testing.T, network string) (near, far net.Conn) {
	t.Helper()
	address := "127.0.0.1:0"
	if network == "unix" {
		address = filepath.Join(t.TempDir(), "socket")
	}
	l, err := net.Listen(network, address)
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	dialed, err := net.Dial(network, l.Addr().String())
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { dialed.Close() })
	if far, err = l.Accept(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { far.Close() })
	return socket.New(dialed), far
}

// TestOthers: what is no socket of the system stays as it is.
func TestOthers(t *testing.T) {
	near, far := net.Pipe()
	defer near.Close()
	defer far.Close()
	for _, c := range []net.Conn{near, tls.Client(near, nil)} {
		if got := socket.New(c); got != c {
			t.Errorf("%T became %T", c, got)
		}
	}
}

// TestCloseWrite: what was sent is read to its end, and the answer arrives after that.
func TestCloseWrite(t *testing.T) {
	near, far := pair(t, "tcp")
	if _, err := near.Write([]byte("request")); err != nil {
		t.Fatal(err)
	}
	if err := near.(interface{ CloseWrite() error }).CloseWrite(); err != nil {
		t.Fatal(err)
	}
	if got, err := io.ReadAll(far); string(got) != "request" || err != nil {
		t.Errorf("got %q, %v", got, err)
	}
	if _, err := far.Write([]byte("answer")); err != nil {
		t.Fatal(err)
	}
	far.Close()
	if got, err := io.ReadAll(near); string(got) != "answer" || err != nil {
		t.Errorf("got %q, %v", got, err)
	}
}

// TestFull: a text that no buffer holds arrives whole, in both directions. Both sides have
// to wait for each other many times.
func TestFull(t *testing.T) {
	for _, network := range []string{"tcp", "unix"} {
		t.Run(network, func(t *testing.T) { full(t, network) })
	}
}

func full(t *testing.T, network string) {
	near, far := pair(t, network)
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

// TestEnds: a read ends at its deadline, when the connection is closed, and when the other
// side has closed it. So does a write for which there is no room.
func TestEnds(t *testing.T) {
	read := func(l net.Conn) error {
		_, err := l.Read(make([]byte, 1))
		return err
	}
	fill := func(l net.Conn) (err error) {
		for text := make([]byte, 1<<20); err == nil; {
			_, err = l.Write(text)
		}
		return err
	}
	deadline := func(l net.Conn, _ net.Conn) error { return l.SetDeadline(time.Now().Add(20 * time.Millisecond)) }
	hangUp := func(l net.Conn, _ net.Conn) error { return l.Close() }
	for name, test := range map[string]struct {
		do    func(net.Conn) error
		spoil func(near net.Conn, far net.Conn) error
		want  error // nil: any
	}{
		"read, deadline":  {read, deadline, os.ErrDeadlineExceeded},
		"read, closed":    {read, hangUp, net.ErrClosed},
		"read, hung up":   {read, func(_ net.Conn, far net.Conn) error { return far.Close() }, io.EOF},
		"write, deadline": {fill, deadline, os.ErrDeadlineExceeded},
		"write, closed":   {fill, hangUp, net.ErrClosed},
		"write, hung up":  {fill, func(_ net.Conn, far net.Conn) error { return far.Close() }, nil},
	} {
		t.Run(name, func(t *testing.T) {
			near, far := pair(t, "tcp")
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

// TestAllocates: a message and its answer allocate nothing.
func TestAllocates(t *testing.T) {
	near, far := pair(t, "tcp")
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
