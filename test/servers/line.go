package servers

import (
	"math/rand/v2"
	"net"
	"sync"
	"testing"
	"time"
)

// Line is a long line to a server: what is said on it arrives later. It can be cut, lose
// connections, and lead to another server. It is safe for concurrent use.
type Line struct {
	delay  time.Duration // in one direction
	listen net.Listener
	mu     sync.Mutex // guards what follows
	to     string
	cut    bool
	loses  float64
	conns  []net.Conn
}

// StartLine returns a line to an address. It ends with the test.
func StartLine(t testing.TB, to string, delay time.Duration) *Line {
	t.Helper()
	listener, err := net.Listen("tcp", net.JoinHostPort(loopback, "0"))
	if err != nil {
		t.Fatal(err)
	}
	l := &Line{to: to, delay: delay, listen: listener}
	t.Cleanup(func() {
		listener.Close()
		l.Lead(to, true)
	})
	go l.accept()
	return l
}

// Addr is where the line begins.
func (l *Line) Addr() string { return l.listen.Addr().String() }

// Lead ends all connections. New ones lead to an address, unless the line is cut.
func (l *Line) Lead(to string, cut bool) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.cut, l.to = cut, to
	for _, c := range l.conns {
		c.Close()
	}
	l.conns = nil
}

// Lose has a connection end instead of carrying what is said, in this part of all cases.
func (l *Line) Lose(part float64) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.loses = part
}

func (l *Line) lost() bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	return rand.Float64() < l.loses
}

func (l *Line) accept() {
	for {
		near, err := l.listen.Accept()
		if err != nil {
			return
		}
		l.mu.Lock()
		far, err := net.Dial("tcp", l.to)
		switch {
		case err != nil:
			near.Close()
		case l.cut:
			near.Close()
			far.Close()
		default:
			l.conns = append(l.conns, near, far)
			go l.carry(near, far)
			go l.carry(far, near)
		}
		l.mu.Unlock()
	}
}

// carry delivers what is said, after the delay.
func (l *Line) carry(from, to net.Conn) {
	type said struct {
		what []byte
		when time.Time
	}
	way := make(chan said, 1024)
	go func() {
		defer to.Close()
		for s := range way {
			time.Sleep(time.Until(s.when))
			if _, err := to.Write(s.what); err != nil || l.lost() {
				break
			}
		}
		from.Close()
		for range way { // The rest is lost.
		}
	}()
	defer close(way)
	for {
		buffer := make([]byte, 32<<10)
		n, err := from.Read(buffer)
		if n > 0 {
			way <- said{buffer[:n], time.Now().Add(l.delay)}
		}
		if err != nil {
			return
		}
	}
}
