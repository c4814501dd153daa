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

// Pool holds connections. It is safe for concurrent use; make one with [New].
type Pool struct {
	loops []*loop
	next  atomic.Uint32
	ended sync.WaitGroup
}

// loop waits for connections and answers what arrives, in one goroutine.
type loop struct {
	idle time.Duration
	// epoll is known to Go's own poller, so that the goroutine waits for it without a thread.
	epoll *os.File
	fd    int // of epoll
	in    []byte
	out   []byte

	mu      sync.Mutex // guards what follows
	closing bool
	members map[int]*membership // by the file descriptor
	round   int                 // counts the steps
}

// membership is a connection in the pool.
type membership struct {
	Member
	fd            int
	local, remote net.Addr
	round         int // when something has arrived last
}

// yield is how often a loop that has something to do lets other goroutines run.
const yield = 16

// New returns a pool that closes connections on which nothing has arrived for the time idle. It
// runs until Close.
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

// Close has all members leave, and ends the pool.
func (p *Pool) Close() {
	for _, l := range p.loops {
		l.mu.Lock()
		l.closing = true
		// The goroutine waits no longer. It sets other deadlines only while it is not closing.
		_ = l.epoll.SetReadDeadline(time.Unix(1, 0))
		l.mu.Unlock()
	}
	p.ended.Wait()
}

// Enter takes a connection over, if it is one of the system's own and the pool is not closed. Then
// nc itself is closed.
func (p *Pool) Enter(nc net.Conn, m Member) bool {
	of, ok := nc.(syscall.Conn)
	if !ok {
		return false
	}
	raw, err := of.SyscallConn()
	if err != nil {
		return false
	}
	// Go's poller would be woken, too, for as long as it knows the file descriptor.
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
	_ = nc.Close() // The connection lives on under the other file descriptor.
	return true
}

// run answers until the pool is closed.
func (l *loop) run() {
	defer func() { _ = l.epoll.Close() }() // nothing was written to it
	raw, err := l.epoll.SyscallConn()
	if err != nil {
		panic("standby: an open file has no descriptor: " + err.Error())
	}
	events := make([]unix.EpollEvent, 128)
	for n := 0; l.wakeIn(step(l.idle)); l.lookAround() {
		// An error says that it is time to look for who is silent, or to end.
		for busy := 1; raw.Read(func(uintptr) bool { n = l.ready(events); return n > 0 }) == nil; busy++ {
			for i := range events[:n] {
				l.serve(int(events[i].Fd))
			}
			// As long as something has arrived whenever one looks, the goroutine never waits.
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

// wakeIn has the loop's goroutine wait for so long at most. It reports false if the pool is closed.
func (l *loop) wakeIn(d time.Duration) bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.closing {
		return false
	}
	_ = l.epoll.SetReadDeadline(time.Now().Add(d)) // An open file has deadlines.
	return true
}

// ready returns how many events there are, without waiting.
func (l *loop) ready(events []unix.EpollEvent) int {
	for {
		n, errno := poll(l.fd, events)
		if errno != unix.EINTR {
			return max(n, 0)
		}
	}
}

// serve has a member answer what has arrived.
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

// close closes the connection of a member.
func (l *loop) close(m *membership) {
	l.forget(m)
	_ = unix.Close(m.fd) // The other end has gone, or is not listened to any more.
	m.Left(nil, nil)
}

// leave gives a member its connection.
func (m *membership) leave(l *loop, unsent []byte) {
	// A closed one would be removed, too, but this one stays open.
	_ = unix.EpollCtl(l.fd, unix.EPOLL_CTL_DEL, m.fd, nil)
	m.Left(&conn{file: os.NewFile(uintptr(m.fd), "tcp"), local: m.local, remote: m.remote}, slices.Clone(unsent))
}

// lookAround closes the connections of members that are silent for too long.
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
