package replay

import (
	"hash/maphash"
	"net/http"
	"slices"
	"strings"
	"time"

	"github.com/headgate/headgate"
	"github.com/headgate/headgate/internal/identity"
	"github.com/headgate/headgate/internal/routes"
	"github.com/headgate/headgate/internal/spelling"
	"github.com/headgate/headgate/policy"
	"github.com/headgate/headgate/policy/models"
	"github.com/headgate/headgate/tune/accesslog"
)

// outcome is what a policy does with one request.
type outcome struct {
	decided   bool                // by checks; the rest up to listed is only set then
	denies    uint64              // a bit for each check that denies it
	together  uint64              // the same if the requests of its second come at once
	decisions []headgate.Decision // only if the request is denied or delayed, or the decider tells all
	verdict   headgate.Verdict    // likewise, but for Allowed
	listed    *policy.ListEntry   // the entry of the deny list that denies it
	allowed   bool
	bunched   bool // allowed if all requests of its second came at once
	refused   bool // it cannot be decided, so every door refuses it
	unclear   bool // servers read its path in different ways
}

// by returns the name of the rule, or the entry of the deny list, that denies the request.
func (o *outcome) by() string {
	switch {
	case o.allowed:
		return ""
	case o.listed != nil:
		return "deny list: " + o.listed.Name
	}
	if d := o.verdict.Deciding(); d != nil {
		return d.Rule.Name()
	}
	return "refused"
}

// The ways of a decider's counters.
const (
	spread  = iota // the requests of each second come evenly
	bunched        // they all come at its beginning
)

// decider decides requests by one policy.
type decider struct {
	facts    *facts
	bindings *bindings
	counters *counters

	binding *binding      // of the last request
	used    *models.Usage // what the last request has used of a language model, or nil
	tellAll bool          // every outcome has its decisions
	out     outcome
}

func newDecider(set *policy.Set, entries []string) (*decider, []string) {
	f, problems := newFacts(set, entries)
	return &decider{facts: f, bindings: newBindings(set), counters: newCounters(1, maxCounters)}, problems
}

// coarse makes the decider also decide as if all requests of a second came at once. It has not decided
// any yet.
func (d *decider) coarse() { d.counters = newCounters(2, maxCounters) }

// twice reports whether coarse was called.
func (d *decider) twice() bool { return d.counters.ways > 1 }

// decide decides a request. The outcome is valid until the next call.
func (d *decider) decide(r *accesslog.Request) *outcome {
	o := &d.out
	*o = outcome{decisions: o.decisions[:0], allowed: true, bunched: true}
	var descriptor policy.Descriptor
	descriptor, o.unclear = d.facts.of(r)
	if d.used = nil; d.facts.usage != nil {
		d.used = d.facts.usage.Of(r)
	}
	b := d.bindings.of(descriptor, d.used)
	d.binding = b
	switch {
	case b.refused:
		o.allowed, o.bunched, o.refused = false, false, true
		return o
	case b.denied != nil:
		o.listed, o.allowed, o.bunched = b.denied, false, false
		return o
	case len(b.checks) == 0:
		return o
	}
	at := d.counters.of(&b.counters, b.checks, headgate.Instant(r.Time))
	o.decided = true
	o.denies = d.take(spread, headgate.Instant(r.Spread), r, at, &o.decisions)
	o.verdict = headgate.NewVerdict(o.decisions)
	o.allowed = admits(b.checks, o.denies)
	o.bunched = o.allowed
	if d.twice() {
		o.together = d.take(bunched, headgate.Instant(r.Time), r, at, nil)
		o.bunched = admits(b.checks, o.together)
	}
	return o
}

// take decides the request in one way, and refunds what is not charged for the status of the response.
func (d *decider) take(way int, now headgate.Instant, r *accesslog.Request, at []handle, dst *[]headgate.Decision) (refused uint64) {
	b := d.binding
	refused = d.counters.take(way, now, b.checks, at, dst, d.tellAll || b.delays)
	if r.Status == 0 || !b.awaits || !admits(b.checks, refused) {
		return refused
	}
	for i := range b.checks {
		c := &b.checks[i]
		if !d.bindings.set.Charged(c, int(r.Status)) {
			d.counters.refund(way, now, c, at)
		}
		at = at[len(c.Rule.Limits()):]
	}
	return refused
}

// facts makes descriptors from the requests of a log, for one policy.
type facts struct {
	names   *routes.Names
	entries []string     // of the log, beyond the usual ones
	apiKey  int          // the place of api_key among them, or -1
	usage   *UsageReader // nil if no rule counts what models use
	needs   struct{ ip, user, route, method, host, path bool }
	hosts   bool // some route has a host

	paths  map[target]where
	hosted map[string]string
	found  policy.Descriptor
}

// target is what determines the route and the path of a request.
type target struct{ method, host, path string }

// where is the route and the path of a target.
type where struct {
	route, path string
	unclear     bool
}

// maxTargets bounds the remembered targets, so that clients with made-up paths cannot fill the
// memory.
const maxTargets = 1 << 15

func newFacts(set *policy.Set, entries []string) (*facts, []string) {
	f := &facts{entries: entries, apiKey: slices.Index(entries, "api_key"), paths: make(map[target]where), hosted: make(map[string]string)}
	if set.Counts() {
		f.usage = NewUsageReader(entries)
	}
	var problems []string
	f.names, problems = routes.New(set, 0)
	for _, name := range set.Entries() {
		switch name {
		case "ip":
			f.needs.ip = true
		case "user":
			f.needs.user = true
		case "route":
			f.needs.route, f.hosts = true, true
		case "method":
			f.needs.method = true
		case "host":
			f.needs.host = true
		case "path":
			f.needs.path = true
		}
	}
	return f, problems
}

// of returns the descriptor of the request, which is valid until the next call, and
// whether servers read its host or its path in different ways.
func (f *facts) of(r *accesslog.Request) (d policy.Descriptor, unclear bool) {
	d = f.found[:0]
	for i, name := range f.entries {
		if f.usage != nil && slices.Contains(f.usage.tokens[:], i) {
			continue
		}
		d = add(d, name, r.Entry(i))
	}
	if f.needs.ip {
		d = add(d, "ip", r.Text(r.IP))
	}
	if f.needs.user {
		d = add(d, "user", r.Text(r.User))
	}
	if f.needs.method {
		d = add(d, "method", r.Text(r.Method))
	}
	if f.needs.host || f.needs.route || f.needs.path {
		host, path := split(r)
		host, unclear = f.host(host)
		if f.needs.host {
			d = add(d, "host", host)
		}
		if f.needs.route || f.needs.path {
			w := f.where(target{r.Text(r.Method), host, path})
			if unclear = unclear || w.unclear; f.needs.route {
				d = add(d, "route", w.route)
			}
			if f.needs.path {
				d = add(d, "path", w.path)
			}
		}
	}
	f.found = d
	return d, unclear
}

// add adds an entry, unless its value is absent or longer than any door accepts.
func add(d policy.Descriptor, name, value string) policy.Descriptor {
	if value == "" || len(value) > policy.MaxValue {
		return d
	}
	return append(d, policy.Entry{Name: name, Value: value})
}

// split returns the host and the path of a request, whose target may be a whole URL.
func split(r *accesslog.Request) (host, path string) {
	host, path = r.Text(r.Host), r.Text(r.Target)
	if path != "" && path[0] != '/' {
		if _, rest, ok := strings.Cut(path, "://"); ok {
			i := strings.IndexAny(rest, "/?#")
			if i < 0 {
				i = len(rest)
			}
			host, path = rest[:i], rest[i:]
		}
	}
	if i := strings.IndexByte(path, '?'); i >= 0 {
		path = path[:i]
	}
	return host, path
}

// host returns a host in its canonical form, and whether it can be read in different ways.
func (f *facts) host(text string) (host string, unclear bool) {
	if text == "" {
		return "", false
	}
	host, known := f.hosted[text]
	if !known {
		if len(f.hosted) == maxTargets {
			clear(f.hosted)
		}
		host, _ = identity.Hostname(text)
		host = strings.Clone(host)
		f.hosted[strings.Clone(text)] = host
	}
	return host, host == ""
}

// where returns the route and the path of a target, as the doors determine them.
func (f *facts) where(t target) where {
	w, known := f.paths[t]
	if known {
		return w
	}
	t = target{strings.Clone(t.method), strings.Clone(t.host), strings.Clone(t.path)}
	if len(f.paths) == maxTargets {
		clear(f.paths)
	}
	w.route = routes.Unmatched
	p, wrong := spelling.Read(t.path, f.names.Forms())
	if wrong == nil && f.needs.path && p.Kept != nil {
		wrong = &spelling.Error{Reason: spelling.Parameters, At: p.At}
	}
	if wrong == nil {
		w.path = p.Text
		if f.needs.route {
			var route string
			if route, wrong = f.names.Find(&http.Request{Method: t.method, Host: t.host, URL: p.URL()}, &p); wrong == nil {
				w.route = route
			}
		}
	}
	if t.path == "*" {
		wrong, w.path = nil, "*"
	}
	w.unclear = wrong != nil
	f.paths[t] = w
	return w
}

// binding is what a policy says about all requests with one descriptor.
type binding struct {
	descriptor policy.Descriptor
	hash       uint64 // of the values of the descriptor
	known      bool   // the place is in use
	refused    bool   // no door could decide such a request
	awaits     bool   // what is charged depends on the status of the response
	delays     bool   // a limit may hold requests back
	checks     []headgate.Check
	denied     *policy.ListEntry
	counters   handles
	tried      handles   // those of the curve
	counts     []counted // by check, if the request was counted
	// client has the counts of the client called name, the first with this descriptor; nil if it is
	// not known yet. Mostly it is the only one.
	client *client
	name   string
}

// counted is what is counted for a check.
type counted struct {
	list *listCounts // nil if none
	hash uint64      // of the key
}

// bindings remembers the bindings of recent descriptors, because matching a descriptor against the
// rules costs about as much as deciding the checks. A descriptor has one place, and the newest one
// keeps it.
type bindings struct {
	set    *policy.Set
	seed   maphash.Seed
	places []binding
	other  binding     // of the last request that is not remembered: its descriptor is too long, or it has a usage
	ends   []time.Time // when overrides and list entries end that have not ended yet
}

// The bounds of what is remembered: some megabytes, whatever clients send.
const (
	maxBindings     = 1 << 13 // a power of two
	maxBindingBytes = 512
)

func newBindings(set *policy.Set) *bindings {
	b := &bindings{set: set, seed: maphash.MakeSeed(), places: make([]binding, maxBindings)}
	end := func(until time.Time) {
		if !until.IsZero() {
			b.ends = append(b.ends, until)
		}
	}
	for _, list := range [][]policy.ListEntry{set.Denied(), set.Allowed()} {
		for i := range list {
			end(list[i].Until)
		}
	}
	for i := range set.Rules() {
		for _, o := range set.Rules()[i].Overrides {
			end(o.Until)
		}
	}
	slices.SortFunc(b.ends, time.Time.Compare)
	return b
}

// of returns the binding of a descriptor. It is valid until the next call.
func (b *bindings) of(d policy.Descriptor, u *models.Usage) *binding {
	// Between two ends, the binding depends on the descriptor alone.
	for len(b.ends) > 0 && b.set.Ended(b.ends[0]) {
		b.ends = b.ends[1:]
		clear(b.places)
	}
	hash, size := uint64(0), 0
	for i := range d {
		hash = hash*0x9e3779b97f4a7c15 ^ maphash.String(b.seed, d[i].Value)
		size += len(d[i].Value)
	}
	place := &b.other
	// What differs from call to call is not worth remembering.
	if u == nil && size <= maxBindingBytes {
		place = &b.places[hash%maxBindings]
		if place.known && place.hash == hash && slices.Equal(place.descriptor, d) {
			return place
		}
	}
	b.fill(place, d, u)
	place.hash = hash
	return place
}

// fill makes the binding of a descriptor.
func (b *bindings) fill(p *binding, d policy.Descriptor, u *models.Usage) {
	// Keys may share memory with the values, so the values must be as lasting as the binding.
	p.descriptor = append(p.descriptor[:0], d...)
	for i := range p.descriptor {
		p.descriptor[i].Value = strings.Clone(p.descriptor[i].Value)
	}
	found, err := b.set.DecideUsage(p.descriptor, 1, u, p.checks[:0])
	p.checks, p.denied, p.refused = found.Checks, found.Denied, err != nil
	p.known, p.awaits, p.delays = true, b.set.Awaits(p.checks), false
	for i := range p.checks {
		p.delays = p.delays || slices.ContainsFunc(p.checks[i].Rule.Limits(), func(l headgate.Limit) bool { return l.Algorithm == headgate.LeakyBucket })
	}
	p.counters.generation, p.tried.generation = 0, 0
	p.client, p.name, p.counts = nil, "", p.counts[:0]
}
