package resp

import (
	"fmt"
	"strings"
)

// The bounds of a queue. A client that needs more sends several transactions.
const (
	maxQueued      = 1024
	maxQueuedBytes = 1 << 20
)

// queue holds the commands of a connection since MULTI. Some client libraries send every pipeline
// as a transaction, even if not told to. EXEC runs the commands one after another, and commands of
// other connections may run between them: no command here needs isolation.
type queue struct {
	commands []queued
	bytes    int
	// broken says that a command was refused, so EXEC does nothing.
	broken bool
}

type queued struct {
	command *command
	args    []string
}

// unqueued reports whether the command runs at once between MULTI and EXEC.
func (c *command) unqueued() bool {
	switch c.name {
	case "MULTI", "EXEC", "DISCARD", "RESET", "QUIT":
		return true
	}
	return false
}

func (k *call) multi() {
	if k.conn.queue != nil {
		k.fail("ERR", "MULTI calls can not be nested")
		return
	}
	k.conn.queue = new(queue)
	k.ok()
}

func (k *call) discard() {
	if k.conn.queue == nil {
		k.fail("ERR", "DISCARD without MULTI")
		return
	}
	k.conn.queue = nil
	k.ok()
}

// enqueue keeps the command for EXEC.
func (k *call) enqueue() {
	q := k.conn.queue
	for _, arg := range k.args {
		q.bytes += len(arg)
	}
	if len(q.commands) == maxQueued || q.bytes > maxQueuedBytes {
		q.commands, q.broken = nil, true
		k.fail("ERR", fmt.Sprintf("there are more than %d commands, or more than %d bytes of them, since MULTI; send them in several parts", maxQueued, maxQueuedBytes))
		return
	}
	args := make([]string, len(k.args))
	for i, arg := range k.args {
		args[i] = strings.Clone(arg) // The text of the whole batch need not be kept until EXEC.
	}
	q.commands = append(q.commands, queued{k.command, args})
	k.out = appendSimple(k.out, "QUEUED")
	k.logged = true
}

// exec runs the queued commands.
func (k *call) exec() {
	q := k.conn.queue
	k.conn.queue = nil
	switch {
	case q == nil:
		k.fail("ERR", "EXEC without MULTI")
		return
	case q.broken:
		k.fail("EXECABORT", "Transaction discarded because of previous errors; nothing was done")
		return
	}
	k.out = appendArray(k.out, len(q.commands))
	for i := range q.commands {
		k.command, k.args = q.commands[i].command, q.commands[i].args
		k.begin()
		k.record((*call).carryOut)
	}
	k.logged = false
}
