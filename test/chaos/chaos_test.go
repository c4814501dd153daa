package chaos

import (
	"strings"
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

// TestWrite: the rows take the places of those of the same topologies, and nothing else changes.
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
| standalone | killed | 1 of 2 | – | – | 0 |
| standalone | flushed | 0 of 2 | – | – | 0 |
| Sentinel | killed | 20 of 100 | 2 ms | 103 ms | 3 |
| Sentinel | flushed | 0 of 10 | – | – | 0 |
<!-- /chaos -->
after
`
	const before = `before
<!-- chaos -->
old

| Topology | Fault | Failed, of | Steady after | Longest call | Over |
|---|---|---:|---:|---:|---:|
| Sentinel | killed | 5 of 5 | – | – | 0 |
| standalone | killed | 1 of 2 | – | – | 0 |
| standalone | flushed | 0 of 2 | – | – | 0 |
<!-- /chaos -->
after
`
	got, err := WriteFaults(before, "measured", results)
	if err != nil || got != want {
		t.Errorf("got %v and\n%s\nwant\n%s", err, got, want)
	}
	for _, text := range []string{"", "<!-- chaos -->\n", "<!-- /chaos -->\n<!-- chaos -->\n"} {
		if _, err := WriteFaults(text, "", results); err == nil {
			t.Errorf("%q has no place for the table, and no error", text)
		}
	}
}

// TestOver: what was admitted between two times is too much only if it is for certain.
func TestOver(t *testing.T) {
	at := func(times ...int) (all []Passed) {
		for _, n := range times {
			all = append(all, Passed{time.Duration(n) * time.Millisecond, time.Duration(n+10) * time.Millisecond})
		}
		return all
	}
	for _, c := range []struct {
		name   string
		all    []Passed
		allows func(time.Duration) float64
		want   float64
	}{
		{"a bucket's burst", at(0, 0, 0), Bucket(100, 2), 0},
		{"a bucket's burst and two", at(0, 0, 0, 0, 0), Bucket(100, 2), 2},
		{"a bucket's rate", at(0, 1000, 2000), Bucket(1, 1), 0},
		{"a bucket's rate and one", at(0, 500, 1000, 1500), Bucket(1, 1), 1.49},
		{"a window", at(0, 100, 995), Window(2, time.Second), 0},
		{"a window and one", at(0, 100, 985), Window(2, time.Second), 1},
	} {
		if got := Over(c.all, c.allows); got < c.want-1e-5 || got > c.want {
			t.Errorf("%s: %.3f too many, want %.3f", c.name, got, c.want)
		}
	}
}

// TestUsual: the usual design counts what it has heard of the others.
func TestUsual(t *testing.T) {
	u := &usual{}
	now := time.Unix(1_700_000_000, 0)
	u.allow(now, 3)
	u.others = 1
	if !u.allow(now, 3) || u.allow(now, 3) {
		t.Error("it does not admit what the others have left, and no more")
	}
	if !u.allow(now.Add(usualPeriod), 3) {
		t.Error("another window does not begin anew")
	}
}

// TestWriteRegions: the table stands in its own place.
func TestWriteRegions(t *testing.T) {
	got, err := WriteRegions("a\n<!-- regions -->\n<!-- /regions -->\nb\n", "how", &Regions{Admitted: 7, Used: 0.981, Moved: 14 * time.Second})
	if err != nil || !strings.Contains(got, "of 7 admissions | 0 |\n") || !strings.Contains(got, "98.1 %") || !strings.Contains(got, "| 14 s |") || !strings.HasSuffix(got, "<!-- /regions -->\nb\n") {
		t.Errorf("got %v and\n%s", err, got)
	}
}
