package standby

import (
	"errors"
	"net"
	"os"
	"runtime"
	"slices"
	"sync"
	"sync/atomic"
	"syscall"
	"time"

	"golang.org/x/sys/unix"
)

// Pool holds connections that wait for their next request. It is safe for concurrent use; make one
// with [New].
type Pool struct {
	loops []*loop
	next  atomic.Uint32
	ended sync.WaitGroup
}

// loop is one goroutine of the pool. It waits for its connections and has their members answer what
// arrives.
type loop struct {
	idle time.Duration
	// epoll is registered with Go's own poller, so that waiting for it does not occupy a thread.
	epoll *os.File
	fd    int // the descriptor of epoll
	in    []byte
	out   []byte

	mu      sync.Mutex // guards what follows
	closing bool
	members map[int]*membership // by the file descriptor
	round   int                 // the number of steps of the idle time so far
}

// membership is a connection in the pool.
type membership struct {
	Member
	fd            int
	local, remote net.Addr
	round         int // the loop's round when something arrived last
}

// yield is after how many batches of events a busy loop lets other goroutines run.
const yield = 16

// New returns a pool that closes a connection when nothing has arrived on it for the duration idle.
// The pool runs until Close.
func New(idle time.Duration) (*Pool, error) {
	p := new(Pool)
	for range runtime.GOMAXPROCS(0) {
		l, err := newLoop(idle)
		if err != nil {
			p.Close()
			return nil, err
		}
		p.loops = append(p.loops, l)
		p.ended.Go(l.run)
	}
	return p, nil
}

func newLoop(idle time.Duration) (*loop, error) {
	fd, err := unix.EpollCreate1(unix.EPOLL_CLOEXEC)
	if err != nil {
		return nil, os.NewSyscallError("epoll_create1", err)
	}
	if err := unix.SetNonblock(fd, true); err != nil {
		return nil, errors.Join(os.NewSyscallError("fcntl", err), unix.Close(fd))
	}
	return &loop{
		idle: idle, epoll: os.NewFile(uintptr(fd), "epoll"), fd: fd,
		in: make([]byte, buffer), members: make(map[int]*membership),
	}, nil
}

// Close makes all connections leave the pool, and waits for its goroutines to end.
func (p *Pool) Close() {
	for _, l := range p.loops {
		l.mu.Lock()
		l.closing = true
		// A deadline in the past wakes the goroutine. It sets no other deadline while closing is true.
		_ = l.epoll.SetReadDeadline(time.Unix(1, 0))
		l.mu.Unlock()
	}
	p.ended.Wait()
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
	l := p.loops[int(p.next.Add(1))%len(p.loops)]
	if !l.enter(&membership{Member: m, fd: fd, local: nc.LocalAddr(), remote: nc.RemoteAddr()}, nc) {
		_ = unix.Close(fd)
		return false
	}
	return true
}

func (l *loop) enter(m *membership, nc net.Conn) bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.closing {
		return false
	}
	m.round = l.round
	if unix.EpollCtl(l.fd, unix.EPOLL_CTL_ADD, m.fd, &unix.EpollEvent{Events: unix.EPOLLIN, Fd: int32(m.fd)}) != nil {
		return false
	}
	l.members[m.fd] = m
	_ = nc.Close() // The connection lives on under the duplicate descriptor.
	return true
}

// run serves the loop's connections until the pool is closed.
func (l *loop) run() {
	defer func() { _ = l.epoll.Close() }() // Nothing was written, so nothing can be lost.
	raw, err := l.epoll.SyscallConn()
	if err != nil {
		panic("standby: an open file has no descriptor: " + err.Error())
	}
	events := make([]unix.EpollEvent, 128)
	for n := 0; l.wakeIn(step(l.idle)); l.lookAround() {
		// Read fails at the deadline: then it is time to look for idle connections, or to end.
		for busy := 1; raw.Read(func(uintptr) bool { n = l.ready(events); return n > 0 }) == nil; busy++ {
			for i := range events[:n] {
				l.serve(int(events[i].Fd))
			}
			// While events are always ready, the goroutine never blocks, so it has to yield explicitly.
			if busy%yield == 0 {
				runtime.Gosched()
			}
		}
	}
	l.mu.Lock()
	rest := l.members
	l.members = nil
	l.mu.Unlock()
	for _, m := range rest {
		m.leave(l, nil)
	}
}

// wakeIn makes the loop's wait for events end after d at the latest. It reports false if the pool
// is closed.
func (l *loop) wakeIn(d time.Duration) bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.closing {
		return false
	}
	_ = l.epoll.SetReadDeadline(time.Now().Add(d)) // This cannot fail while the file is open.
	return true
}

// ready returns the number of events that are ready, without waiting.
func (l *loop) ready(events []unix.EpollEvent) int {
	for {
		n, errno := poll(l.fd, events)
		if errno != unix.EINTR {
			return max(n, 0)
		}
	}
}

// serve reads what has arrived on fd, has the member answer it, and sends the answer.
func (l *loop) serve(fd int) {
	l.mu.Lock()
	m := l.members[fd]
	if m != nil {
		m.round = l.round
	}
	l.mu.Unlock()
	if m == nil {
		return
	}
	n, errno := receive(fd, l.in)
	switch {
	case errno == unix.EAGAIN || errno == unix.EINTR:
		return
	case errno != 0 || n == 0:
		l.close(m)
		return
	}
	answer, stay := m.Arrived(l.in[:n], l.out[:0])
	if l.out = answer[:0]; cap(l.out) > 2*buffer {
		l.out = nil
	}
	sent := 0
	if len(answer) > 0 {
		switch sent, errno = send(fd, answer); errno {
		case 0:
		case unix.EAGAIN, unix.EINTR:
			sent = 0
		default:
			l.close(m)
			return
		}
	}
	if !stay || sent < len(answer) {
		l.forget(m)
		m.leave(l, answer[sent:])
	}
}

func (l *loop) forget(m *membership) {
	l.mu.Lock()
	defer l.mu.Unlock()
	delete(l.members, m.fd)
}

// close removes a member and closes its connection.
func (l *loop) close(m *membership) {
	l.forget(m)
	_ = unix.Close(m.fd) // The connection is given up; nobody needs the error.
	m.Left(nil, nil)
}

// leave takes the connection out of epoll and returns it to the member.
func (m *membership) leave(l *loop, unsent []byte) {
	// Closing a descriptor would remove it from epoll, but this one stays open.
	_ = unix.EpollCtl(l.fd, unix.EPOLL_CTL_DEL, m.fd, nil)
	m.Left(&conn{file: os.NewFile(uintptr(m.fd), "tcp"), local: m.local, remote: m.remote}, slices.Clone(unsent))
}

// lookAround begins the next round, and closes the connections that have been idle for too long.
func (l *loop) lookAround() {
	var silent []*membership
	l.mu.Lock()
	l.round++
	for _, m := range l.members {
		if l.round-m.round > rounds {
			silent = append(silent, m)
		}
	}
	l.mu.Unlock()
	for _, m := range silent {
		l.close(m)
	}
}
