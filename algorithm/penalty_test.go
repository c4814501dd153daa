package algorithm_test

import (
	"testing"
	"time"

	"github.com/headgate/headgate"
	"github.com/headgate/headgate/algorithm"
)

// TestPenalty: two denials within a minute block for a minute, and for twice as long
// each time, up to four; whoever is not denied for four minutes begins anew.
func TestPenalty(t *testing.T) {
	rule := headgate.MustRule("r", headgate.PerSecond(1), headgate.Blocking(2, time.Minute, time.Minute, 4*time.Minute))
	limit := &rule.Limits()[1]
	var state algorithm.State
	for i, step := range []struct {
		at        time.Duration
		denied    bool // by another limit of the rule
		blocked   bool // what the penalty says before that
		remaining int64
		retry     time.Duration
	}{
		{at: 0, denied: true, remaining: 2},
		{at: 59 * time.Second, remaining: 1},
		{at: 60 * time.Second, denied: true, remaining: 2}, // the first denial no longer counts
		{at: 70 * time.Second, denied: true, remaining: 1},
		{at: 71 * time.Second, blocked: true, retry: 59 * time.Second},
		{at: 130*time.Second - time.Microsecond, blocked: true, retry: time.Microsecond},
		{at: 130 * time.Second, denied: true, remaining: 2},
		{at: 140 * time.Second, denied: true, remaining: 1},
		{at: 140 * time.Second, blocked: true, retry: 2 * time.Minute},
		{at: 260 * time.Second, denied: true, remaining: 2},
		{at: 260 * time.Second, denied: true, remaining: 1},
		{at: 260 * time.Second, blocked: true, retry: 4 * time.Minute},
		{at: 500 * time.Second, denied: true, remaining: 2},
		{at: 500 * time.Second, denied: true, remaining: 1},
		{at: 500 * time.Second, blocked: true, retry: 4 * time.Minute}, // no longer than that
		{at: 980 * time.Second, denied: true, remaining: 2},            // four minutes after its end
		{at: 981 * time.Second, denied: true, remaining: 1},
		{at: 982 * time.Second, blocked: true, retry: 59 * time.Second},
	} {
		now := epoch + headgate.Instant(step.at.Microseconds())
		state = algorithm.Advance(limit, state, now)
		fits := algorithm.Fits(limit, state, now, 1)
		var d headgate.Decision
		algorithm.Describe(&d, limit, state, state, now, 1, fits)
		if fits == step.blocked || d.Allowed == step.blocked || d.Remaining != step.remaining || d.RetryAfter != step.retry {
			t.Errorf("step %d, at %v: %+v; want %+v", i, step.at, d, step)
		}
		if step.denied && fits {
			state = algorithm.Punish(limit, state, now)
		}
	}
}

// TestPenaltyStepBack: a clock that has stepped back blocks nobody for longer than the
// longest block.
func TestPenaltyStepBack(t *testing.T) {
	rule := headgate.MustRule("r", headgate.PerSecond(1), headgate.Blocking(1, time.Minute, time.Minute, time.Hour))
	limit := &rule.Limits()[1]
	state := algorithm.Punish(limit, algorithm.State{}, epoch)
	earlier := epoch - 24*headgate.Instant(time.Hour.Microseconds())
	moved := algorithm.Advance(limit, state, earlier)
	if want := earlier + headgate.Instant(time.Hour.Microseconds()); moved.Stamp != want || !algorithm.Moved(state, moved, earlier) {
		t.Errorf("the block ends at %d, want %d, and the state to be stored", moved.Stamp, want)
	}
}

// TestPenaltyGoesOn: however often a key is blocked, it is blocked for as long as
// the longest block, whatever the numbers.
func TestPenaltyGoesOn(t *testing.T) {
	for _, c := range []struct{ first, most time.Duration }{
		{time.Millisecond, headgate.MaxBlockTime},
		{time.Hour, time.Hour},
		{time.Hour, headgate.MaxBlockTime},
		{headgate.MaxBlockTime, headgate.MaxBlockTime},
	} {
		rule := headgate.MustRule("r", headgate.PerSecond(1), headgate.Blocking(1, time.Minute, c.first, c.most))
		limit := &rule.Limits()[1]
		var state algorithm.State
		now, want := epoch, c.first
		for i := range 100 {
			state = algorithm.Punish(limit, algorithm.Advance(limit, state, now), now)
			if block := time.Duration(state.Stamp-now) * time.Microsecond; block != want {
				t.Fatalf("block %d of %v up to %v lasts %v, want %v", i+1, c.first, c.most, block, want)
			}
			now = state.Stamp
			want = min(2*want, c.most)
		}
	}
}
