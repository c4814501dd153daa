package guard

import (
	"context"
	"errors"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/headgate/headgate/internal/bubbletest"
)

// TestHangs: a node hangs that has answered nothing for a while, though it was asked. The others
// are asked as before.
func TestHangs(t *testing.T) {
	bubbletest.Test(t, func(t *testing.T) {
		const timeout = 40 * time.Millisecond
		guards := New(Options{Timeout: timeout, Most: 1 << 20, Nodes: true})
		of := make(map[string]*Server)
		for i, one := range guards.Of([]string{"a:1", "b:1"}) {
			of[[]string{"a:1", "b:1"}[i]] = one
		}
		// calls makes calls that begin and end together, and returns how many were admitted.
		calls := func(node string, n int, lasts time.Duration, end error) (admitted int) {
			t.Helper()
			var began []time.Time
			for range n {
				err := of[node].Begin()
				if err == nil {
					began = append(began, time.Now())
				} else if silent, ok := errors.AsType[interface {
					error
					Timeout() bool
				}](err); !ok || !silent.Timeout() {
					t.Fatalf("got %v, which a breaker takes for a refusal", err)
				}
			}
			time.Sleep(lasts)
			for _, at := range began {
				of[node].End(at, end)
			}
			return len(began)
		}
		all := func(what string, node string, n int, lasts time.Duration, end error) {
			t.Helper()
			if got := calls(node, n, lasts, end); got != n {
				t.Errorf("%s: %d of %d calls were admitted", what, got, n)
			}
		}
		late := context.DeadlineExceeded
		// This process may have been stopped meanwhile.
		all("many late at once", "a:1", 300, 10*hangsFor, late)
		all("an answer", "a:1", 1, time.Millisecond, nil)
		for range (hangsFor - 1) / timeout {
			all("not for long", "a:1", 30, timeout, late)
		}
		all("an answer", "a:1", 1, time.Millisecond, nil)
		for range hangsFor / timeout {
			all("until it hangs", "a:1", 30, timeout, late)
		}
		all("the last before it hangs", "a:1", 1, timeout, late)
		for range 20 {
			if n := calls("a:1", 100, probeEvery, late); n != 1 {
				t.Errorf("%d calls to a node that hangs, want a probe", n)
			}
			all("the other", "b:1", 100, time.Millisecond, nil)
		}
		if n := calls("a:1", 100, time.Millisecond, nil); n != 1 {
			t.Errorf("%d calls to a node that hangs, want a probe", n)
		}
		all("when the probe was answered", "a:1", 100, time.Millisecond, nil)
		calls("a:1", 9, timeout, late)
		again := guards.Of([]string{"b:1", "c:1"})
		if again[0] != of["b:1"] || len(guards.of) != 2 {
			t.Errorf("%d nodes are known, and b:1 has another guard: %t; want 2, false", len(guards.of), again[0] != of["b:1"])
		}
		if back := guards.Of([]string{"a:1"})[0]; back == of["a:1"] || back.owed.Load() != 0 {
			t.Errorf("a node that was gone has its old guard, which is owed %d answers", back.owed.Load())
		}
	})
}

// TestUnknownNode: nobody is to blame while it is not known who serves a key, and no call to
// such a node is sure of its connection.
func TestUnknownNode(t *testing.T) {
	bubbletest.Test(t, func(t *testing.T) {
		one := New(Options{Timeout: time.Second, Most: 1 << 20, Nodes: true}).Any()
		for range 9 {
			if err := one.Begin(); err != nil {
				t.Fatal(err)
			}
			began := time.Now()
			time.Sleep(time.Second)
			one.End(began, context.DeadlineExceeded)
		}
		if one.Heard(time.Now(), nil); !one.Unsure(time.Now()) {
			t.Error("it is sure")
		}
	})
}

// TestClosedServers: a node that comes after the end is refused as well.
func TestClosedServers(t *testing.T) {
	guards := New(Options{Timeout: time.Second, Most: 9, Nodes: true})
	before := guards.Of([]string{"a:1"})[0]
	guards.Close()
	for i, one := range append(guards.Of([]string{"a:1", "b:1"}), before, guards.Any()) {
		if err := one.Begin(); !errors.Is(err, ErrClosed) {
			t.Errorf("guard %d: got %v", i, err)
		}
	}
}

// TestLoneServerHangs: calls that no breaker protects do not wait for a server that hangs, except for
// one now and then. Of all others a breaker takes care.
func TestLoneServerHangs(t *testing.T) {
	bubbletest.Test(t, func(t *testing.T) {
		one := New(Options{Timeout: hangsFor, Most: 1 << 20}).Any()
		var hangs atomic.Bool
		var waited atomic.Int64
		hangs.Store(true)
		call := func() error {
			ctx, cancel := context.WithTimeout(t.Context(), hangsFor)
			defer cancel()
			_, err := Call(ctx, one, func() (int, error) {
				if hangs.Load() {
					waited.Add(1)
					<-ctx.Done()
				}
				return 0, ctx.Err()
			})
			return err
		}
		var all sync.WaitGroup
		for range 2000 {
			all.Go(func() {
				if err := call(); err == nil {
					t.Error("it was answered")
				}
			})
			time.Sleep(time.Millisecond)
		}
		all.Wait()
		if n := waited.Load(); n > 600 {
			t.Errorf("in 2 s %d of 2000 calls waited, want those of the first half second", n)
		}
		if err := one.Begin(); err != nil {
			t.Errorf("of a call that a breaker protects: %v", err)
		}
		one.End(time.Now(), context.Canceled)
		hangs.Store(false)
		time.Sleep(probeEvery)
		for range 10 {
			if err := call(); err != nil {
				t.Errorf("when it is well: %v", err)
			}
		}
	})
}
