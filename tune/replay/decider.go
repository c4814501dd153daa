package replay

import (
	"context"
	"hash/maphash"
	"net/http"
	"slices"
	"strings"
	"sync/atomic"
	"time"

	"github.com/headgate/headgate"
	"github.com/headgate/headgate/internal/identity"
	"github.com/headgate/headgate/internal/routes"
	"github.com/headgate/headgate/internal/spelling"
	"github.com/headgate/headgate/policy"
	"github.com/headgate/headgate/store/memory"
	"github.com/headgate/headgate/tune/accesslog"
)

// outcome is what a policy does with one request.
type outcome struct {
	decisions []headgate.Decision
	verdict   headgate.Verdict
	listed    *policy.ListEntry // the entry of the deny list that denies it
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

// timed is a store whose clock shows only the time that is set.
type timed struct {
	*memory.Store
	now atomic.Int64
}

func newTimed(bytes int64) *timed {
	t := new(timed)
	t.Store = memory.New(memory.Clock(t.now.Load), memory.MaxBytes(bytes))
	return t
}

// decider decides requests by one policy.
type decider struct {
	facts    *facts
	bindings *bindings
	spread   *timed
	bunched  *timed // nil if the log's times are fine

	binding  *binding      // of the last request
	used     *policy.Usage // what the last request has used of a language model, or nil
	refunds  []headgate.Check
	together []headgate.Decision
	out      outcome
}

// storeBytes bounds the memory of each store. A million keys take about a tenth of it.
const storeBytes = memory.DefaultMaxBytes

func newDecider(set *policy.Set, entries []string) (*decider, []string) {
	f, problems := newFacts(set, entries)
	return &decider{facts: f, bindings: newBindings(set), spread: newTimed(storeBytes)}, problems
}

// coarse makes the decider also decide as if all requests of a second came at once.
func (d *decider) coarse() { d.bunched = newTimed(storeBytes) }

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
	d.spread.now.Store(r.Spread)
	o.decisions = d.take(d.spread, o.decisions, b, r)
	o.verdict = headgate.NewVerdict(o.decisions)
	o.allowed, o.bunched = o.verdict.Allowed, o.verdict.Allowed
	if d.bunched != nil {
		d.bunched.now.Store(r.Time)
		d.together = d.take(d.bunched, d.together[:0], b, r)
		o.bunched = allowed(d.together)
	}
	return o
}

// take asks a store, and refunds what is not charged for the status of the response.
func (d *decider) take(s *timed, dst []headgate.Decision, b *binding, r *accesslog.Request) []headgate.Decision {
	dst, err := s.Take(context.Background(), headgate.OpTake, b.checks, dst)
	if err != nil {
		// The checks come from a valid policy, and a memory store has no other errors.
		panic(err)
	}
	if r.Status == 0 || !b.awaits || !allowed(dst) {
		return dst
	}
	d.refunds = slices.DeleteFunc(append(d.refunds[:0], b.checks...), func(c headgate.Check) bool { return d.bindings.set.Charged(&c, int(r.Status)) })
	if len(d.refunds) > 0 {
		for i := range d.refunds {
			d.refunds[i].At = dst[0].At
		}
		if _, err := s.Take(context.Background(), headgate.OpRefund, d.refunds, nil); err != nil {
			panic(err)
		}
	}
	return dst
}

// allowed returns the verdict of the decisions.
func allowed(decisions []headgate.Decision) bool {
	for i := range decisions {
		if d := &decisions[i]; !d.Allowed && !d.Shadow {
			return false
		}
	}
	return true
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
	known      bool // the place is in use
	refused    bool // no door could decide such a request
	awaits     bool // what is charged depends on the status of the response
	checks     []headgate.Check
	denied     *policy.ListEntry
	// client has the counts of the client called name, the first with this descriptor; nil if it is
	// not known yet. Mostly it is the only one.
	client *client
	name   string
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
func (b *bindings) of(d policy.Descriptor, u *policy.Usage) *binding {
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
		if place.known && slices.Equal(place.descriptor, d) {
			return place
		}
	}
	b.fill(place, d, u)
	return place
}

// fill makes the binding of a descriptor.
func (b *bindings) fill(p *binding, d policy.Descriptor, u *policy.Usage) {
	// Keys may share memory with the values, so the values must be as lasting as the binding.
	p.descriptor = append(p.descriptor[:0], d...)
	for i := range p.descriptor {
		p.descriptor[i].Value = strings.Clone(p.descriptor[i].Value)
	}
	found, err := b.set.DecideUsage(p.descriptor, 1, u, p.checks[:0])
	p.checks, p.denied, p.refused = found.Checks, found.Denied, err != nil
	p.known, p.awaits = true, b.set.Awaits(p.checks)
	p.client, p.name = nil, ""
}
