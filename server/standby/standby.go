// Package standby keeps connections that wait for their next request without a goroutine for each.
//
// # Basics
//
// A goroutine that reads from its own connection costs two goroutine switches and one fruitless
// read for each request, which is more than a decision from memory costs. Instead, a [Pool] has one
// goroutine for each processor that Go may use. Together they wait for all connections at once. The
// connections on which something arrives stand in one queue, from which the goroutines take them,
// and calls the [Member] of a connection when something arrives on it:
//
//	if pool.Enter(nc, member) {
//		return // The pool calls the member from now on.
//	}
//
// # Caveats
//
// While a member answers, other connections of the pool may have to wait: a second goroutine begins
// to work only when the queue is long or a member has much to answer. So a member answers only what
// it can answer alone, and leaves the pool for everything that might block: an incomplete
// request, an answer that the client does not read, work that is done elsewhere. It then gets its
// connection back, and needs a goroutine of its own.
//
// Pools exist on Linux only. On other systems no pool can be made, and each connection keeps its
// goroutine.
//
// # Reasons
//
// All goroutines take connections from one queue. With connections of its own, each goroutine whose
// thread lost its core held them all up, and the 99th percentile doubled. An arrival is reported
// once (EPOLLET), so that two goroutines never read the same connection; one that wakes another
// gives way to it, so that the other begins at once; and the one that waits blocks its thread,
// because an event through the poller of Go would wake two.
package standby

import (
	"net"
	"time"
)

// Member is the owner of a connection. Its methods are called by one goroutine at a time.
type Member interface {
	// Arrived is called when data has arrived. It appends the answer to out and returns the result; an
	// answer of no bytes is allowed. Data and out are valid only during the call. The connection stays
	// in the pool if stay is true, and leaves it otherwise.
	Arrived(data, out []byte) (answer []byte, stay bool)
	// Left is called once, when the connection has left the pool. It gets the connection and the part
	// of the answer that could not be sent yet. If the client has closed the connection or was idle
	// for too long, nc is nil. Left must not block.
	Left(nc net.Conn, unsent []byte)
}

// buffer is the size of one read, in bytes.
const buffer = 64 << 10

// rounds is the number of steps into which the idle time is divided. An idle connection is closed
// at most one step late.
const rounds = 8

// step returns how often a loop looks for idle connections.
func step(idle time.Duration) time.Duration { return max(idle/rounds, time.Millisecond) }
