package chaos

import (
	"testing"
	"time"

	"github.com/headgate/headgate/test/servers"
)

// TestFaults is the short form: under each fault the store admits no more than the
// servers lose, it recovers, and nothing is stuck. [Run] has the assertions. What is lost is
// found when the limits are drained, so that the callers need not keep a processor busy, as they
// do in the long form.
func TestFaults(t *testing.T) {
	plan := Plan{Timeout: 100 * time.Millisecond, Before: 200 * time.Millisecond, Hold: 300 * time.Millisecond, Pause: 40 * time.Millisecond, Row: 8}
	for _, kind := range servers.Kinds() {
		for _, topology := range Topologies() {
			if kind == servers.Valkey && topology != Standalone {
				continue // The long form has it; what differs is the server's own.
			}
			t.Run(string(kind)+"/"+string(topology), func(t *testing.T) {
				place := NewPlace(t, kind, topology)
				for _, fault := range Faults(topology) {
					if !t.Run(fault.Name, func(t *testing.T) {
						t.Logf("%+v", Run(t, place, fault, plan))
					}) {
						return // The next one would begin with what this one has left.
					}
				}
			})
		}
	}
}

// TestWrite: the table takes the place of the one before, and nothing else changes.
func TestWrite(t *testing.T) {
	results := []Result{
		{
			Fault: "killed", Topology: Sentinel, Kind: servers.Redis, Requests: 1200, Failed: 30, Words: []string{"connection", "READONLY"},
			Steady: 1500 * time.Microsecond, Longest: 103 * time.Millisecond, Over: 3, Gap: 7,
		},
		{Fault: "killed", Topology: Sentinel, Kind: servers.Valkey, Requests: 100, Failed: 20, Words: []string{"deadline"}, Longest: time.Millisecond, Gap: 9},
		{Fault: "flushed", Topology: Sentinel, Kind: servers.Redis, Requests: 10},
	}
	const want = `before
<!-- chaos -->
measured

| Topology | Fault | Failed, of | Steady after | Longest call | Over |
|---|---|---:|---:|---:|---:|
| Sentinel | killed | 20 of 100 | 2 ms | 103 ms | 3 |
| Sentinel | flushed | 0 of 10 | – | – | 0 |
<!-- /chaos -->
after
`
	got, err := WriteFaults("before\n<!-- chaos -->\nold\n<!-- /chaos -->\nafter\n", "measured", results)
	if err != nil || got != want {
		t.Errorf("got %v and\n%s\nwant\n%s", err, got, want)
	}
	for _, text := range []string{"", "<!-- chaos -->\n", "<!-- /chaos -->\n<!-- chaos -->\n"} {
		if _, err := WriteFaults(text, "", results); err == nil {
			t.Errorf("%q has no place for the table, and no error", text)
		}
	}
}
