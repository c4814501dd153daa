package cas_test

import (
	"errors"
	"strings"
	"testing"
	"time"

	"github.com/headgate/headgate"
	"github.com/headgate/headgate/store/cas"
)

// TestMembers: nodes are counted by the backend's clock, and it is known for how long
// it has had its data.
func TestMembers(t *testing.T) {
	const second = int64(time.Second / time.Microsecond)
	now := int64(1_763_712_000) * second
	f := newFake(1)
	store := newStore(t, f, cas.Clock(func() int64 { return now }))
	for i, step := range []struct {
		at   int64 // seconds after the step before
		node string
		ttl  time.Duration
		want int64
		age  time.Duration
	}{
		{0, "a", 10 * time.Second, 1, 0},
		{3, "b", 10 * time.Second, 2, 3 * time.Second},
		{3, "a", 10 * time.Second, 2, 6 * time.Second},
		{6, "c", 10 * time.Second, 3, 12 * time.Second},
		{1, "c", 10 * time.Second, 2, 13 * time.Second}, // b's time is over
		{1, "c", 0, 1, 14 * time.Second},                // c goes
		{1, "c", 0, 1, 15 * time.Second},
		{1, " 17", time.Second, 1, 16 * time.Second}, // a's time is over; a name like any other
		{-100, "a", time.Second, 2, 0},               // the clock steps back: as if the data began now
		{5, "b", time.Second, 2, 5 * time.Second},
	} {
		now += step.at * second
		n, age, err := store.Members(t.Context(), step.node, step.ttl)
		if err != nil || n != step.want || age != step.age {
			t.Errorf("step %d: %d nodes, data of %v, %v; want %d and %v", i+1, n, age, err, step.want, step.age)
		}
	}
	other := newStore(t, f, cas.Part("other"))
	if n, _, err := other.Members(t.Context(), "a", time.Second); err != nil || n != 1 {
		t.Errorf("in another part there are %d nodes, %v", n, err)
	}
	for _, node := range []string{"", strings.Repeat("n", 65)} {
		if _, _, err := store.Members(t.Context(), node, time.Second); !errors.Is(err, headgate.ErrInvalid) {
			t.Errorf("a node of %d bytes: %v", len(node), err)
		}
	}
	if _, _, err := store.Members(t.Context(), "a", -1); !errors.Is(err, headgate.ErrInvalid) {
		t.Errorf("a negative time: %v", err)
	}
	for _, lost := range []string{"", "\x01", "\x09\x09", "\x01\xff\xff\xff"} {
		f.set([]byte(lost))
		if n, age, err := store.Members(t.Context(), "a", time.Second); err != nil || n != 1 || age != 0 {
			t.Errorf("after the data was lost to %q: %d nodes, data of %v, %v", lost, n, age, err)
		}
	}
}
