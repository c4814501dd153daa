package e2e

import (
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/headgate/headgate/test/servers"
	"github.com/headgate/headgate/test/stores"
)

// TestClockSteps: a server that keeps its counters in memory decides by the monotonic clock.
// Steps of its wall clock under load free nothing and freeze nothing; only windows of the
// calendar follow them.
func TestClockSteps(t *testing.T) {
	t.Parallel()
	s, c := serveGRPC(t, nil)
	stores.WallClockSteps(t, c.Store(), func(ahead time.Duration) {
		t.Helper()
		if err := servers.SetClock(s.cmd.Process.Pid, ahead); err != nil {
			t.Fatal(err)
		}
	})
}

// TestSuspended: to a process a machine that was suspended is a wall clock that has gone
// ahead of the monotonic one. What a server held of a lease before is not admitted after.
func TestSuspended(t *testing.T) {
	t.Parallel()
	store := servers.Start(t, servers.Redis)
	policy := policyFile(t, `
rules:
  - name: leased
    algorithm: sliding_window
    per: all
    limits: [100000 per 1h]
    consistency: leased
`)
	s := serve(t, "--config", policy, "--store", patiently(store.URL()), "--store-timeout", "500ms")
	ask := func() answer { return s.post(t, "/v1/check", `{"descriptor":{"route":"GET /"}}`) }
	leased := func(a answer) bool { return strings.Contains(a.text, `"source":"lease"`) }
	held := 0 // how often units were held while the store hung
	for range 3 {
		until(t, "requests are decided from a lease", func() bool { return leased(ask()) })
		store.Pause()
		if leased(ask()) { // on a busy machine the second is over in which they may be admitted
			held++
		}
		if err := servers.SetClock(s.cmd.Process.Pid, time.Minute); err != nil {
			t.Fatal(err)
		}
		if a := ask(); a.status != http.StatusServiceUnavailable {
			t.Errorf("after a minute in which the machine was suspended, without a store: %d %s", a.status, a.text)
		}
		if err := servers.SetClock(s.cmd.Process.Pid, 0); err != nil {
			t.Fatal(err)
		}
		store.Resume()
	}
	t.Logf("units were held when the machine was suspended %d times of 3", held)
}

// TestManualClock: everything that waits follows a clock that is turned by hand: who waits for a
// permit gets it when the lease of its holder has ended, and is refused when its own wait has.
func TestManualClock(t *testing.T) {
	t.Parallel()
	const token = "0123456789abcdef"
	s := administered(t, token, []string{"rules:", "  - name: report", "    match: { tenant: present }", "    per: [tenant]", "    in_progress: { limit: 1, shared: true, ttl: 30s, wait: 20s, queue: 5 }"}, "--clock", "manual")
	turned := func(by string) { turn(t, s, token, by) }
	acquire := func(holder string) <-chan answer {
		got := make(chan answer, 1)
		go func() {
			a, err := s.ask(http.DefaultClient, "/v1/permits/acquire", `{"rule":"report","key":"acme","holder":"`+holder+`","wait_ms":20000}`)
			if err != nil {
				a.text = err.Error()
			}
			got <- a
		}()
		return got
	}
	inLine := func() bool {
		// The newest in line is told how many there are.
		return strings.Contains(s.post(t, "/v1/permits/acquire", `{"rule":"report","key":"acme","holder":"looks"}`).text, `"line":1`)
	}
	if a := <-acquire("one"); !strings.HasPrefix(a.text, `{"allowed":true`) {
		t.Fatal(a.text)
	}
	for _, c := range []struct{ holder, advance, want string }{{"two", "31s", `{"allowed":true`}, {"three", "21s", `{"allowed":false`}} {
		answered := acquire(c.holder)
		until(t, c.holder+" waits", inLine)
		turned(c.advance)
		if a := <-answered; !strings.HasPrefix(a.text, c.want) {
			t.Errorf("%s is answered with %s", c.holder, a.text)
		}
	}
	if text := s.get(t, "/readyz").text; !strings.Contains(text, "the clock is turned by hand (--clock manual) and shows 2026-01-01T00:00:52Z") {
		t.Errorf("the server is %s", text)
	}
	if !strings.Contains(s.logged(), "the clock is turned by hand") {
		t.Errorf("the log is\n%s", s.logged())
	}
}
