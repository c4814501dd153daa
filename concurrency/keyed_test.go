package concurrency

import (
	"fmt"
	"strconv"
	"sync"
	"sync/atomic"
	"testing"
)

func TestKeyed(t *testing.T) {
	t.Parallel()
	k := NewKeyed(2)
	take := func(key string, want bool) *Permit {
		t.Helper()
		p, ok := k.Acquire(key)
		if ok != want {
			t.Fatalf("Acquire(%q) with %d of %d in use: %t, want %t", key, k.InUse(key), k.Limit(), ok, want)
		}
		return &p
	}
	first, second := take("a", true), take("a", true)
	take("a", false)
	empty := take("", true)
	other := take("b", true)
	if n := k.Keys(); n != 3 {
		t.Errorf("something is in progress for %d keys, want 3", n)
	}

	first.Release()
	first.Release() // gives nothing back
	third := take("a", true)
	refused := take("a", false)
	refused.Release() // there is nothing to give back
	take("a", false)
	for _, p := range []*Permit{second, third, other, empty} {
		p.Release()
	}
	if n := k.Keys(); n != 0 {
		t.Errorf("%d keys are kept of which nothing is in progress", n)
	}
}

func TestKeyedNeverExceedsItsLimit(t *testing.T) {
	t.Parallel()
	const limit, keys = 3, 5
	k := NewKeyed(limit)
	var inProgress [keys]atomic.Int64
	var admitted atomic.Int64
	var all sync.WaitGroup
	for range 16 {
		all.Go(func() {
			for i := range 2000 {
				p, ok := k.Acquire(strconv.Itoa(i % keys))
				if !ok {
					continue
				}
				if n := inProgress[i%keys].Add(1); n > limit {
					t.Errorf("%d in progress, want at most %d", n, limit)
				}
				admitted.Add(1)
				inProgress[i%keys].Add(-1)
				p.Release()
			}
		})
	}
	all.Wait()
	if admitted.Load() == 0 {
		t.Error("nothing was admitted")
	}
	for key := range keys {
		if n := k.InUse(strconv.Itoa(key)); n != 0 {
			t.Errorf("key %d: %d permits are not back", key, n)
		}
	}
}

func TestNewKeyedRefusesWhatAdmitsNothing(t *testing.T) {
	t.Parallel()
	defer func() {
		if r := recover(); r == nil {
			t.Error("a limit of 0 was accepted")
		}
	}()
	NewKeyed(0)
}

func ExampleKeyed() {
	perClient := NewKeyed(1)
	first, ok := perClient.Acquire("user42")
	fmt.Println(ok)
	_, ok = perClient.Acquire("user42")
	fmt.Println(ok)
	first.Release()
	_, ok = perClient.Acquire("user42")
	fmt.Println(ok)
	// Output:
	// true
	// false
	// true
}

// A limit that is lowered takes nothing away, and gives nothing until enough is back.
func TestSetLimit(t *testing.T) {
	t.Parallel()
	k := NewKeyed(2)
	one, _ := k.Acquire("k")
	two, ok := k.Acquire("k")
	k.SetLimit(1)
	if _, more := k.Acquire("k"); !ok || more || k.Limit() != 1 || k.InUse("k") != 2 {
		t.Errorf("after the limit was lowered: %t, %t, limit %d, %d in use", ok, more, k.Limit(), k.InUse("k"))
	}
	one.Release()
	if _, more := k.Acquire("k"); more {
		t.Error("there is a permit while one of one is taken")
	}
	two.Release()
	k.SetLimit(3)
	for i := range 4 {
		if _, ok := k.Acquire("k"); ok != (i < 3) {
			t.Errorf("permit %d of three: %t", i+1, ok)
		}
	}
}
