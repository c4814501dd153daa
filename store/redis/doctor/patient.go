package doctor

import (
	"context"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/redis/rueidis"

	"github.com/headgate/headgate/store/redis/internal/refusal"
)

// patient is a server while it is examined.
type patient struct {
	ctx    context.Context //nolint:containedctx // a patient lives as long as one examination
	client rueidis.Client
	name   string
	prefix string
	d      *Diagnosis
	clock  nodeClock
	info   map[string]string
}

// nodeClock says how far a server's clock is ahead of this machine's. doubt is the largest error of
// ahead: half a round trip.
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
		p.add("info", Doubtful, "INFO is refused: %v", err).Fix = "run the doctor as a user who may call INFO, SLOWLOG, LATENCY, SCAN and MEMORY"
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

// parseInfo returns the fields of an answer to INFO or CLUSTER INFO by their names.
func parseInfo(text string) map[string]string {
	info := make(map[string]string)
	for line := range strings.Lines(strings.TrimPrefix(text, "txt:")) { // RESP3 marks a text so
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
		p.add("scripts", Doubtful, "%d scripts are cached, %d KiB: somebody sends scripts with values in their text", n, p.number("used_memory_scripts")>>10).Fix = "Headgate has fewer than a dozen; find out who sends the others"
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
		// The first calls of a script take longer than those that follow.
		if name == "evalsha" && usec > 100 && calls >= 100 {
			level, fix = Doubtful, "a decision takes 1 to 20 µs; look at SLOWLOG, at other scripts on this server, and at its CPU"
		}
		p.add("script time", level, "%s: %d calls, %.1f µs each in the server", name, calls, usec).Fix = fix
	}
}

// latency measures round trips of PING.
func (p *patient) latency() error {
	times := make([]time.Duration, pings)
	for i := range times {
		start := time.Now()
		if err := refusal.Answered(p.client.Do(p.ctx, p.client.B().Ping().Build()).Error()); err != nil {
			return err
		}
		times[i] = time.Since(start)
	}
	slices.Sort(times)
	p50, p99 := times[pings/2], times[pings*99/100]
	level, fix := Fine, ""
	if p99 > 10*time.Millisecond {
		level, fix = Doubtful, "look at the network and at the server's other work; if --store-timeout is not above this, requests fail"
	}
	p.add("latency", level, "a round trip takes %v at p50, %v at p99, of %d", p50.Round(time.Microsecond), p99.Round(time.Microsecond), pings).Fix = fix
	return nil
}

// slow adds what the server itself has recorded as slow.
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

// readClock compares the server's clock with this machine's. Of ten answers it uses the one that
// came fastest, because its error is the smallest.
func (p *patient) readClock() error {
	best := nodeClock{name: p.name, doubt: time.Hour}
	for range 10 {
		before := time.Now()
		parts, err := p.client.Do(p.ctx, p.client.B().Time().Build()).AsStrSlice()
		after := time.Now()
		if err != nil {
			if _, refused := rueidis.IsRedisErr(err); refused {
				return nil // scripts ask for the time too, so that diagnoseDecisions reports it
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
