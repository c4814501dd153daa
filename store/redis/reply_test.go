package redis

import (
	"errors"
	"testing"
	"time"

	"github.com/headgate/headgate"
)

// FuzzReply: whatever a server answers, reading it ends in decisions for every
// limit or in an error.
func FuzzReply(f *testing.F) {
	mixed := headgate.MustRule("mixed", headgate.PerSecond(3), headgate.Sliding(5, time.Minute), headgate.Limit{
		Algorithm: headgate.SlidingCounter, Count: 9, Period: time.Minute,
	})
	checks := []headgate.Check{{Rule: mixed, Key: "a"}, {Rule: headgate.MustRule("other", headgate.PerMinute(1)), Key: "b", Shadow: true}}
	f.Add([]byte("\x01\x06\x4a\x11\x22\x33\x44\x55"))
	f.Add(make([]byte, replyHead+3*stateBytes+factsBytes))
	f.Fuzz(func(t *testing.T, text []byte) {
		r, err := parseReply(string(text))
		if err != nil {
			return
		}
		for _, op := range []headgate.Op{headgate.OpTake, headgate.OpPeek, headgate.OpRefund} {
			decisions, err := r.decisions(op, checks, nil)
			if err == nil && len(decisions) != 4 || err != nil && !errors.Is(err, headgate.ErrUnavailable) {
				t.Errorf("%s: %d decisions, %v", op, len(decisions), err)
			}
		}
	})
}

func TestMisread(t *testing.T) {
	if _, err := parseReply("short"); !errors.Is(err, headgate.ErrUnavailable) {
		t.Errorf("a short answer: got %v", err)
	}
	checks := []headgate.Check{{Rule: headgate.MustRule("r", headgate.Sliding(1, time.Second)), Key: "k"}}
	r := reply{status: statusAdmitted, now: 1, text: "x"}
	if _, err := r.decisions(headgate.OpTake, checks, nil); !errors.Is(err, headgate.ErrUnavailable) {
		t.Errorf("a cut answer of take.lua: got %v", err)
	}
	if _, err := describeWindows(r, &checks[0], nil); !errors.Is(err, headgate.ErrUnavailable) {
		t.Errorf("a cut answer of window.lua: got %v", err)
	}
}
