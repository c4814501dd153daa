// Package replay decides the requests of an access log by the rules of a policy, as if the rules
// had been in force, and counts the results.
//
// # Basics
//
//	clock := new(replay.Clock)
//	set, err := config.Load("proposed.yaml", policy.Clock(clock.Now))
//	...
//	r := replay.New(replay.Options{Policy: set, Clock: clock, Entries: log.Entries()})
//	for {
//		stretch, err := log.Next() // of package accesslog
//		if errors.Is(err, io.EOF) {
//			break
//		}
//		...
//		r.Add(stretch)
//		stretch.Release()
//	}
//	result := r.Result(log.Stats())
//
// # How it works
//
// Each line becomes the descriptor that a door of the service would have made for the request.
// [policy.Set.Decide] finds the checks, and package algorithm decides them at the time of the log. This
// is the same code as in production, but for the store: one goroutine that replays needs no locks and
// no clock, and decides each request under several assumptions at once. A test holds every decision
// against those of store/memory.
//
// # Times of whole seconds
//
// If the log has only whole seconds, requests are decided twice: once with the requests of
// each second spread evenly over it, and once with all of them at its beginning.
// The truth is between the two results; see [Interval].
//
// # Caveats
//
// Counters are empty when the log begins. A rule with a period of an hour denies too
// little in the first hour; see [Options.Warmup].
//
// Clients would have behaved differently if they had been denied. A replay says what the rules do
// with the demand in the log.
package replay

import (
	"cmp"
	"fmt"
	"hash/maphash"
	"slices"
	"strings"
	"sync/atomic"
	"time"

	"github.com/headgate/headgate"
	"github.com/headgate/headgate/policy"
	"github.com/headgate/headgate/tune/accesslog"
	"github.com/headgate/headgate/tune/clients"
)

// Options say how to replay a log.
type Options struct {
	// Policy has the rules. Required.
	Policy *policy.Set
	// Against has the rules in force, for comparison; nil means none.
	Against *policy.Set
	// Clock is the clock with which the policies were loaded; nil if they have none.
	Clock *Clock
	// Entries are the names of the entries that requests of the log have, in their order:
	// those of accesslog.Log.Entries.
	Entries []string
	// Client is the entry that distinguishes clients in the report: ip, user, or one of Entries.
	// Empty means the first of api_key, user and ip that a request has.
	Client string
	// Warmup is how long, from the first request on, requests are decided but not counted.
	Warmup time.Duration
	// Curve is how many requests, from the first on, are tried with lower and higher limits. Zero
	// means none.
	Curve int64
	// Top is how many clients are reported; zero means DefaultTop.
	Top int
	// Differences is how many of the requests that the two policies decide differently are listed.
	Differences int
	// Anonymize replaces the names of clients by pseudonyms, and leaves out all texts of the log.
	Anonymize bool
	// Decided is called for each request with its decisions, for tests. It may be nil.
	Decided func(r *accesslog.Request, decisions []headgate.Decision, allowed bool)
}

// The defaults and bounds of [Options].
const (
	DefaultTop   = 20
	DefaultCurve = 200_000
	// MaxClients is how many clients the report distinguishes. Decisions do not depend on it.
	MaxClients = 1 << 20
)

// Replay decides the requests of a log. It is not safe for concurrent use. Make one with [New].
type Replay struct {
	o        Options
	decider  *decider
	against  *decider
	curve    *curve
	problems []string

	begun       bool
	from, to    int64
	counted     int64 // the time from which requests are counted
	rules       []*ruleCounts
	lists       []*listCounts
	listsOf     map[*headgate.Rule]*listCounts
	deniedBy    map[string]int64 // entries of the deny list, and "refused"
	seed        maphash.Seed
	clients     *clients.Table[client]
	robots      clients.Robots
	series      series
	differences differences
	anonymous   []byte
	result      Result
}

// client has the counts of a client.
type client struct {
	firstDenied int64
	requests    uint32
	denied      uint32
	bunched     uint32
	limited     uint32
	newlyDenied uint32
	by          uint16 // one more than the number of the rule that denied it last
	kind        uint8  // the kind of entry that names it
	known       bool
	robot       bool
}

// kinds are the entries that may name a client.
var kinds = []string{"api_key", "user", "ip"}

// ruleCounts has the counts of a rule.
type ruleCounts struct {
	rule                     *policy.Rule
	requests, denied         int64
	bunched, shadow, delayed int64
	keys                     distinct
	alive                    peak
	lists                    []*listCounts
}

// listCounts has the counts of one list of limits of a rule, such as that of a tier.
type listCounts struct {
	of               *ruleCounts
	number           uint16
	name             string // "" if the rule has but one
	requests, denied int64
	shadow           int64
}

// New returns a replay that has not seen any requests. See [Replay.Problems].
func New(o Options) *Replay {
	o.Top = cmp.Or(o.Top, DefaultTop)
	if o.Clock == nil {
		o.Clock = new(Clock)
	}
	p := &Replay{o: o, curve: newCurve(o.Curve), listsOf: make(map[*headgate.Rule]*listCounts), deniedBy: make(map[string]int64), seed: maphash.MakeSeed(), clients: clients.New[client](MaxClients)}
	p.decider, p.problems = newDecider(o.Policy, o.Entries)
	p.decider.tellAll = o.Decided != nil
	if o.Against != nil {
		p.against, _ = newDecider(o.Against, o.Entries)
		p.differences.max = o.Differences
	}
	rules := o.Policy.Rules()
	for i := range rules {
		if rules[i].Direct {
			continue // No descriptor meets it.
		}
		p.addRule(&rules[i])
	}
	return p
}

func (p *Replay) addRule(r *policy.Rule) {
	c := &ruleCounts{rule: r, keys: newDistinct()}
	longest := int64(time.Minute / time.Microsecond)
	add := func(name string, limits *headgate.Rule) {
		if limits == nil || p.listsOf[limits] != nil {
			return
		}
		l := &listCounts{of: c, name: name, number: uint16(len(p.lists))}
		c.lists, p.lists, p.listsOf[limits] = append(c.lists, l), append(p.lists, l), l
		for i := range limits.Limits() {
			longest = max(longest, limits.Limits()[i].Micros())
		}
	}
	if r.Tariff != nil {
		for _, t := range r.Tariff.Tiers {
			add(t.Value, t.Limits)
		}
		add("*", r.Tariff.Other)
	} else {
		add("", r.Limits)
	}
	for i := range r.Overrides {
		add(fmt.Sprintf("override %d", i+1), r.Overrides[i].Limits)
	}
	c.alive = peak{distinct: newDistinct(), length: longest}
	p.rules = append(p.rules, c)
}

// ahead is how many requests before its turn the line of a request is prefetched.
const ahead = 3

// Add decides the requests of a stretch.
func (p *Replay) Add(s *accesslog.Stretch) {
	for i := range s.Requests {
		if i+ahead < len(s.Requests) {
			s.Requests[i+ahead].Prefetch()
		}
		p.add(&s.Requests[i])
	}
}

func (p *Replay) add(r *accesslog.Request) {
	if !p.begun {
		p.begun, p.from, p.counted = true, r.Time, r.Time+p.o.Warmup.Microseconds()
		if !r.Fine {
			p.decider.coarse()
			if p.against != nil {
				p.against.coarse()
			}
		}
	}
	p.to = r.Time
	p.o.Clock.set(r.Spread)
	o := p.decider.decide(r)
	var other *outcome
	if p.against != nil {
		other = p.against.decide(r)
	}
	if p.o.Decided != nil {
		p.o.Decided(r, o.decisions, o.allowed)
	}
	if p.curve.left > 0 {
		p.curve.add(p.decider, r)
	}
	if r.Time < p.counted {
		p.result.Warmup++
		return
	}
	p.count(r, o, other)
}

// count counts a request.
func (p *Replay) count(r *accesslog.Request, o, other *outcome) {
	res := &p.result
	res.Requests++
	point := p.series.at(r.Time)
	point.Requests++
	limited := r.Status == 429
	if limited {
		point.Limited++
		res.Limited++
	}
	if o.unclear {
		res.Unclear++
	}
	p.countUsage(r)
	by := p.countLists(r, o)
	if o.allowed {
		res.Admitted++
		if delay := o.verdict.Delay; delay > 0 {
			res.Delayed++
			res.delays += delay
			res.LongestDelayMS = max(res.LongestDelayMS, delay.Milliseconds())
		}
	} else {
		res.Denied++
		point.Denied++
		if len(o.decisions) == 0 {
			p.deniedBy[o.by()]++
		}
	}
	if !o.bunched {
		res.bunched++
	}
	c := p.client(r)
	if c == nil {
		c = new(client) // Beyond those that are told apart.
	}
	c.requests++
	if limited {
		c.limited++
	}
	if !o.bunched {
		c.bunched++
	}
	if !o.allowed {
		if c.denied++; c.denied == 1 {
			c.firstDenied = r.Spread
		}
		c.by = by
	}
	if other != nil {
		p.differ(r, c, o, other)
	}
}

// countUsage counts what the request has used of a language model.
func (p *Replay) countUsage(r *accesslog.Request) {
	from, m := p.decider.facts.usage, &p.result.Models
	u := p.decider.used
	switch {
	case from == nil:
	case u == nil && from.model >= 0 && r.Entry(from.model) != "":
		m.Unknown++
	case u != nil:
		m.Calls++
		m.InputTokens += u.Input
		m.OutputTokens += u.Output
		if micros, priced := p.o.Policy.Models().Micros(u); priced {
			m.micros += micros
		}
	}
}

// countLists counts the request for each list of limits that bound it. It returns one more than the
// number of the list that denied it, or 0.
func (p *Replay) countLists(r *accesslog.Request, o *outcome) (by uint16) {
	if !o.decided {
		return 0
	}
	deciding := (*headgate.Rule)(nil)
	if !o.allowed {
		if d := o.verdict.Deciding(); d != nil {
			deciding = d.Rule
		}
	}
	b := p.decider.binding
	if len(b.counts) == 0 {
		for _, c := range b.checks {
			b.counts = append(b.counts, counted{p.listsOf[c.Rule], maphash.String(p.seed, c.Key)})
		}
	}
	delayed := uint64(0)
	for i := range o.decisions {
		if d := &o.decisions[i]; d.Delay > 0 && o.allowed {
			delayed |= 1 << d.Check
		}
	}
	for i := range b.checks {
		l, bit := b.counts[i].list, uint64(1)<<i
		if l == nil {
			continue
		}
		l.of.keys.add(b.counts[i].hash)
		l.of.alive.add(b.counts[i].hash, r.Time)
		l.requests++
		l.of.requests++
		switch c := &b.checks[i]; {
		case c.Shadow:
			if o.denies&bit != 0 {
				l.shadow++
				l.of.shadow++
			}
		default:
			if o.denies&bit != 0 {
				l.denied++
				l.of.denied++
			}
			if o.together&bit != 0 {
				l.of.bunched++
			}
			if c.Rule == deciding {
				by = l.number + 1
			}
		}
		if delayed&bit != 0 {
			l.of.delayed++
		}
	}
	return by
}

// client returns the client of a request, or nil if too many are known already.
func (p *Replay) client(r *accesslog.Request) *client {
	name, kind := p.name(r)
	b := p.decider.binding
	if b.client != nil && b.name == name {
		return b.client
	}
	c := p.clients.Find(name)
	if c == nil {
		return nil
	}
	if !c.known {
		c.known, c.kind = true, kind
		c.robot = p.robots.Is(r.Text(r.Agent))
	}
	if b.client == nil {
		b.client, b.name = c, strings.Clone(name)
	}
	return c
}

// name returns the client's name, and the kind of entry that it comes from.
func (p *Replay) name(r *accesslog.Request) (name string, kind uint8) {
	f := p.decider.facts
	switch p.o.Client {
	case "":
	case "ip":
		return r.Text(r.IP), 2
	case "user":
		return r.Text(r.User), 1
	default:
		if i := slices.Index(p.o.Entries, p.o.Client); i >= 0 {
			if p.o.Client == "api_key" {
				return r.Entry(i), 0
			}
			return r.Entry(i), 3
		}
	}
	if f.apiKey >= 0 {
		if key := r.Entry(f.apiKey); key != "" {
			return key, 0
		}
	}
	if user := r.Text(r.User); user != "" {
		return user, 1
	}
	return r.Text(r.IP), 2
}

// shown returns the name of a client in the report.
func (p *Replay) shown(name string, kind uint8) string {
	what := p.o.Client
	if int(kind) < len(kinds) {
		what = kinds[kind]
	}
	switch {
	case name == "":
		return "(none)"
	case p.o.Anonymize:
		return p.pseudonym(name)
	case p.o.Policy.Secret(what):
		return policy.HashMark + p.o.Policy.Hash(what, name)
	}
	return strings.Clone(name)
}

// Clock is the time of the log. Load policies with overrides or list entries that end at a certain
// time with policy.Clock(clock.Now). A Clock is safe for concurrent use.
type Clock struct{ micros atomic.Int64 }

// Now returns the time of the request that is being decided.
func (c *Clock) Now() time.Time { return time.UnixMicro(c.micros.Load()) }

func (c *Clock) set(micros int64) { c.micros.Store(micros) }

// series counts requests over time, in at most maxPoints intervals of equal length.
type series struct {
	width  int64 // in microseconds
	first  int64 // the beginning of the first stretch
	end    int64 // of the current one
	points []Point
}

const maxPoints = 240

// Point is one stretch of time.
type Point struct {
	Requests int64 `json:"requests"`
	Denied   int64 `json:"denied"`
	// Limited is how many requests the server itself answered with 429.
	Limited int64 `json:"limited_in_log"`
}

// at returns the point of a time. Times do not go back.
func (s *series) at(micros int64) *Point {
	if micros < s.end {
		return &s.points[len(s.points)-1]
	}
	if s.points == nil {
		s.width = 1_000_000
		s.first = micros - micros%s.width
	}
	for micros-s.first >= s.width*maxPoints {
		s.double()
	}
	n := int((micros - s.first) / s.width)
	for len(s.points) <= n {
		s.points = append(s.points, Point{})
	}
	s.end = s.first + int64(n+1)*s.width
	return &s.points[n]
}

// double doubles the length of the intervals.
func (s *series) double() {
	n := 0
	for i := 0; i < len(s.points); i += 2 {
		p := s.points[i]
		if i+1 < len(s.points) {
			q := s.points[i+1]
			p = Point{p.Requests + q.Requests, p.Denied + q.Denied, p.Limited + q.Limited}
		}
		s.points[n] = p
		n++
	}
	s.points, s.width = s.points[:n], 2*s.width
}
