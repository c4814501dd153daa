package guard

import (
	"context"
	"errors"
	"strings"
	"testing"
	"time"

	"github.com/headgate/headgate/internal/bubbletest"
)

// TestOvertaken: the error of a decision whose turn does not come says what happened.
func TestOvertaken(t *testing.T) {
	s := newServer("", &Options{Timeout: time.Second, Most: 1 << 10})
	s.lane.crowded.Store(true)
	s.lane.lowered = time.Now()
	s.lane.calls.Store(leastCalls)
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	_, err := s.Enter(ctx, time.Now())
	if want := "more ask than are answered in time; it was not sent: context canceled"; !errors.Is(err, context.Canceled) || err.Error() != want || s.Calls() != 0 {
		t.Errorf("got %v, and %d calls are counted", err, s.Calls())
	}
	s.lane.end()
	if _, err := s.Enter(t.Context(), time.Now()); !errors.Is(err, ErrClosed) || s.Calls() != 0 {
		t.Errorf("after the end: got %v, and %d calls are counted", err, s.Calls())
	}
}

// TestUnsure: a call is made as it comes only while others are answered.
func TestUnsure(t *testing.T) {
	bubbletest.Test(t, func(t *testing.T) {
		d := newServer("", &Options{Timeout: 15 * time.Millisecond, Most: 9})
		for i, step := range []struct {
			pause time.Duration
			err   error
			want  bool // before the call
		}{
			{0, nil, true}, // nobody has asked yet
			{0, nil, false},
			{200 * time.Millisecond, nil, false},
			{300 * time.Millisecond, nil, true},
			{time.Millisecond, context.DeadlineExceeded, false},
			{time.Millisecond, context.DeadlineExceeded, true},
			{time.Millisecond, nil, true},
			{time.Millisecond, nil, false},
		} {
			time.Sleep(step.pause)
			began := time.Now()
			if got := d.Unsure(began); got != step.want {
				t.Errorf("step %d: it is unsure: %t", i+1, got)
			}
			d.Heard(began, step.err)
		}
	})
}

// TestBounded: a call that does not heed its context does not hold its caller.
func TestBounded(t *testing.T) {
	bubbletest.Test(t, func(t *testing.T) {
		start := time.Now()
		ctx, cancel := context.WithTimeout(t.Context(), 15*time.Millisecond)
		defer cancel()
		_, err := Bounded(ctx, func() (string, error) {
			time.Sleep(time.Second)
			return "late", nil
		})
		if took := time.Since(start); !errors.Is(err, context.DeadlineExceeded) || took != 15*time.Millisecond {
			t.Errorf("got %v after %v", err, took)
		}
		ctx, cancel = context.WithTimeout(t.Context(), 15*time.Millisecond)
		defer cancel()
		if got, err := Bounded(ctx, func() (string, error) { return "in time", nil }); got != "in time" || err != nil {
			t.Errorf("got %q, %v", got, err)
		}
		time.Sleep(2 * time.Second) // until the late one has ended
	})
}

// TestFull: the client's queue is never filled. A server that answers nothing is asked now and
// then, and again by everybody when its connection is a new one.
func TestFull(t *testing.T) {
	bubbletest.Test(t, func(t *testing.T) {
		p := newServer("", &Options{Timeout: time.Second, Most: 3})
		for range 3 {
			if err := p.Begin(); err != nil {
				t.Fatal(err)
			}
		}
		if err := p.Begin(); err == nil || !strings.Contains(err.Error(), "3 calls have no answer yet, at most 3") {
			t.Errorf("a fourth call: got %v", err)
		}
		for range 3 {
			p.End(time.Now(), context.DeadlineExceeded) // they still stand in the queue
		}
		if err := p.Begin(); err != nil {
			t.Errorf("no probe is let through: %v", err)
		}
		if err := p.Begin(); err == nil {
			t.Error("a second probe is let through at once")
		}
		p.End(time.Now(), errors.New("connection reset"))
		for range 3 {
			if err := p.Begin(); err != nil {
				t.Errorf("after the connection broke: %v", err)
			}
		}
		for range 3 {
			p.End(time.Now(), nil)
		}
		p.Close()
		if err := p.Begin(); !errors.Is(err, ErrClosed) {
			t.Errorf("after the end: got %v", err)
		}
	})
}
