// Package doctor examines the Redis or Valkey servers of a store for what causes trouble in operation.
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

// Level says how serious a [Finding] is.
type Level uint8

const (
	// Fine means that nothing has to be done.
	Fine Level = iota
	// Doubtful means that it does no harm now but may do so later.
	Doubtful
	// Bad means that limits are wrong or decisions are slow.
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

// MarshalText returns the same as String.
func (l Level) MarshalText() ([]byte, error) { return []byte(l.String()), nil }

// Finding is the result of one check.
type Finding struct {
	// Node is the address of the server, or "" if the finding concerns all servers together.
	Node string `json:"node,omitempty"`
	// What names the check, such as "version", "eviction" or "clock".
	What  string `json:"what"`
	Level Level  `json:"level"`
	// Text says what was found, with the numbers. Fix says what to change; it is empty if
	// nothing has to be changed.
	Text string `json:"text"`
	Fix  string `json:"fix,omitempty"`
}

// RuleMemory is an estimate of the memory that the counters of one rule use, from a sample of keys.
type RuleMemory struct {
	Rule string `json:"rule"`
	// Keys is the number of the rule's keys in the sample. Some of them were measured:
	// BytesPerKey is their mean size in bytes, including the key's name and the server's overhead.
	Keys        int64 `json:"keys"`
	BytesPerKey int64 `json:"bytes_per_key"`
}

// Diagnosis is the result of [Diagnose].
type Diagnosis struct {
	Findings []Finding `json:"findings"`
	// Memory has one entry per rule, the rule that uses most memory first. Sampled is the number of
	// keys with the store's prefix that were examined; there may be more.
	Memory  []RuleMemory `json:"memory"`
	Sampled int64        `json:"sampled_keys"`
}

// Worst returns the most serious level of all findings, or [Fine] if there are none.
func (d *Diagnosis) Worst() Level {
	worst := Fine
	for i := range d.Findings {
		worst = max(worst, d.Findings[i].Level)
	}
	return worst
}

// These bounds keep a diagnosis from slowing the servers down.
const (
	pings         = 200  // to measure the latency of a node
	sampleKeys    = 5000 // counters per node at which sampling stops
	measuredKeys  = 20   // keys per rule whose memory is asked for
	scanCount     = 500  // COUNT of each SCAN
	scans         = 2000 // SCANs per node at most: most keys may belong to other programs
	maxClockApart = 100 * time.Millisecond
)

// Store is the store whose servers are examined.
type Store interface {
	headgate.Store
	// Publish and Subscribe send and receive the messages that instances of the store exchange.
	Publish(ctx context.Context, message []byte) error
	Subscribe(ctx context.Context, ready func(), receive func(message []byte)) error
}

// Subject is a store and the ways to reach its servers.
type Subject struct {
	Store  Store
	Client rueidis.Client
	// Target is the parsed URL of the store, or nil if the store was given a client instead.
	Target *target.Target
	// Prefix is the prefix of all keys of the store.
	Prefix string
	// Timeout is the time limit of each of the store's calls.
	Timeout time.Duration
}

// clustered reports whether the servers are the nodes of a cluster.
func (s *Subject) clustered() bool { return s.Client.Mode() == rueidis.ClientModeCluster }

// Diagnose checks versions, permissions, clocks, eviction, persistence, latency, scripts, and the
// memory of each rule's counters. It sends a few hundred short commands to every server, including
// replicas and Sentinels, and samples the keys with SCAN. It writes only counters of rules of its
// own, and resets or lets expire what it wrote. A server that does not answer is a finding. The error
// says that no server that holds data has answered.
func Diagnose(ctx context.Context, s Subject) (*Diagnosis, error) {
	d := &Diagnosis{Memory: []RuleMemory{}}
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
			d.add(name, "answers", Bad, fmt.Sprintf("it does not answer: %v", err), startIt)
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
		examined[0].failed(nodes)
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

// diagnoseDecisions takes, refunds and resets. If the user lacks a permission for that, the server
// itself says which one. The error is one that has another reason.
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

// startIt is the advice for a server that does not answer.
const startIt = "start it, or look at its log and at the network between"

func (d *Diagnosis) add(node, what string, level Level, text, fix string) {
	d.Findings = append(d.Findings, Finding{node, what, level, text, fix})
}

// diagnoseClocks compares the clocks of the nodes with one another. After a failover the new
// primary's clock decides about windows that began by the old primary's clock.
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
