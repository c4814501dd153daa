// Package doctor looks for what makes trouble in the operation of a store in Redis or Valkey.
// The store's method Diagnose calls it.
package doctor

import (
	"context"
	"fmt"
	"maps"
	"slices"
	"sort"
	"time"

	"github.com/redis/rueidis"

	"github.com/headgate/headgate"
	"github.com/headgate/headgate/store/redis/internal/refusal"
	"github.com/headgate/headgate/store/redis/internal/target"
)

// Level is how bad a [Finding] is.
type Level uint8

const (
	// Fine is worth knowing, and as it should be.
	Fine Level = iota
	// Doubtful may hurt some day.
	Doubtful
	// Bad makes limits wrong or decisions slow.
	Bad

	levels // the number of levels
)

var levelNames = [levels]string{"ok", "warning", "bad"}

// String returns "ok", "warning" or "bad".
func (l Level) String() string {
	if l < levels {
		return levelNames[l]
	}
	return fmt.Sprintf("level(%d)", uint8(l))
}

// Finding is one thing that was looked at.
type Finding struct {
	// Node is the address of the server, or "" for all of them together.
	Node string
	// What was looked at, in a word: "version", "eviction", "clock" …
	What  string
	Level Level
	// Text says what was found, with its numbers, and Fix what to change; empty if
	// nothing is to be.
	Text, Fix string
}

// RuleMemory is what the counters of one rule take, by a sample of the keys.
type RuleMemory struct {
	Rule string
	// Keys is how many were seen in the sample, of which some were measured:
	// BytesPerKey is their mean, name and overhead included.
	Keys, BytesPerKey int64
}

// Diagnosis is what [Diagnose] has found.
type Diagnosis struct {
	Findings []Finding
	// Memory is by rule, the largest share first. Sampled is how many keys of the
	// store's prefix were looked at; there may be more.
	Memory  []RuleMemory
	Sampled int64
}

// Worst is the worst level of the findings.
func (d *Diagnosis) Worst() Level {
	worst := Fine
	for i := range d.Findings {
		worst = max(worst, d.Findings[i].Level)
	}
	return worst
}

// Bounds of a diagnosis, which is to disturb nobody.
const (
	pings         = 200  // for the latency of a node
	sampleKeys    = 5000 // looked at, of each node
	measuredKeys  = 20   // of each rule and node
	scanCount     = 500  // for each SCAN
	scans         = 2000 // of each node, where most of the keys are somebody else's
	maxClockApart = 100 * time.Millisecond
)

// Store is what is examined.
type Store interface {
	headgate.Store
	// Publish and Subscribe send and hear messages of the stores to each other.
	Publish(ctx context.Context, message []byte) error
	Subscribe(ctx context.Context, ready func(), receive func(message []byte)) error
}

// Subject says how the servers of a store are reached.
type Subject struct {
	Store  Store
	Client rueidis.Client
	// Target is what the store's URL says, or nil if there is no URL.
	Target *target.Target
	// Prefix begins the names of the store's keys.
	Prefix string
	// Timeout is the deadline of the store's calls.
	Timeout time.Duration
}

// clustered reports whether the servers are the nodes of a cluster.
func (s *Subject) clustered() bool { return s.Client.Mode() == rueidis.ClientModeCluster }

// Diagnose looks for what makes trouble in operation: versions, permissions, clocks,
// eviction, persistence, latency, scripts, and the memory of each rule's counters. It
// asks every server, replicas and Sentinels too, a few hundred small things, samples the
// keys with SCAN, and changes nothing but one counter of a rule of its own, which expires.
// Servers that do not answer are findings. If none does that holds data, that is the error.
func Diagnose(ctx context.Context, s Subject) (*Diagnosis, error) {
	d := new(Diagnosis)
	failure := s.diagnoseDecisions(ctx, d)
	if failure != nil {
		d.add("", "decisions", Bad, fmt.Sprintf("a request gets no decision: %v", failure), "see below what the server lacks, or which one does not answer, and docs/failures.md for what it says; meanwhile rules do what on_store_error says")
	}
	nodes := s.Client.Nodes()
	rules := make(map[string]*sampled)
	var examined []*patient
	var replicas []string
	for _, name := range slices.Sorted(maps.Keys(nodes)) {
		n := &patient{ctx: ctx, client: nodes[name], name: name, d: d, prefix: s.Prefix}
		err := n.answers()
		if err == nil {
			err = n.examine()
		}
		if err != nil {
			failure = err
			d.add(name, "answers", Bad, fmt.Sprintf("it does not answer: %v", err), "start it, or see what keeps it or the network")
			continue
		}
		if !s.clustered() {
			n.writable()
		}
		n.sample(rules)
		replicas = append(replicas, n.replicas()...)
		examined = append(examined, n)
	}
	if len(examined) == 0 {
		if failure == nil {
			failure = rueidis.ErrNoAddr
		}
		return nil, fmt.Errorf("%w: redis: diagnose: %w", headgate.ErrUnavailable, failure)
	}
	s.diagnoseBus(ctx, d)
	if s.clustered() {
		examined[0].coverage()
	}
	replicas = slices.DeleteFunc(replicas, func(name string) bool { return nodes[name] != nil })
	examined = append(examined, s.diagnoseReplicas(ctx, d, replicas)...)
	s.diagnoseSentinels(ctx, d)
	var clocks []nodeClock
	for _, n := range examined {
		clocks = append(clocks, n.clock)
	}
	diagnoseClocks(d, clocks)
	for name, r := range rules {
		m := RuleMemory{Rule: name, Keys: r.keys}
		if r.measured > 0 {
			m.BytesPerKey = r.bytes / r.measured
		}
		d.Memory = append(d.Memory, m)
		d.Sampled += r.keys
	}
	sort.Slice(d.Memory, func(i, j int) bool {
		a, b := d.Memory[i], d.Memory[j]
		if x, y := a.Keys*a.BytesPerKey, b.Keys*b.BytesPerKey; x != y {
			return x > y
		}
		return a.Rule < b.Rule
	})
	return d, nil
}

// diagnoseDecisions makes the calls that decisions are made of, so that a missing
// permission is told by the server itself.
func (s *Subject) diagnoseDecisions(ctx context.Context, d *Diagnosis) error {
	bucket := headgate.MustRule("headgate.doctor", headgate.Per(1000, time.Second))
	mixed := headgate.MustRule("headgate.doctor.mixed", headgate.Sliding(1000, time.Second), headgate.Limit{Algorithm: headgate.FixedWindow, Count: 1000, Period: time.Second})
	for _, try := range []struct {
		op   headgate.Op
		rule *headgate.Rule
	}{{headgate.OpTake, bucket}, {headgate.OpTake, mixed}, {headgate.OpRefund, mixed}, {headgate.OpReset, mixed}} {
		_, err := s.Store.Take(ctx, try.op, []headgate.Check{{Rule: try.rule}}, nil)
		if err == nil {
			continue
		}
		if refusal.Is(err, "NOPERM", "The user executing the script can't", "ACL failure in script") {
			d.add("", "permissions", Bad, fmt.Sprintf("a %s is refused: %s", try.op, refusal.Text(err)), "allow the commands and keys that docs/redis.md lists for the ACL user; ACL LOG on the server says which is missing")
			return nil
		}
		return err
	}
	d.add("", "permissions", Fine, "takes, refunds and resets are allowed", "")
	return nil
}

func (d *Diagnosis) add(node, what string, level Level, text, fix string) {
	d.Findings = append(d.Findings, Finding{node, what, level, text, fix})
}

// diagnoseClocks compares the nodes with one another: a key moves from one to the
// other, and its time with it.
func diagnoseClocks(d *Diagnosis, clocks []nodeClock) {
	if len(clocks) == 0 {
		return
	}
	least := slices.MinFunc(clocks, func(a, b nodeClock) int { return int(a.ahead - b.ahead) })
	most := slices.MaxFunc(clocks, func(a, b nodeClock) int { return int(a.ahead - b.ahead) })
	apart := most.ahead - least.ahead
	switch {
	case len(clocks) == 1:
		d.add(least.name, "clock", Fine, fmt.Sprintf("%v ahead of this machine; it decides, ours does not matter", least.ahead.Round(time.Microsecond)), "")
	case apart > maxClockApart+most.doubt+least.doubt:
		d.add("", "clock", Bad, fmt.Sprintf("the clocks of %s and %s are %v apart: at a failover, windows end early or late by that much", least.name, most.name, apart.Round(time.Millisecond)), "run NTP on every node")
	default:
		d.add("", "clock", Fine, fmt.Sprintf("the clocks of %d nodes are within %v", len(clocks), apart.Round(time.Microsecond)), "")
	}
}
