package standby

import (
	"errors"
	"net"
	"os"
	"runtime"
	"slices"
	"sync"
	"syscall"
	"time"

	"golang.org/x/sys/unix"
)

// Pool holds connections that wait for their next request. It is safe for concurrent use; make one
// with [New].
type Pool struct {
	idle  time.Duration
	epoll int // the descriptor of the epoll that has all connections
	bell  int // the descriptor of an eventfd in the epoll; Close writes to it to end the waiting

	ended  sync.WaitGroup // the loops and the watch
	help   chan struct{}  // wakes a loop that rests; has room for an element for each loop
	ending chan struct{}  // closed by Close
	finish sync.Once

	mu      sync.Mutex // guards what follows, and the state of memberships
	closing bool
	waiting bool                  // A loop waits for events, or is about to.
	resting int                   // loops that rest and were not woken
	members map[int32]*membership // by the file descriptor
	queue   queue                 // connections on which something has arrived
	round   int                   // the number of steps of the idle time so far
}

// membership is a connection in the pool.
type membership struct {
	Member
	fd            int
	local, remote net.Addr

	// The pool's mutex guards what follows.
	state state
	// drain is set if data may be left after a read that did not fill the buffer: the client has
	// closed its side, or has sent urgent data. Then the connection is served until nothing is left.
	drain bool
	round int         // the pool's round when something arrived last
	next  *membership // the one behind it in the queue
}

// state says who has a connection. Only the loop or the watch that has made it busy may use the
// descriptor.
type state uint8

const (
	quiet     state = iota // Nothing has arrived.
	queued                 // It is in the queue.
	busy                   // A loop or the watch has it.
	busyAgain              // As busy, and something has arrived since.
)

// New returns a pool that closes a connection when nothing has arrived on it for the duration idle.
// The pool runs until Close.
func New(idle time.Duration) (*Pool, error) {
	epoll, err := unix.EpollCreate1(unix.EPOLL_CLOEXEC)
	if err != nil {
		return nil, os.NewSyscallError("epoll_create1", err)
	}
	bell, err := unix.Eventfd(0, unix.EFD_CLOEXEC|unix.EFD_NONBLOCK)
	if err != nil {
		return nil, errors.Join(os.NewSyscallError("eventfd", err), unix.Close(epoll))
	}
	if err := unix.EpollCtl(epoll, unix.EPOLL_CTL_ADD, bell, &unix.EpollEvent{Events: unix.EPOLLIN, Fd: int32(bell)}); err != nil {
		return nil, errors.Join(os.NewSyscallError("epoll_ctl", err), unix.Close(bell), unix.Close(epoll))
	}
	loops := runtime.GOMAXPROCS(0)
	p := &Pool{
		idle: idle, epoll: epoll, bell: bell,
		help: make(chan struct{}, loops), ending: make(chan struct{}),
		members: make(map[int32]*membership),
	}
	for range loops {
		l := &loop{Pool: p, events: make([]unix.EpollEvent, batch), in: make([]byte, buffer)}
		p.ended.Go(l.run)
	}
	p.ended.Go(p.watch)
	return p, nil
}

// Close makes all connections leave the pool, and waits for its goroutines to end.
func (p *Pool) Close() {
	p.finish.Do(func() {
		p.mu.Lock()
		p.closing = true
		p.mu.Unlock()
		close(p.ending)
		_, _ = unix.Write(p.bell, []byte{1, 0, 0, 0, 0, 0, 0, 0}) // The first write cannot block.
		p.ended.Wait()
		for _, m := range p.members {
			p.leave(m, nil)
		}
		p.members = nil
		_, _ = unix.Close(p.bell), unix.Close(p.epoll) // Nothing was written, so nothing can be lost.
	})
}

// Enter puts a connection into the pool and reports whether it did. It fails if the connection is
// not a plain one of the operating system, such as one with TLS, or if the pool is closed. On
// success the pool uses a duplicate of the file descriptor, and nc itself is closed.
func (p *Pool) Enter(nc net.Conn, m Member) bool {
	of, ok := nc.(syscall.Conn)
	if !ok {
		return false
	}
	raw, err := of.SyscallConn()
	if err != nil {
		return false
	}
	// Go's poller would be woken too as long as it knows the file descriptor, hence the duplicate.
	fd := -1
	if raw.Control(func(old uintptr) { fd, err = unix.FcntlInt(old, unix.F_DUPFD_CLOEXEC, 0) }) != nil || err != nil {
		return false
	}
	if !p.enter(&membership{Member: m, fd: fd, local: nc.LocalAddr(), remote: nc.RemoteAddr()}, nc) {
		_ = unix.Close(fd)
		return false
	}
	return true
}

func (p *Pool) enter(m *membership, nc net.Conn) bool {
	// Each arrival is reported once, to one loop. Without EPOLLET the kernel would report it to every
	// loop that asks, until one of them has read it.
	const events = unix.EPOLLIN | unix.EPOLLRDHUP | unix.EPOLLPRI | unix.EPOLLET
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.closing {
		return false
	}
	m.round = p.round
	if unix.EpollCtl(p.epoll, unix.EPOLL_CTL_ADD, m.fd, &unix.EpollEvent{Events: events, Fd: int32(m.fd)}) != nil {
		return false
	}
	p.members[int32(m.fd)] = m
	_ = nc.Close() // The connection lives on under the duplicate descriptor.
	return true
}

// leave takes the connection out of the epoll and returns it to the member.
func (p *Pool) leave(m *membership, unsent []byte) {
	// Closing a descriptor would remove it from the epoll, but this one stays open.
	_ = unix.EpollCtl(p.epoll, unix.EPOLL_CTL_DEL, m.fd, nil)
	m.Left(&conn{file: os.NewFile(uintptr(m.fd), "tcp"), local: m.local, remote: m.remote}, slices.Clone(unsent))
}

// forget removes a membership. The caller has made it busy, and it stays so: nobody serves it
// again.
func (p *Pool) forget(m *membership) {
	p.mu.Lock()
	defer p.mu.Unlock()
	delete(p.members, int32(m.fd))
}

// close removes a member and closes its connection.
func (p *Pool) close(m *membership) {
	p.forget(m)
	_ = unix.Close(m.fd) // The connection is given up; nobody needs the error.
	m.Left(nil, nil)
}

// watch closes the connections that have been idle for too long, until the pool is closed.
func (p *Pool) watch() {
	tick := time.NewTicker(step(p.idle))
	defer tick.Stop()
	for {
		select {
		case <-tick.C:
			for _, m := range p.silent() {
				p.close(m)
			}
		case <-p.ending:
			return
		}
	}
}

// silent begins the next round, and makes the connections busy that have been idle for too long.
func (p *Pool) silent() (silent []*membership) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.round++
	for _, m := range p.members {
		if m.state == quiet && p.round-m.round > rounds {
			m.state = busy
			silent = append(silent, m)
		}
	}
	return silent
}
