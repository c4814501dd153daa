// Package bubbletest runs tests in the bubbles of [testing/synctest], whose clock
// moves when everyone in them waits. Tests use it in place of that package.
//
// Under the race detector a bubble runs on one processor. The runtime keeps one
// context of the detector for all timers of a bubble, and two threads may fire such
// timers at once: the one that moves the clock, and any that looks at a timer's
// channel, or resets a timer to the past. The detector bears no context on two
// threads, and ends the program, now and then, in code that has no fault
// (golang/go#78156; the test of this package shows it with Go 1.26.8).
// One processor still runs the goroutines of a bubble in any order, and what the
// detector finds, accesses that nothing orders, it finds there as well.
package bubbletest

import (
	"runtime"
	"sync"
	"testing"
	"testing/synctest"

	"github.com/headgate/headgate/internal/race"
)

// Test runs f in a new bubble, as [synctest.Test] does. Tests that run in parallel
// may each call it.
func Test(t *testing.T, f func(*testing.T)) {
	t.Helper()
	if race.Enabled {
		single.enter()
		defer single.leave()
	}
	synctest.Test(t, f)
}

// Wait waits until every other goroutine of the caller's bubble waits, as
// [synctest.Wait] does.
func Wait() { synctest.Wait() }

// single is a process that has one processor while bubbles run. There is one for
// all, because the number of processors is the process's.
var single processors

type processors struct {
	mu      sync.Mutex
	bubbles int
	before  int // how many there are when no bubble runs
}

func (p *processors) enter() {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.bubbles++; p.bubbles == 1 {
		p.before = runtime.GOMAXPROCS(1)
	}
}

func (p *processors) leave() {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.bubbles--; p.bubbles == 0 {
		runtime.GOMAXPROCS(p.before)
	}
}
