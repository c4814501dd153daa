package redis

import (
	"context"
	"fmt"
	"maps"
	"slices"
	"sort"
	"strconv"
	"strings"
	"time"

	"github.com/redis/rueidis"

	"github.com/headgate/headgate"
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

// Finding is one thing that [Store.Diagnose] has looked at.
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

// Diagnosis is what Diagnose has found.
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

// Diagnose looks for what makes trouble in operation: versions, permissions, clocks,
// eviction, persistence, latency, scripts, and the memory of each rule's counters. It
// asks every server, replicas and Sentinels too, a few hundred small things, samples the
// keys with SCAN, and changes nothing but one counter of a rule of its own, which expires.
// Servers that do not answer are findings. If none does that holds data, that is the error.
func (s *Store) Diagnose(ctx context.Context) (*Diagnosis, error) {
	d := new(Diagnosis)
	failure := s.diagnoseDecisions(ctx, d)
	if failure != nil {
		d.add("", "decisions", Bad, fmt.Sprintf("a request gets no decision: %v", failure), "see below what the server lacks, or which one does not answer, and docs/failures.md for what it says; meanwhile rules do what on_store_error says")
	}
	nodes := s.client.Nodes()
	rules := make(map[string]*sampled)
	var examined []*patient
	var replicas []string
	for _, name := range slices.Sorted(maps.Keys(nodes)) {
		n := &patient{ctx: ctx, client: nodes[name], name: name, d: d, prefix: s.prefix}
		err := n.answers()
		if err == nil {
			err = n.examine()
		}
		if err != nil {
			failure = err
			d.add(name, "answers", Bad, fmt.Sprintf("it does not answer: %v", err), "start it, or see what keeps it or the network")
			continue
		}
		if s.clustered == nil {
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
		return nil, unavailable("diagnose", failure)
	}
	s.diagnoseBus(ctx, d)
	if s.clustered != nil {
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
func (s *Store) diagnoseDecisions(ctx context.Context, d *Diagnosis) error {
	bucket := headgate.MustRule("headgate.doctor", headgate.Per(1000, time.Second))
	mixed := headgate.MustRule("headgate.doctor.mixed", headgate.Sliding(1000, time.Second), headgate.Limit{Algorithm: headgate.FixedWindow, Count: 1000, Period: time.Second})
	for _, try := range []struct {
		op   headgate.Op
		rule *headgate.Rule
	}{{headgate.OpTake, bucket}, {headgate.OpTake, mixed}, {headgate.OpRefund, mixed}, {headgate.OpReset, mixed}} {
		_, err := s.Take(ctx, try.op, []headgate.Check{{Rule: try.rule}}, nil)
		if err == nil {
			continue
		}
		if replies(err, "NOPERM", "The user executing the script can't", "ACL failure in script") {
			d.add("", "permissions", Bad, fmt.Sprintf("a %s is refused: %s", try.op, refusal(err)), "allow the commands and keys that docs/redis.md lists for the ACL user; ACL LOG on the server says which is missing")
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

// patient is a node under examination.
type patient struct {
	ctx    context.Context //nolint:containedctx // it lives as long as one examination
	client rueidis.Client
	name   string
	prefix string
	d      *Diagnosis
	clock  nodeClock
	info   map[string]string
}

// nodeClock is a node's clock less ours, give or take half a round trip.
type nodeClock struct {
	name         string
	ahead, doubt time.Duration
}

func (p *patient) add(what string, level Level, format string, args ...any) *Finding {
	p.d.add(p.name, what, level, fmt.Sprintf(format, args...), "")
	return &p.d.Findings[len(p.d.Findings)-1]
}

func (p *patient) examine() error {
	text, err := p.client.Do(p.ctx, p.client.B().Info().Section("everything").Build()).ToString()
	if err != nil {
		if _, refused := rueidis.IsRedisErr(err); !refused {
			return err
		}
		p.add("info", Doubtful, "INFO is refused: %v", err).Fix = "let a user of the operators' run the doctor; it needs INFO, SLOWLOG, LATENCY, SCAN and MEMORY"
	}
	p.info = parseInfo(text)
	p.version()
	p.eviction()
	p.persistence()
	p.scripts()
	if err := p.latency(); err != nil {
		return err
	}
	p.slow()
	return p.readClock()
}

// parseInfo reads the answer to INFO.
func parseInfo(text string) map[string]string {
	info := make(map[string]string)
	for line := range strings.Lines(strings.TrimPrefix(text, "txt:")) { // a mark of RESP3
		if name, value, ok := strings.Cut(strings.TrimSpace(line), ":"); ok {
			info[name] = value
		}
	}
	return info
}

func (p *patient) number(name string) int64 {
	n, _ := strconv.ParseInt(p.info[name], 10, 64)
	return n
}

func (p *patient) version() {
	name, version := "Redis", p.info["redis_version"]
	if v := p.info["valkey_version"]; v != "" {
		name, version = "Valkey", v
	}
	major, _ := strconv.Atoi(strings.SplitN(version, ".", 2)[0])
	switch {
	case version == "":
	case name == "Redis" && major < 6:
		p.add("version", Bad, "%s %s, role %s", name, version, p.info["role"]).Fix = "upgrade to Redis 7 or Valkey 8: 6.2 is the oldest that has every command"
	case name == "Redis" && major < 7:
		p.add("version", Doubtful, "%s %s, role %s: it has every command, and Headgate is tested on 7 and later", name, version, p.info["role"]).Fix = "upgrade to Redis 7 or Valkey 8"
	default:
		p.add("version", Fine, "%s %s, role %s, up for %v", name, version, p.info["role"], time.Duration(p.number("uptime_in_seconds"))*time.Second)
	}
}

func (p *patient) eviction() {
	policy, limit, used := p.info["maxmemory_policy"], p.number("maxmemory"), p.number("used_memory")
	switch {
	case policy == "":
	case policy != "noeviction" && limit > 0:
		p.add("eviction", Bad, "maxmemory-policy is %s at %d MiB: when memory is full, counters are dropped, and clients who have used their limits start afresh", policy, limit>>20).Fix = "CONFIG SET maxmemory-policy noeviction, or give Headgate a server of its own"
	case policy != "noeviction":
		p.add("eviction", Doubtful, "maxmemory-policy is %s; it has no effect while maxmemory is 0", policy).Fix = "CONFIG SET maxmemory-policy noeviction"
	case limit > 0 && used >= limit:
		p.add("eviction", Bad, "noeviction, and memory is full, %d of %d MiB: new counters are refused", used>>20, limit>>20).Fix = "raise maxmemory, or look at the memory of each rule below"
	case limit == 0:
		p.add("eviction", Fine, "noeviction, no maxmemory; %d MiB are in use", used>>20)
	case used*10 > limit*8:
		p.add("eviction", Doubtful, "noeviction, and %d of %d MiB are in use: when memory is full, new counters are refused", used>>20, limit>>20).Fix = "raise maxmemory, or look at the memory of each rule below"
	default:
		p.add("eviction", Fine, "noeviction, %d of %d MiB are in use", used>>20, limit>>20)
	}
	if n := p.number("evicted_keys"); n > 0 {
		p.add("eviction", Bad, "%d keys were evicted since the server started", n).Fix = "limits may have been given twice; see above"
	}
}

func (p *patient) persistence() {
	aof, rdb := p.info["aof_enabled"] == "1", p.info["rdb_last_bgsave_status"]
	switch {
	case p.info["redis_version"] == "":
	case rdb != "" && rdb != "ok":
		p.add("persistence", Bad, "the last snapshot failed (%s): the server may refuse writes with MISCONF", rdb).Fix = "look at its log and its disk; or CONFIG SET stop-writes-on-bgsave-error no"
	case aof && p.info["aof_last_write_status"] != "ok":
		p.add("persistence", Bad, "the last write of the append-only file failed").Fix = "look at the server's log and its disk"
	case aof:
		p.add("persistence", Fine, "append-only file, loses a second at most if it is synced every second")
	default:
		p.add("persistence", Doubtful, "no append-only file: a restart forgets what was used since the last snapshot").Fix = "CONFIG SET appendonly yes, if a restart is to give no fresh start; or a learning period (docs/failures.md)"
	}
	if p.info["role"] == "slave" && p.info["master_link_status"] == "down" {
		p.add("replicas", Doubtful, "this replica has been without its primary for %v: when it takes over, what was used meanwhile is free again", time.Duration(p.number("master_link_down_since_seconds"))*time.Second).Fix = "its log says why: masterauth, the network, or a primary that is away"
	}
	if p.info["role"] == "master" && p.number("connected_slaves") == 0 {
		p.add("replicas", Doubtful, "no replica: while this server is away, rules do what on_store_error says").Fix = "add a replica and Sentinel, or run a cluster"
	}
}

func (p *patient) scripts() {
	if n := p.number("number_of_cached_scripts"); n > 1000 {
		p.add("scripts", Doubtful, "%d scripts are cached, %d KiB: somebody sends scripts with values in their text", n, p.number("used_memory_scripts")>>10).Fix = "Headgate has eight; find who sends the others"
	} else if p.info["number_of_cached_scripts"] != "" {
		p.add("scripts", Fine, "%d scripts are cached", n)
	}
	for _, name := range []string{"evalsha", "eval"} {
		stats := p.info["cmdstat_"+name]
		if stats == "" {
			continue
		}
		fields := make(map[string]string)
		for _, f := range strings.Split(stats, ",") {
			k, v, _ := strings.Cut(f, "=")
			fields[k] = v
		}
		usec, _ := strconv.ParseFloat(fields["usec_per_call"], 64)
		calls, _ := strconv.ParseInt(fields["calls"], 10, 64)
		level, fix := Fine, ""
		// The first calls of a script say nothing of those that follow.
		if name == "evalsha" && usec > 100 && calls >= 100 {
			level, fix = Doubtful, "a decision takes 1 to 20 µs; look at SLOWLOG, at other scripts on this server, and at its CPU"
		}
		p.add("script time", level, "%s: %d calls, %.1f µs each in the server", name, calls, usec).Fix = fix
	}
}

// latency is the time of round trips, with nothing to do in between.
func (p *patient) latency() error {
	times := make([]time.Duration, pings)
	for i := range times {
		start := time.Now()
		if err := answered(p.client.Do(p.ctx, p.client.B().Ping().Build()).Error()); err != nil {
			return err
		}
		times[i] = time.Since(start)
	}
	slices.Sort(times)
	p50, p99 := times[pings/2], times[pings*99/100]
	level, fix := Fine, ""
	if p99 > 10*time.Millisecond {
		level, fix = Doubtful, "look at the network and at what else the server does; set --store-timeout above this, or requests fail"
	}
	p.add("latency", level, "a round trip takes %v in the middle, %v at p99, of %d", p50.Round(time.Microsecond), p99.Round(time.Microsecond), pings).Fix = fix
	return nil
}

// slow looks at what the server itself found slow.
func (p *patient) slow() {
	if n, err := p.client.Do(p.ctx, p.client.B().SlowlogLen().Build()).AsInt64(); err == nil {
		level, fix := Fine, ""
		if n > 0 {
			level, fix = Doubtful, "SLOWLOG GET tells which; while one runs, every decision waits"
		}
		p.add("slow log", level, "%d entries", n).Fix = fix
	}
	events, err := p.client.Do(p.ctx, p.client.B().LatencyLatest().Build()).ToArray()
	if err != nil {
		return
	}
	for _, e := range events {
		if parts, err := e.ToArray(); err == nil && len(parts) >= 4 {
			name, _ := parts[0].ToString()
			last, _ := parts[2].AsInt64()
			most, _ := parts[3].AsInt64()
			p.add("latency events", Doubtful, "%s: %d ms last, %d ms at most", name, last, most).Fix = "LATENCY DOCTOR says what to do"
		}
	}
}

// readClock compares the node's clock with ours, by the fastest of a few answers.
func (p *patient) readClock() error {
	best := nodeClock{name: p.name, doubt: time.Hour}
	for range 10 {
		before := time.Now()
		parts, err := p.client.Do(p.ctx, p.client.B().Time().Build()).AsStrSlice()
		after := time.Now()
		if err != nil {
			if _, refused := rueidis.IsRedisErr(err); refused {
				return nil // told by the decisions, which ask for the time
			}
			return err
		}
		if len(parts) != 2 {
			return fmt.Errorf("TIME has %d parts", len(parts))
		}
		seconds, _ := strconv.ParseInt(parts[0], 10, 64)
		micros, _ := strconv.ParseInt(parts[1], 10, 64)
		if doubt := after.Sub(before) / 2; doubt < best.doubt {
			best.doubt = doubt
			best.ahead = time.UnixMicro(seconds*1e6 + micros).Sub(before.Add(doubt))
		}
	}
	p.clock = best
	return nil
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

// sampled is what was seen of one rule.
type sampled struct{ keys, measured, bytes int64 }

// sample counts keys by rule, and measures some of them.
func (p *patient) sample(rules map[string]*sampled) {
	if p.info["role"] == "slave" {
		return // the same keys as its primary's
	}
	cursor, seen := uint64(0), 0
	for range scans {
		if seen >= sampleKeys {
			return
		}
		page, err := p.client.Do(p.ctx, p.client.B().Scan().Cursor(cursor).Match(globEscape(p.prefix)+"*").Count(scanCount).Build()).AsScanEntry()
		if err != nil {
			p.add("memory", Doubtful, "keys cannot be sampled: %v", err).Fix = "let the doctor's user run SCAN"
			return
		}
		for _, key := range page.Elements {
			name, _, ok := strings.Cut(strings.TrimPrefix(key, p.prefix), " ")
			if !ok || name == "" {
				continue // not a counter
			}
			if open := strings.IndexByte(name, '{'); open >= 0 {
				name = name[:open]
			}
			seen++
			r := rules[name]
			if r == nil {
				r = new(sampled)
				rules[name] = r
			}
			if r.keys++; r.keys > measuredKeys {
				continue
			}
			if n, err := p.client.Do(p.ctx, p.client.B().MemoryUsage().Key(key).Build()).AsInt64(); err == nil {
				r.measured, r.bytes = r.measured+1, r.bytes+n
			}
		}
		if cursor = page.Cursor; cursor == 0 {
			return
		}
	}
}

// globEscape has a text stand for itself in a pattern.
func globEscape(s string) string {
	return strings.NewReplacer(`\`, `\\`, `*`, `\*`, `?`, `\?`, `[`, `\[`, `]`, `\]`).Replace(s)
}
