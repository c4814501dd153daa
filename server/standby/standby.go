// Package standby keeps connections that wait for their next request, without a goroutine for each.
//
// # Basics
//
// A goroutine that reads from its connection costs two hand-overs and a read in vain for each
// request: more than a decision from memory takes. A [Pool] has one goroutine for each core
// instead, which waits for all connections at once, and has their [Member] answer what arrives:
//
//	if pool.Enter(nc, member) {
//		return // member is asked from now on
//	}
//
// # Caveats
//
// While a member answers, others wait. So it answers only what needs nobody else, and leaves for
// everything that could make it wait: a request of which a part is missing, an answer that the
// other end does not take, work that is done elsewhere. It is given its connection then, and has a
// goroutine of its own.
//
// There are pools on Linux only. Elsewhere nobody can enter, and connections keep their goroutines.
package standby

import (
	"net"
	"time"
)

// Member is the owner of a connection. Its methods are called by one goroutine at a time.
type Member interface {
	// Arrived is called when something has arrived, and appends the answer to out. Data and out are
	// valid only during the call. The member leaves unless stay is true.
	Arrived(data, out []byte) (answer []byte, stay bool)
	// Left is called once, when the member is no longer in the pool: with its connection and with
	// what of the answer could not be sent yet, or with nil if the other end has gone or was silent
	// for too long. It must not wait for anything.
	Left(nc net.Conn, unsent []byte)
}

// buffer is how much is read at once.
const buffer = 64 << 10

// rounds is in how many steps the time is measured that a member may be silent: it is closed up to
// one step later.
const rounds = 8

// step is how often silent members are looked for.
func step(idle time.Duration) time.Duration { return max(idle/rounds, time.Millisecond) }
