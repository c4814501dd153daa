package policy

import (
	"errors"
	"fmt"
	"slices"
	"sync"
	"testing"

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
