package lab

import (
	"errors"
	"slices"
	"testing"
	"time"

	"github.com/headgate/headgate"
)

// steady is a request of one unit every so often.
func steady(from, every, until time.Duration) (list []Request) {
	for at := from; at < until; at += every {
		list = append(list, Request{at, 1})
	}
	return list
}

func lane(t *testing.T, trace Trace, name string) Lane {
	t.Helper()
	lanes, err := Run(trace)
	if err != nil {
		t.Fatal(err)
	}
	i := slices.IndexFunc(lanes, func(l Lane) bool { return l.Name == name })
	if i < 0 {
		t.Fatalf("there is no lane %s", name)
	}
	return lanes[i]
}

func admitted(l Lane) (n int) {
	for _, a := range l.Answers {
		if a.Allowed {
			n++
		}
	}
	return n
}

var ten = Terms{Count: 10, Burst: 10, Period: 10 * time.Second}

// TestBoundary: ten requests at the end of a window and ten at the beginning of the next are
// what a fixed window admits, and what the others do not.
func TestBoundary(t *testing.T) {
	trace := Trace{Terms: []Terms{ten}, Length: 30 * time.Second, Every: 100 * time.Millisecond}
	for i := range 10 {
		trace.Requests = append(trace.Requests, Request{9900*time.Millisecond + time.Duration(i), 1}, Request{10100*time.Millisecond + time.Duration(i), 1})
	}
	for name, want := range map[string]int{"fixed_window": 20, "sliding_window": 10, "sliding_counter": 10, "token_bucket": 10, "leaky_bucket": 10, "two_windows": 3, "penalty": 10} {
		if got := admitted(lane(t, trace, name)); got != want {
			t.Errorf("%s admits %d, want %d", name, got, want)
		}
	}
}

// TestSamples: the samples of a sliding window are the admitted units that are still inside
// it, and end with what the last terms hold.
func TestSamples(t *testing.T) {
	trace := Trace{Requests: steady(time.Second, 300*time.Millisecond, 25*time.Second), Terms: []Terms{ten, {From: 12 * time.Second, Count: 4, Burst: 4, Period: 10 * time.Second}}, Length: 40 * time.Second, Every: 250 * time.Millisecond}
	l := lane(t, trace, "sliding_window")
	if len(l.Samples) != 161 {
		t.Fatalf("%d samples", len(l.Samples))
	}
	for i, s := range l.Samples {
		at := time.Duration(i) * trace.Every
		inside, capacity := int64(0), int64(10)
		for n, a := range l.Answers {
			if r := trace.Requests[n].At; a.Allowed && r <= at && r > at-10*time.Second {
				inside++
			}
		}
		if at >= 12*time.Second {
			capacity = 4
		}
		// More may be used than a limit that was lowered holds.
		if s.Capacity != capacity || s.Used != min(inside, capacity) {
			t.Errorf("at %v, %d of %d are used; want %d of %d", at, s.Used, s.Capacity, min(inside, capacity), capacity)
		}
	}
	// Nobody gets a fresh start by a change: ten units were used until 3.7 seconds.
	for n, a := range l.Answers {
		if r := trace.Requests[n].At; a.Allowed && r >= 12*time.Second && r < 13700*time.Millisecond {
			t.Errorf("a unit is admitted at %v", r)
		}
	}
}

// TestPenalty: a client that goes on is blocked, and one that waits is not.
func TestPenalty(t *testing.T) {
	trace := Trace{Requests: steady(0, 100*time.Millisecond, 60*time.Second), Terms: []Terms{ten}, Length: 60 * time.Second, Every: time.Second}
	l := lane(t, trace, "penalty")
	if got := admitted(l); got >= admitted(lane(t, trace, "sliding_window")) {
		t.Errorf("a penalty admits %d", got)
	}
	if !slices.ContainsFunc(l.Samples, func(s Sample) bool { return s.Blocked }) {
		t.Error("nobody is blocked")
	}
	trace.Requests = steady(0, 1100*time.Millisecond, 60*time.Second)
	if l := lane(t, trace, "penalty"); admitted(l) != len(trace.Requests) {
		t.Errorf("%d of %d are admitted", admitted(l), len(trace.Requests))
	}
}

// TestBounds: a trace that is too long, and a limit that cannot be, are errors.
func TestBounds(t *testing.T) {
	good := Trace{Terms: []Terms{ten}, Length: time.Minute, Every: time.Second}
	for name, change := range map[string]func(*Trace){
		"no terms":             func(t *Trace) { t.Terms = nil },
		"too many requests":    func(t *Trace) { t.Requests = make([]Request, MaxRequests+1) },
		"too many samples":     func(t *Trace) { t.Every = time.Millisecond },
		"no samples":           func(t *Trace) { t.Every = 0 },
		"no limit":             func(t *Trace) { t.Terms = []Terms{{Period: time.Second}} },
		"a cost below nothing": func(t *Trace) { t.Requests = []Request{{0, -1}} },
	} {
		trace := good
		change(&trace)
		if _, err := Run(trace); !errors.Is(err, headgate.ErrInvalid) {
			t.Errorf("%s: %v", name, err)
		}
	}
	if _, err := Run(good); err != nil {
		t.Error(err)
	}
}
