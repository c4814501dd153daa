//go:build linux

package standby_test

import (
	"net"
	"os"
	"runtime"
	"sync/atomic"
	"testing"
	"time"

	"golang.org/x/sys/unix"
)

// flood answers nothing. While the pool calls it, more arrives than the pool reads at once.
type flood struct {
	near net.Conn
	end  *os.File // the pool's end of the connection
	stop *atomic.Bool
	left chan left
}

func (f *flood) Arrived(_, out []byte) (answer []byte, stay bool) {
	_ = f.fill() // An error would be seen at the other end.
	return out, true
}

func (f *flood) Left(nc net.Conn, unsent []byte) { f.left <- left{nc, unsent} }

// fill sends until more than one read of the pool has arrived, or it is told to stop.
func (f *flood) fill() error {
	const enough = 65 << 10
	raw, err := f.end.SyscallConn()
	for arrived := 0; err == nil && arrived < enough && !f.stop.Load(); {
		if e := raw.Control(func(fd uintptr) { arrived, err = unix.IoctlGetInt(int(fd), unix.TIOCINQ) }); e != nil {
			return e
		}
		if err == nil && arrived < enough {
			_, err = f.near.Write(make([]byte, 8<<10))
		}
	}
	return err
}

// TestFlood: clients of which there is always more to read do not keep the pool from answering the
// others.
func TestFlood(t *testing.T) {
	p := newPool(t, time.Hour)
	var stop atomic.Bool
	defer stop.Store(true)
	for range 2 * runtime.GOMAXPROCS(0) {
		near, far := pair(t)
		if err := far.(*net.TCPConn).SetReadBuffer(1 << 20); err != nil {
			t.Fatal(err)
		}
		end, err := far.(*net.TCPConn).File()
		if err != nil {
			t.Fatal(err)
		}
		defer end.Close()
		f := &flood{near, end, &stop, make(chan left, 1)}
		if err := f.fill(); err != nil {
			t.Fatal(err)
		}
		if !p.Enter(far, f) {
			t.Fatal("the connection was refused")
		}
	}
	other, far := pair(t)
	enter(t, p, far, 0)
	for range 10 {
		exchange(t, other, "other")
	}
}
