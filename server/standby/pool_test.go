//go:build linux

package standby_test

import (
	"bytes"
	"errors"
	"io"
	"net"
	"os"
	"runtime"
	"sync"
	"testing"
	"time"

	"go.uber.org/goleak"
	"golang.org/x/sys/unix"

	"github.com/headgate/headgate/internal/leakwait"
	"github.com/headgate/headgate/server/standby"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(leakwait.After(m, goleak.Find)) }

// echo answers with what has arrived, and leaves before a piece that begins with "leave".
type echo struct {
	repeat int // how often it is repeated
	left   chan left
}

type left struct {
	nc     net.Conn
	unsent []byte
}

func (e *echo) Arrived(data, out []byte) (answer []byte, stay bool) {
	for range max(e.repeat, 1) {
		out = append(out, data...)
	}
	return out, !bytes.HasPrefix(data, []byte("leave"))
}

func (e *echo) Left(nc net.Conn, unsent []byte) { e.left <- left{nc, unsent} }

func newPool(t *testing.T, idle time.Duration) *standby.Pool {
	t.Helper()
	p, err := standby.New(idle)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(p.Close)
	return p
}

// pair returns both ends of a connection.
func pair(t *testing.T) (near, far net.Conn) {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	if near, err = net.Dial("tcp", l.Addr().String()); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { near.Close() })
	if far, err = l.Accept(); err != nil {
		t.Fatal(err)
	}
	if err := near.SetDeadline(time.Now().Add(2 * time.Minute)); err != nil {
		t.Fatal(err)
	}
	return near, far
}

func enter(t *testing.T, p *standby.Pool, nc net.Conn, repeat int) *echo {
	t.Helper()
	e := &echo{repeat, make(chan left, 1)}
	if !p.Enter(nc, e) {
		t.Fatal("the connection was refused")
	}
	return e
}

func exchange(t *testing.T, nc net.Conn, text string) {
	t.Helper()
	if _, err := io.WriteString(nc, text); err != nil {
		t.Fatal(err)
	}
	got := make([]byte, len(text))
	if _, err := io.ReadFull(nc, got); err != nil || string(got) != text {
		t.Fatalf("the answer is %q, %v", got, err)
	}
}

func (e *echo) wait(t *testing.T) left {
	t.Helper()
	select {
	case l := <-e.left:
		return l
	case <-time.After(2 * time.Minute):
		t.Fatal("the member has not left")
		return left{}
	}
}

// TestLeave: a member that leaves has its connection as before, may enter again with it, and leaves
// when the other end goes.
func TestLeave(t *testing.T) {
	p := newPool(t, time.Hour)
	near, far := pair(t)
	// What has arrived before is not lost.
	if _, err := io.WriteString(near, "before"); err != nil {
		t.Fatal(err)
	}
	e := enter(t, p, far, 0)
	if got, err := io.ReadAll(io.LimitReader(near, 6)); err != nil || string(got) != "before" {
		t.Fatalf("the answer is %q, %v", got, err)
	}
	for range 3 {
		exchange(t, near, "stay")
		exchange(t, near, "leave")
		l := e.wait(t)
		if l.nc.LocalAddr().String() != near.RemoteAddr().String() || l.nc.RemoteAddr().String() != near.LocalAddr().String() {
			t.Errorf("the connection is from %v to %v", l.nc.LocalAddr(), l.nc.RemoteAddr())
		}
		go func() { _, _ = io.CopyN(l.nc, l.nc, 4) }() // an error would be seen at the other end
		exchange(t, near, "once")
		if err := l.nc.SetReadDeadline(time.Unix(1, 0)); err != nil {
			t.Error(err)
		}
		_, err := l.nc.Read(make([]byte, 1))
		if of, ok := err.(net.Error); !ok || !of.Timeout() || !errors.Is(err, os.ErrDeadlineExceeded) { //nolint:errorlint // Net/http looks no further.
			t.Errorf("after the deadline: %T %v", err, err)
		}
		e = enter(t, p, l.nc, 0)
	}
	near.Close()
	if l := e.wait(t); l.nc != nil {
		t.Error("the other end has gone, and there is a connection")
	}
}

// TestHalfClosed: a connection that has left can say that nothing more comes.
func TestHalfClosed(t *testing.T) {
	p := newPool(t, time.Hour)
	near, far := pair(t)
	e := enter(t, p, far, 0)
	exchange(t, near, "leave")
	l := e.wait(t)
	defer l.nc.Close()
	if err := l.nc.(interface{ CloseWrite() error }).CloseWrite(); err != nil {
		t.Fatal(err)
	}
	if n, err := near.Read(make([]byte, 1)); !errors.Is(err, io.EOF) {
		t.Errorf("%d bytes, %v", n, err)
	}
}

// TestLast: data with which the client ends the connection is answered, and then the connection is
// closed. All has arrived before the connection enters, so that the pool sees one event.
func TestLast(t *testing.T) {
	p := newPool(t, time.Hour)
	near, far := pair(t)
	if _, err := io.WriteString(near, "last"); err != nil {
		t.Fatal(err)
	}
	if err := near.(*net.TCPConn).CloseWrite(); err != nil {
		t.Fatal(err)
	}
	e := enter(t, p, far, 0)
	if got, err := io.ReadAll(near); err != nil || string(got) != "last" {
		t.Errorf("the answer is %q, %v", got, err)
	}
	if l := e.wait(t); l.nc != nil {
		t.Error("there is a connection")
	}
}

// TestMuch: data that needs several reads is answered, although the pool sees one event.
func TestMuch(t *testing.T) {
	p := newPool(t, time.Hour)
	near, far := pair(t)
	sent := bytes.Repeat([]byte("0123456789abcdef"), 6<<10) // The sockets' buffers take as much.
	if _, err := near.Write(sent); err != nil {
		t.Fatal(err)
	}
	e := enter(t, p, far, 0)
	got := make([]byte, len(sent))
	if n, err := io.ReadFull(near, got); err != nil || !bytes.Equal(got, sent) {
		t.Errorf("%d bytes arrived, %v", n, err)
	}
	near.Close()
	e.wait(t)
}

// TestUrgent: a read ends before urgent data. What comes behind it is answered all the same.
func TestUrgent(t *testing.T) {
	p := newPool(t, time.Hour)
	near, far := pair(t)
	raw, err := near.(*net.TCPConn).SyscallConn()
	if err != nil {
		t.Fatal(err)
	}
	for _, piece := range []struct {
		text  string
		flags int
	}{{"before", 0}, {"!", unix.MSG_OOB}, {"behind", 0}} {
		if e := raw.Control(func(fd uintptr) { err = unix.Sendto(int(fd), []byte(piece.text), piece.flags, nil) }); e != nil || err != nil {
			t.Fatal(e, err)
		}
	}
	e := enter(t, p, far, 0)
	const want = "beforebehind"
	got := make([]byte, len(want))
	if n, err := io.ReadFull(near, got); err != nil || string(got) != want {
		t.Errorf("the answer is %q, %v", got[:n], err)
	}
	near.Close()
	e.wait(t)
}

// slow does not answer before it may.
type slow struct {
	echo
	began chan struct{} // It has room for every piece.
	may   chan struct{}
}

func (s *slow) Arrived(data, out []byte) (answer []byte, stay bool) {
	s.began <- struct{}{}
	<-s.may
	return s.echo.Arrived(data, out)
}

// TestLarge: while a member answers a large piece, the others do not wait for it.
func TestLarge(t *testing.T) {
	defer runtime.GOMAXPROCS(runtime.GOMAXPROCS(max(2, runtime.GOMAXPROCS(0))))
	p := newPool(t, time.Hour)
	other, end := pair(t)
	e := enter(t, p, end, 0)
	exchange(t, other, "stay")
	near, far := pair(t)
	s := &slow{echo{0, make(chan left, 1)}, make(chan struct{}, 4<<10), make(chan struct{})}
	if !p.Enter(far, s) {
		t.Fatal("the connection was refused")
	}
	text := bytes.Repeat([]byte("x"), 4<<10)
	if _, err := near.Write(text); err != nil {
		t.Fatal(err)
	}
	<-s.began
	for range 3 {
		exchange(t, other, "stay")
	}
	close(s.may)
	if n, err := io.ReadFull(near, make([]byte, len(text))); err != nil {
		t.Errorf("%d bytes arrived, %v", n, err)
	}
	near.Close()
	other.Close()
	s.wait(t)
	e.wait(t)
}

// TestUnsent: what the other end does not take leaves with the member, and nobody waits for it.
func TestUnsent(t *testing.T) {
	p := newPool(t, time.Hour)
	near, far := pair(t)
	const repeat = 100_000
	e := enter(t, p, far, repeat)
	const text = "0123456789012345678901234567890123456789012345678901234567890123456789012345678901234567890123456789"
	if _, err := io.WriteString(near, text); err != nil {
		t.Fatal(err)
	}
	l := e.wait(t)
	if len(l.unsent) == 0 || l.nc == nil {
		t.Fatal("all was sent")
	}
	// The others go on meanwhile.
	for range runtime.GOMAXPROCS(0) {
		other, end := pair(t)
		defer func(e *echo) { other.Close(); e.wait(t) }(enter(t, p, end, 0))
		exchange(t, other, "other")
	}
	go func() {
		defer l.nc.Close()
		_, _ = l.nc.Write(l.unsent) // an error would be seen at the other end
	}()
	got, err := io.ReadAll(near)
	if err != nil || !bytes.Equal(got, bytes.Repeat([]byte(text), repeat)) {
		t.Errorf("%d bytes arrived, %v", len(got), err)
	}
}

// TestSilent: a connection on which nothing arrives is closed in time.
func TestSilent(t *testing.T) {
	p := newPool(t, 50*time.Millisecond)
	silent, far := pair(t)
	e := enter(t, p, far, 0)
	if n, err := silent.Read(make([]byte, 1)); !errors.Is(err, io.EOF) {
		t.Errorf("%d bytes, %v", n, err)
	}
	if l := e.wait(t); l.nc != nil {
		t.Error("there is a connection")
	}
}

// TestClose: all members leave, and nobody can enter any more.
func TestClose(t *testing.T) {
	p := newPool(t, time.Hour)
	var members []*echo
	for range 20 {
		near, far := pair(t)
		members = append(members, enter(t, p, far, 0))
		exchange(t, near, "stay")
	}
	p.Close()
	for _, e := range members {
		l := e.wait(t)
		if l.nc == nil {
			t.Fatal("the connection was closed")
		}
		l.nc.Close()
	}
	near, far := pair(t)
	if p.Enter(far, &echo{}) {
		t.Error("a member has entered")
	}
	go func() { _, _ = io.Copy(far, far); far.Close() }() // an error would be seen at the other end
	exchange(t, near, "as before")
	near.Close()
	p.Close()
}

// TestRefused: what is no connection of the system's is left as it is.
func TestRefused(t *testing.T) {
	p := newPool(t, time.Hour)
	near, far := net.Pipe()
	defer near.Close()
	if p.Enter(far, &echo{}) {
		t.Error("a pipe has entered")
	}
	far.Close()
}

// TestMany: connections that come, leave, return and go do not disturb each other, and those that
// wait have no goroutine.
func TestMany(t *testing.T) {
	p := newPool(t, time.Hour)
	var all sync.WaitGroup
	for range 40 {
		near, far := pair(t)
		all.Go(func() {
			for range 10 {
				e := enter(t, p, far, 0)
				for range 20 {
					exchange(t, near, "stay")
				}
				exchange(t, near, "leave")
				far = e.wait(t).nc
			}
			near.Close()
			far.Close()
		})
	}
	all.Wait()
	before := runtime.NumGoroutine()
	for range 200 {
		_, far := pair(t)
		enter(t, p, far, 0)
	}
	if n := runtime.NumGoroutine(); n > before+20 {
		t.Errorf("there are %d goroutines, and were %d before 200 connections", n, before)
	}
}
