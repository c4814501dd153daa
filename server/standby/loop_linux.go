package standby

import (
	"runtime"

	"golang.org/x/sys/unix"
)

// loop is one goroutine of the pool, with its buffers. It serves one connection after the other
// from the queue that all loops share. So when the kernel takes the processor from a loop, only the
// connection that it serves has to wait for it.
type loop struct {
	*Pool
	events  []unix.EpollEvent
	in, out []byte
}

const (
	// batch is the number of events that a loop asks the kernel for at once.
	batch = 64
	// long is the length of the queue from which one more loop is woken. Waking a loop for less costs
	// more than it gains: each thread that runs takes the processor from another, often the client's.
	long = 8
	// large is the size of a read, in bytes, that is so much work that one more loop is woken for the
	// other connections.
	large = 2 << 10
	// yield is after how many services a loop that is always busy lets other goroutines run.
	yield = 64
)

// outcome says what has become of a connection that was served.
type outcome uint8

const (
	left outcome = iota // It is no longer in the pool.
	dry                 // There was nothing to read.
	some                // All that had arrived was read, unless the client has closed its side.
	full                // The buffer was filled, so that more may be left.
)

// run serves connections until the pool is closed.
func (l *loop) run() {
	var served *membership
	was := left
	for n := 1; ; n++ {
		if served = l.next(served, was); served == nil {
			return
		}
		was = l.serve(served)
		// While something always arrives, the goroutine never blocks, so it has to yield explicitly.
		if n%yield == 0 {
			runtime.Gosched()
		}
	}
}

// next releases the connection that was served last, and returns the next one to serve, which is
// busy. If nothing has arrived, next waits. It returns nil if the pool is closed.
func (l *loop) next(served *membership, was outcome) *membership {
	l.mu.Lock()
	defer l.mu.Unlock()
	if was != left {
		l.release(served, was)
	}
	for !l.closing {
		if l.queue.length >= long && l.wake() {
			l.mu.Unlock()
			runtime.Gosched() // See wake.
			l.mu.Lock()
			continue
		}
		if m := l.take(); m != nil {
			return m
		}
		l.mu.Unlock()
		n := poll(l.epoll, l.events)
		l.mu.Lock()
		switch {
		case n > 0:
			l.arrived(l.events[:n])
		case l.queue.length > 0 || l.closing:
		case l.waiting:
			// One loop is enough to wait for events.
			l.resting++
			l.mu.Unlock()
			select {
			case <-l.help:
			case <-l.ending:
			}
			l.mu.Lock()
		default:
			l.waiting = true
			l.mu.Unlock()
			n = wait(l.epoll, l.events)
			l.mu.Lock()
			l.waiting = false
			l.arrived(l.events[:n])
		}
	}
	return nil
}

// take returns the first connection in the queue, or nil if there is none. The caller holds the
// mutex.
func (l *loop) take() *membership {
	m := l.queue.pop()
	if m != nil {
		m.state = busy
	}
	return m
}

// wake wakes a loop that rests, and reports whether there was one. The caller holds the mutex. If
// wake reports true, the caller calls [runtime.Gosched] after releasing the mutex. Then the woken
// loop begins at once in the caller's thread, and the caller goes on in the thread that Go wakes.
// Otherwise that thread has to take the woken loop from the caller's processor, and sleeps for a
// moment before it does.
func (p *Pool) wake() bool {
	if p.resting == 0 {
		return false
	}
	p.resting--
	p.help <- struct{}{} // There is an element for each loop, so this does not block.
	return true
}

// arrived puts the connections on which something has arrived into the queue. The caller holds the
// mutex.
func (l *loop) arrived(events []unix.EpollEvent) {
	for i := range events {
		m := l.members[events[i].Fd]
		if m == nil {
			continue // It has left meanwhile, or it is the bell.
		}
		m.round = l.round
		m.drain = m.drain || events[i].Events&^unix.EPOLLIN != 0
		switch m.state {
		case quiet:
			m.state = queued
			l.queue.push(m)
		case busy:
			m.state = busyAgain
		}
	}
}

// release ends the service of a connection. The connection goes behind the others if it must be
// served again. The caller holds the mutex.
func (l *loop) release(m *membership, was outcome) {
	if was == dry && m.state == busy {
		m.drain = false
	}
	if m.drain || was == full {
		// The loops ask for events only when the queue is empty, and such connections may never let it
		// become empty. So those on which something has arrived meanwhile are queued before them.
		l.arrived(l.events[:poll(l.epoll, l.events)])
	}
	if m.state == busyAgain || m.drain || was == full {
		m.state = queued
		l.queue.push(m)
		return
	}
	m.state = quiet
}

// share wakes one more loop, because this one is busy for longer.
func (l *loop) share() {
	l.mu.Lock()
	woken := l.wake()
	l.mu.Unlock()
	if woken {
		runtime.Gosched() // See wake.
	}
}

// serve reads what has arrived, has the member answer it, and sends the answer.
func (l *loop) serve(m *membership) outcome {
	n, errno := receive(m.fd, l.in)
	switch {
	case errno == unix.EAGAIN:
		return dry
	case errno == unix.EINTR:
		return full
	case errno != 0 || n == 0:
		l.close(m)
		return left
	}
	if n >= large {
		l.share()
	}
	answer, stay := m.Arrived(l.in[:n], l.out[:0])
	if l.out = answer[:0]; cap(l.out) > 2*buffer {
		l.out = nil
	}
	sent := 0
	if len(answer) > 0 {
		switch sent, errno = send(m.fd, answer); errno {
		case 0:
		case unix.EAGAIN, unix.EINTR:
			sent = 0
		default:
			l.close(m)
			return left
		}
	}
	if !stay || sent < len(answer) {
		l.forget(m)
		l.leave(m, answer[sent:])
		return left
	}
	if n == len(l.in) {
		return full
	}
	return some
}
