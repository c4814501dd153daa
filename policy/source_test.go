package policy

import (
	"context"
	"errors"
	"fmt"
	"runtime"
	"slices"
	"sync"
	"sync/atomic"
	"testing"
	"time"
	"weak"

	"github.com/headgate/headgate"
)

func setOf(t testing.TB, name string) *Set {
	t.Helper()
	s, err := New([]Rule{{Limits: headgate.MustRule(name, headgate.PerSecond(1))}})
	if err != nil {
		t.Fatal(err)
	}
	return s
}

// TestSwap: all who use a source change to another set, or none of them does.
func TestSwap(t *testing.T) {
	t.Parallel()
	first, second := setOf(t, "first"), setOf(t, "second")
	s := NewSource(first)
	now := make([]*Set, 2)
	var no error
	for i := range now {
		if err := s.Use(func(set *Set) (func(), error) {
			if i == 1 && no != nil {
				return nil, no
			}
			return func() { now[i] = set }, nil
		}); err != nil {
			t.Fatal(err)
		}
	}
	if !slices.Equal(now, []*Set{first, first}) {
		t.Fatalf("at first %v is in force", now)
	}
	no = errors.New("no")
	if err := s.Swap(second); !errors.Is(err, no) || s.Set() != first || !slices.Equal(now, []*Set{first, first}) {
		t.Errorf("after a refusal: %v, and %v is in force", err, now)
	}
	if err := s.Use(func(*Set) (func(), error) { return nil, no }); !errors.Is(err, no) {
		t.Errorf("a user that cannot: %v", err)
	}
	no = nil
	if err := s.Swap(second); err != nil || s.Set() != second || !slices.Equal(now, []*Set{second, second}) {
		t.Errorf("%v, and %v is in force", err, now)
	}
}

// TestSwapConcurrently: of swaps that meet, one is the last for everybody.
func TestSwapConcurrently(t *testing.T) {
	t.Parallel()
	s := NewSource(setOf(t, "first"))
	now := make([]*Set, 3)
	for i := range now {
		if err := s.Use(func(set *Set) (func(), error) { return func() { now[i] = set }, nil }); err != nil {
			t.Fatal(err)
		}
	}
	var all sync.WaitGroup
	for i := range 8 {
		set := setOf(t, fmt.Sprint("set", i))
		all.Go(func() {
			for range 50 {
				if err := s.Swap(set); err != nil {
					t.Error(err)
				}
				s.Set()
			}
		})
	}
	all.Wait()
	for _, set := range now {
		if set != s.Set() {
			t.Errorf("%v is in force, and one user has %v", s.Set().Rules()[0].Name, set.Rules()[0].Name)
		}
	}
}

// TestLeave: whoever leaves a source is not asked any more, not even by a swap that follows at once,
// and the source keeps nothing of it. The others stay.
func TestLeave(t *testing.T) {
	t.Parallel()
	s := NewSource(setOf(t, "first"))
	var stays *Set
	if err := s.Use(func(set *Set) (func(), error) { return func() { stays = set }, nil }); err != nil {
		t.Fatal(err)
	}
	ctx, leave := context.WithCancel(t.Context())
	passing := s.Until(ctx)
	if passing.Set() != s.Set() {
		t.Error("the same source has another set")
	}
	var left []weak.Pointer[[1 << 16]byte]
	for i := range 3 {
		holds := new([1 << 16]byte)
		left = append(left, weak.Make(holds))
		asked := 0
		if err := passing.Use(func(*Set) (func(), error) {
			if asked++; asked > 2 {
				return nil, fmt.Errorf("user %d was asked after it had left", i)
			}
			return func() { holds[0]++ }, nil
		}); err != nil {
			t.Fatal(err)
		}
	}
	if err := s.Swap(setOf(t, "second")); err != nil {
		t.Fatal(err)
	}
	leave()
	third := setOf(t, "third")
	if err := passing.Swap(third); err != nil || stays != third || s.Set() != third {
		t.Errorf("%v, and %v is in force", err, s.Set())
	}
	for deadline := time.Now().Add(2 * time.Minute); ; time.Sleep(time.Millisecond) {
		runtime.GC()
		if !slices.ContainsFunc(left, func(p weak.Pointer[[1 << 16]byte]) bool { return p.Value() != nil }) {
			break
		}
		if time.Now().After(deadline) {
			t.Fatal("the source keeps users that have left")
		}
	}
	runtime.KeepAlive(s)
	// One that comes too late has the set in force, and that is all.
	var late *Set
	if err := passing.Use(func(set *Set) (func(), error) { return func() { late = set }, nil }); err != nil || late != third {
		t.Errorf("%v, and the late one has %v", err, late)
	}
	if err := s.Swap(setOf(t, "fourth")); err != nil || late != third {
		t.Errorf("%v, and the late one has %v", err, late)
	}
}

// TestLeaveConcurrently: users come and leave while sets are swapped, and none is left in the end.
func TestLeaveConcurrently(t *testing.T) {
	t.Parallel()
	s := NewSource(setOf(t, "first"))
	var all sync.WaitGroup
	for i := range 4 {
		set := setOf(t, fmt.Sprint("set", i))
		all.Go(func() {
			for range 50 {
				ctx, leave := context.WithCancel(t.Context())
				var now atomic.Pointer[Set]
				if err := s.Until(ctx).Use(func(set *Set) (func(), error) { return func() { now.Store(set) }, nil }); err != nil || now.Load() == nil {
					t.Error(err)
				}
				if err := s.Swap(set); err != nil {
					t.Error(err)
				}
				leave()
			}
		})
	}
	all.Wait()
	for deadline := time.Now().Add(2 * time.Minute); ; time.Sleep(time.Millisecond) {
		s.mu.Lock()
		n := len(s.users)
		s.mu.Unlock()
		if n == 0 {
			return
		}
		if time.Now().After(deadline) {
			t.Fatalf("%d users have not left", n)
		}
	}
}
