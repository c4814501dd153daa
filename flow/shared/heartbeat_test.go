package shared

import (
	"testing"
	"time"

	"github.com/headgate/headgate/store/memory"
)

// A gate is over as soon as its last permit was given back, a moment before Close has taken away
// what the heartbeat was to look at. The heartbeat must not go on with that: nothing can be
// scheduled any more, so that it would look at the same lease again and again, with the gate locked.
func TestHeartbeatEndsWithTheGate(t *testing.T) {
	g, err := New(memory.New(), Config{Name: "over", Limit: 1, TTL: time.Minute})
	if err != nil {
		t.Fatal(err)
	}
	now := time.Now()
	for name, h := range map[string]*holding{
		"a call is under way": {gate: g, state: leaving, calling: true},
		"a call is due":       {gate: g, state: leaving},
	} {
		h.setEnd(now.Add(time.Minute))
		g.mu.Lock()
		g.over, g.beating = false, true // so that no goroutine looks at it
		g.schedule(h, now.Add(-time.Second))
		g.over = true
		g.mu.Unlock()
		done := make(chan struct{})
		go func() {
			defer close(done)
			g.mu.Lock()
			defer g.mu.Unlock()
			g.due(now)
		}()
		select {
		case <-done:
		case <-time.After(20 * time.Second):
			t.Fatalf("%s: the heartbeat does not end", name)
		}
		g.mu.Lock()
		g.unschedule(h)
		g.mu.Unlock()
	}
}
