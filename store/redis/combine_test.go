package redis

import (
	"encoding/binary"
	"errors"
	"slices"
	"testing"
	"time"

	"github.com/headgate/headgate"
	"github.com/headgate/headgate/store/redis/internal/guard"
)

// FuzzSharedReply: whatever a server answers to a shared call, every seat gets an
// answer of its own length or an error.
func FuzzSharedReply(f *testing.F) {
	rules := map[shape]*headgate.Rule{
		shapeBucket:  headgate.MustRule("bucket", headgate.PerSecond(3)),
		shapeBuckets: headgate.MustRule("buckets", headgate.PerSecond(3), headgate.PerMinute(9)),
		shapeWindows: headgate.MustRule("windows", headgate.Sliding(5, time.Minute)),
	}
	f.Add([]byte("\x01\x06\x4a\x11\x22\x33\x44\x55\x04\x00\x00\x00\x00"))
	f.Add(append(make([]byte, replyHead+1), make([]byte, 2*bucketBytes)...))
	f.Fuzz(func(t *testing.T, text []byte) {
		head, err := parseReply(string(text))
		if err != nil {
			return
		}
		rest := head.text
		for _, shape := range []shape{shapeBucket, shapeBuckets, shapeWindows, shapeBucket} {
			c := headgate.Check{Rule: rules[shape], Key: "k"}
			s := seat{shape: shape}
			var r reply
			if r, rest, err = s.read(head.now, rest); err != nil {
				if !errors.Is(err, headgate.ErrUnavailable) {
					t.Errorf("got %v, want ErrUnavailable", err)
				}
				return
			}
			if r.status == statusRefused || r.status == statusOther {
				continue
			}
			decisions, err := shape.describe(r, &c, nil)
			if err == nil && len(decisions) != len(c.Rule.Limits()) || err != nil && !errors.Is(err, headgate.ErrUnavailable) {
				t.Errorf("%d decisions, %v", len(decisions), err)
			}
		}
	})
}

// TestSharedReply: an answer that is cut off anywhere is nobody's, from where it ends.
func TestSharedReply(t *testing.T) {
	value := make([]byte, bucketBytes)
	answer := append([]byte{statusAdmitted}, value...)
	answer = append(answer, statusDeniedNew, statusOther, statusRefused)
	window := append([]byte{statusDenied}, make([]byte, replyHead-1+factsBytes)...)
	answer = append(binary.BigEndian.AppendUint16(answer, uint16(len(window))), window...)
	answer = append(answer, 0, 0)
	shapes := []shape{shapeBucket, shapeBucket, shapeBucket, shapeBucket, shapeWindows, shapeBuckets}
	want := []int{statusAdmitted, statusDenied, statusOther, statusRefused, statusDenied, statusRefused}
	texts := []int{bucketBytes, 0, 0, 0, factsBytes, 0}
	for end := range len(answer) + 1 {
		rest, read := string(answer[:end]), 0
		for i, shape := range shapes {
			s := seat{shape: shape}
			r, after, err := s.read(1, rest)
			if err != nil {
				break
			}
			if r.status != want[i] || len(r.text) != texts[i] {
				t.Errorf("of %d bytes, seat %d: got status %d and %d bytes, want %d and %d", end, i, r.status, len(r.text), want[i], texts[i])
			}
			rest, read = after, i+1
		}
		if whole := end == len(answer); whole != (read == len(shapes)) || rest != "" && whole {
			t.Errorf("of %d of %d bytes %d seats got an answer", end, len(answer), read)
		}
	}
}

// TestCombinerConsiders: sharing begins when many are in flight, goes on while there
// are nearly as many, and ends when there have been few for some calls.
func TestCombinerConsiders(t *testing.T) {
	s := &Store{guards: guard.New(guard.Options{Most: 1 << 10})}
	c := newCombiner(s, 32)
	defer c.end()
	if c.pays(30) {
		t.Error("31 in flight share calls")
	}
	if !c.pays(31) || !c.pays(0) {
		t.Error("32 in flight do not share calls, or not for long")
	}
	calls := func(n int64) {
		one := s.guards.Any()
		for one.Calls() > n {
			one.End(time.Now(), nil)
		}
		for one.Calls() < n {
			if err := one.Begin(); err != nil {
				t.Fatal(err)
			}
		}
		for range calmBatches {
			c.consider()
		}
	}
	if calls(24); !c.pays(0) {
		t.Error("24 in flight have stopped sharing")
	}
	if calls(23); c.pays(0) {
		t.Error("23 in flight go on sharing")
	}
	var none *combiner
	if none.pays(1 << 20) {
		t.Error("where there is no sharing, it pays")
	}
}

// TestSeatKeepsNothing: what a seat is told is its own, and the check's owner may go on.
func TestSeatKeepsNothing(t *testing.T) {
	rules := []*headgate.Rule{
		headgate.MustRule("bucket", headgate.PerSecond(3)),
		headgate.MustRule("buckets", headgate.PerSecond(3), headgate.PerMinute(9), headgate.PerHour(20)),
		headgate.MustRule("windows", headgate.Sliding(5, time.Minute), headgate.Sliding(9, time.Hour)),
	}
	for _, rule := range rules {
		c := headgate.Check{Rule: rule, Key: "k{1}", Cost: 2}
		var s seat
		s.set(shapeOf(&c), "hg:", &c)
		before := string(s.text)
		if want := "hg:" + rule.Name() + " k%7B1%7D"; before[:s.key] != want || s.work < 1 || s.work > batchWork {
			t.Errorf("the counter is %q, the work %d; want %q", before[:s.key], s.work, want)
		}
		c.Key, c.Cost = "other", 7
		if string(s.text) != before {
			t.Error("the seat has changed with the check")
		}
		if n := testing.AllocsPerRun(100, func() { s.set(shapeOf(&c), "hg:", &c) }); n != 0 {
			t.Errorf("%s: %v allocations", rule, n)
		}
	}
}

// TestBoard: seats leave in their order, no more at a time than the server may work at,
// and without those whom nobody waits for.
func TestBoard(t *testing.T) {
	c := newCombiner(&Store{guards: guard.New(guard.Options{Most: 1 << 10})}, 1)
	defer c.end()
	var want []*seat
	for i := range 600 {
		s := &seat{work: 1 + i%5, done: make(chan struct{}, 1)}
		if i%7 == 0 {
			s.left.Store(true)
		} else {
			want = append(want, s)
		}
		c.waiting = append(c.waiting, s)
	}
	c.runs = 1
	var batch []*seat
	for calls := 0; ; calls++ {
		if batch = c.board(batch); len(batch) == 0 {
			if len(want) != 0 || len(c.waiting) != 0 || c.runs != 0 {
				t.Errorf("%d seats were left behind, %d wait, %d goroutines make calls", len(want), len(c.waiting), c.runs)
			}
			if calls < 600*3*6/7/batchWork {
				t.Errorf("there were only %d calls", calls)
			}
			return
		}
		work := 0
		for i, s := range batch {
			if work += s.work; i >= len(want) || s != want[i] {
				t.Fatalf("call %d: seat %d is not the one whose turn it is", calls, i)
			}
		}
		if work > batchWork {
			t.Errorf("call %d has %d of work", calls, work)
		}
		want = want[len(batch):]
	}
}

// TestBoardWhenLate: while all can be answered in time they leave in their order. When the
// first has little time left, the last leave first, among themselves in their order, and
// those who are gone leave no trace.
func TestBoardWhenLate(t *testing.T) {
	store := &Store{guards: guard.New(guard.Options{Most: 1 << 10})}
	store.deadlines.Timeout = time.Minute
	for _, late := range []bool{false, true} {
		c := newCombiner(store, 1)
		defer c.end()
		first := time.Now().Add(time.Hour)
		if late {
			first = time.Now().Add(store.deadlines.Timeout / 8)
		}
		var all []*seat
		for i := range 3 * batchWork {
			s := &seat{work: 1, until: first.Add(time.Duration(i) * time.Minute), done: make(chan struct{}, 1)}
			s.left.Store(i%3 == 1)
			all = append(all, s)
		}
		c.waiting, c.runs = append([]*seat(nil), all...), 1
		want := slices.DeleteFunc(all, func(s *seat) bool { return s.left.Load() })
		got := c.board(nil)
		rest := want[batchWork:]
		if want = want[:batchWork]; late {
			want, rest = rest, want
		}
		if !slices.Equal(got, want) || !slices.Equal(c.waiting, rest) {
			t.Errorf("late %t: %d seats leave and %d wait, want %d and %d, or they are others", late, len(got), len(c.waiting), len(want), len(rest))
		}
	}
}
