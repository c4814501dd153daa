// Package advise derives limits from what clients did, or from what a service can sustain. It
// writes them as a policy, with the numbers on which they are based.
//
// # Basics
//
//	o, err := advise.New(advise.Options{Per: "ip", Entries: log.Entries()})
//	... o.Add(stretch) for each stretch of the log
//	advice, err := o.Advise()
//	text := advice.YAML(nil)
//
// # How it works
//
// For each client and several window lengths, it finds the largest number of requests in any
// window. Robots that say so are left out, and so are outliers: the clients are sorted by that
// number, and if one above the 95th percentile has at least twice as much as the one before it,
// that client and all above are outliers. The demand is what most of the other clients never
// exceed, times the headroom. A token bucket is then fitted to pass the demand: its rate is that of
// the longest window, and its burst is what the shorter windows need in addition.
//
// # Caveats
//
// A robot that pretends to be a browser, and takes no more than people do, counts as a person. If
// there are fewer than fifty clients a day, or less than a day of logs, there is no advice.
package advise

import (
	"cmp"
	"fmt"
	"maps"
	"math"
	"net/http"
	"net/netip"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/headgate/headgate"
	"github.com/headgate/headgate/internal/routes"
	"github.com/headgate/headgate/internal/spelling"
	"github.com/headgate/headgate/policy/models"
	"github.com/headgate/headgate/tune/accesslog"
	"github.com/headgate/headgate/tune/clients"
	"github.com/headgate/headgate/tune/replay"
)

// Options say what to look at.
type Options struct {
	// Per is the entry that clients are told apart by: ip (whose IPv6 addresses count by
	// their /64), user, or one of Entries. Empty means ip.
	Per string
	// Entries are those of accesslog.Log.Entries.
	Entries []string
	// Tariff is one of Entries, by whose values there are limits of their own; empty for
	// none.
	Tariff string
	// Routes are patterns such as "GET /search" that get limits of their own.
	Routes []string
	// Counts is what the limits count: requests, or tokens of calls to language models, of which Entries must
	// tell. Money has no advice, because its prices are the policy's.
	Counts models.Counted
	// Percentile says what part of the clients, in percent, the limits are to leave alone.
	// Zero means DefaultPercentile.
	Percentile float64
	// Headroom is what their demand is multiplied by. Zero means DefaultHeadroom.
	Headroom float64
}

// The defaults of [Options], and what is too little to advise from.
const (
	DefaultPercentile = 99.9
	DefaultHeadroom   = 1.5
	// MinClients is how many clients there must be on most days, and MinTime how long the
	// log must be.
	MinClients = 50
	MinTime    = 24 * time.Hour
	// maxTiers bounds the values of Tariff.
	maxTiers = 50
)

// lengths are those of the windows.
var lengths = [...]time.Duration{time.Second, 10 * time.Second, time.Minute, 10 * time.Minute, time.Hour}

// usage is what is known of a client, within a group.
type usage struct {
	requests uint32
	day      int32 // the last day it was seen on, counted from 1970; zero for none
	robot    bool
	known    bool
	outlier  bool
	group    uint16
	windows  [len(lengths)]window
}

// window is the current window of one length, and the most that any had.
type window struct {
	at          int32 // which window it is
	count, most uint32
}

// group is a part of the requests that gets limits of its own. The first one is all.
type group struct {
	route, tier string
	requests    int64
}

// Observer counts what clients do. It is not for concurrent use. Make one with [New].
type Observer struct {
	o       Options
	usage   *replay.UsageReader // nil if requests are counted
	per     int                 // the place of Per among the entries; -1 for ip and -2 for user
	tariff  int
	table   routes.Table
	groups  []group
	tiers   map[string]uint16
	found   map[string]uint16 // the group of a route, by method and path
	clients *clients.Table[usage]
	robots  clients.Robots
	days    map[int32]int
	from    int64
	to      int64
	all     int64
	limited int64
	nobody  int64
	calls   int64 // requests that have what is counted
	key     []byte
}

// New returns an observer that has seen nothing. The error says what is wrong with the
// options.
func New(o Options) (*Observer, error) {
	o.Per, o.Percentile, o.Headroom = cmp.Or(o.Per, "ip"), cmp.Or(o.Percentile, DefaultPercentile), cmp.Or(o.Headroom, DefaultHeadroom)
	b := &Observer{o: o, per: slices.Index(o.Entries, o.Per), tariff: slices.Index(o.Entries, o.Tariff), groups: []group{{}}, tiers: make(map[string]uint16), found: make(map[string]uint16), clients: clients.New[usage](clientsMost), days: make(map[int32]int)}
	switch {
	case b.per >= 0:
	case o.Per == "ip":
		b.per = -1
	case o.Per == "user":
		b.per = -2
	default:
		return nil, fmt.Errorf("headgate: clients cannot be told apart by %q: the log has ip, user and what was mapped (%s)", o.Per, strings.Join(o.Entries, ", "))
	}
	if o.Tariff != "" && b.tariff < 0 {
		return nil, fmt.Errorf("headgate: there can be no tariff by %q, which was not mapped", o.Tariff)
	}
	if o.Percentile < 50 || o.Percentile > 100 || o.Headroom < 1 || o.Headroom > 100 {
		return nil, fmt.Errorf("headgate: the percentile is %g and the headroom %g, must be 50 to 100 and 1 to 100", o.Percentile, o.Headroom)
	}
	switch {
	case o.Counts == models.Requests:
	case o.Counts > models.Tokens:
		return nil, fmt.Errorf("headgate: there is no advice for limits that count %s", o.Counts)
	default:
		b.usage = replay.NewUsageReader(o.Entries)
	}
	for _, pattern := range o.Routes {
		if problem := b.table.Add(pattern); problem != "" {
			return nil, fmt.Errorf("headgate: the route %s", problem)
		}
		b.groups = append(b.groups, group{route: pattern})
	}
	return b, nil
}

// clientsMost bounds the clients of all groups together.
const clientsMost = 1 << 20

// Add counts the requests of a stretch.
func (b *Observer) Add(s *accesslog.Stretch) {
	for i := range s.Requests {
		b.add(&s.Requests[i])
	}
}

func (b *Observer) add(r *accesslog.Request) {
	if b.all == 0 {
		b.from = r.Spread
	}
	b.to = r.Spread
	b.all++
	if r.Status == http.StatusTooManyRequests {
		b.limited++
	}
	b.key = append(b.key[:0], 0, 0)
	if b.key = b.appendClient(b.key, r); len(b.key) == 2 {
		b.nobody++
		return
	}
	units := b.units(r)
	if units == 0 {
		return
	}
	b.calls++
	b.count(0, r, units)
	if g := b.routeOf(r); g != 0 {
		b.count(g, r, units)
	}
	if b.tariff >= 0 {
		if g := b.tierOf(r.Entry(b.tariff)); g != 0 {
			b.count(g, r, units)
		}
	}
}

// units is how much the request is of what the limits count.
func (b *Observer) units(r *accesslog.Request) uint32 {
	if b.usage == nil {
		return 1
	}
	u := b.usage.Of(r)
	switch {
	case u == nil:
		return 0
	case b.o.Counts == models.InputTokens:
		return uint32(u.Input)
	case b.o.Counts == models.OutputTokens:
		return uint32(u.Output)
	}
	return uint32(u.Input + u.Output)
}

// appendClient appends the client's name.
func (b *Observer) appendClient(dst []byte, r *accesslog.Request) []byte {
	switch b.per {
	case -2:
		return append(dst, r.Text(r.User)...)
	case -1:
		return appendNetwork(dst, r.Text(r.IP))
	}
	return append(dst, r.Entry(b.per)...)
}

// appendNetwork appends the network of an IPv6 address, and any other text as it is.
func appendNetwork(dst []byte, text string) []byte {
	if strings.IndexByte(text, ':') >= 0 {
		if a, err := netip.ParseAddr(text); err == nil {
			if p, err := a.Unmap().WithZone("").Prefix(min(64, a.Unmap().BitLen())); err == nil {
				return p.Addr().AppendTo(dst)
			}
		}
	}
	return append(dst, text...)
}

// count counts a request for its client in a group. The key has the client's name behind
// the two bytes of the group.
func (b *Observer) count(g uint16, r *accesslog.Request, units uint32) {
	b.groups[g].requests++
	b.key[0], b.key[1] = byte(g>>8), byte(g)
	u := b.clients.Find(string(b.key))
	if u == nil {
		return
	}
	if !u.known {
		u.known, u.group, u.robot = true, g, b.robots.Is(r.Text(r.Agent))
	}
	u.requests++
	if day := int32(r.Time / (24 * time.Hour).Microseconds()); u.day != day {
		if u.day = day; g == 0 && !u.robot {
			b.days[day]++
		}
	}
	for i := range lengths {
		w := &u.windows[i]
		if at := int32(r.Spread / lengths[i].Microseconds()); at != w.at {
			w.at, w.count = at, 0
		}
		w.count = uint32(min(uint64(w.count)+uint64(units), math.MaxUint32))
		w.most = max(w.most, w.count)
	}
}

// maxFound bounds what is remembered of paths.
const maxFound = 1 << 14

// routeOf is the group of the request's route; zero if it has none.
func (b *Observer) routeOf(r *accesslog.Request) uint16 {
	if len(b.o.Routes) == 0 {
		return 0
	}
	path, _, _ := strings.Cut(r.Text(r.Target), "?")
	key := r.Text(r.Method) + " " + path
	g, known := b.found[key]
	if !known {
		if len(b.found) == maxFound {
			clear(b.found)
		}
		if p, err := spelling.Read(path, 0); err == nil {
			pattern := b.table.Find(&http.Request{Method: strings.Clone(r.Text(r.Method)), URL: p.URL()}, &p)
			if i := slices.Index(b.o.Routes, pattern); i >= 0 {
				g = uint16(i + 1)
			}
		}
		b.found[key] = g
	}
	return g
}

// tierOf is the group of a tier; zero if the request has none, or there are too many.
func (b *Observer) tierOf(tier string) uint16 {
	if tier == "" {
		return 0
	}
	g, known := b.tiers[tier]
	if !known && len(b.tiers) < maxTiers {
		g = uint16(len(b.groups))
		tier = strings.Clone(tier)
		b.groups = append(b.groups, group{tier: tier})
		b.tiers[tier] = g
	}
	return g
}

// Limit is a token bucket, with the numbers on which it is based.
type Limit struct {
	// Count units refill in Period, and Burst is the most that pass at once.
	Count  int64
	Period time.Duration
	Burst  int64

	// Route or Tier says what the limit applies to, unless it applies to all requests.
	Route, Tier string
	Requests    int64
	// People is how many clients there are that are neither Robots nor Outliers.
	People, Robots, Outliers int
	// Windows are the numbers for windows of several lengths.
	Windows []Window
	// Skipped is why there is no limit; empty if there is one.
	Skipped string
}

// Window is the most that people did in any window of a given length.
type Window struct {
	Length             time.Duration
	P50, P95, P99, Top int64
	Chosen             int64 // the number at the percentile of the options
}

// String writes the limit as a policy has it.
func (l *Limit) String() string {
	period := map[time.Duration]string{time.Second: "1s", time.Minute: "1m", time.Hour: "1h"}[l.Period]
	return fmt.Sprintf("%d per %s burst %d", l.Count, period, l.Burst)
}

// MissingError says why there is no advice: the log does not show enough.
type MissingError struct{ Missing []string }

// Error lists what is missing.
func (e *MissingError) Error() string {
	return "headgate: the log is not enough to advise from: " + strings.Join(e.Missing, "; ")
}

// Advise fits limits to what was seen. The error is a [*MissingError] if that is not
// enough.
func (b *Observer) Advise() (*Advice, error) {
	var missing []string
	span := time.Duration(b.to-b.from) * time.Microsecond
	if b.all == 0 {
		return nil, &MissingError{[]string{"it has no requests"}}
	}
	if span < MinTime {
		missing = append(missing, fmt.Sprintf("it covers %v, and must cover at least %v, so that the busiest hours are in it", span.Round(time.Minute), MinTime))
	}
	if n := b.perDay(); n < MinClients {
		missing = append(missing, fmt.Sprintf("it has %d clients a day that are no robots, and must have at least %d, so that a percentile means something", n, MinClients))
	}
	if b.usage != nil && b.calls == 0 {
		missing = append(missing, "no line has tokens; --map input_tokens=FIELD and output_tokens=FIELD say where they are")
	}
	if b.nobody*2 > b.all {
		missing = append(missing, fmt.Sprintf("%d of %d requests have no %s; map the field that says who sent them", b.nobody, b.all, b.o.Per))
	}
	if missing != nil {
		return nil, &MissingError{missing}
	}
	a := &Advice{
		Counts: b.o.Counts, Per: b.o.Per, Tariff: b.o.Tariff, Percentile: b.o.Percentile, Headroom: b.o.Headroom, Requests: b.all, Limited: b.limited, PerDay: b.perDay(),
		From: time.UnixMicro(b.from).UTC(), To: time.UnixMicro(b.to).UTC(), outliers: make(map[string]bool),
	}
	groups := make([][]*usage, len(b.groups))
	names := make(map[*usage]string)
	for name, u := range b.clients.All() {
		groups[u.group] = append(groups[u.group], u)
		if u.group == 0 {
			names[u] = name[2:]
		}
	}
	for i := range groups {
		l := b.fit(groups[i])
		l.Route, l.Tier, l.Requests = b.groups[i].route, b.groups[i].tier, b.groups[i].requests
		a.Limits = append(a.Limits, l)
	}
	for u, name := range names {
		if u.outlier {
			a.outliers[strings.Clone(name)] = true
			a.outlierRequests += int64(u.requests)
		}
	}
	return a, nil
}

// perDay is how many people there are on half of the days at least.
func (b *Observer) perDay() int {
	counts := slices.Sorted(maps.Values(b.days))
	if counts == nil {
		return 0
	}
	return counts[len(counts)/2]
}

// fit finds the limit for the clients of a group.
func (b *Observer) fit(all []*usage) (l Limit) {
	var people []*usage
	for _, u := range all {
		if u.robot {
			l.Robots++
		} else {
			people = append(people, u)
		}
	}
	for i := range lengths {
		markOutliers(people, i)
	}
	n := len(people)
	people = slices.DeleteFunc(people, func(u *usage) bool { return u.outlier })
	l.People, l.Outliers = len(people), n-len(people)
	if l.People < MinClients {
		l.Skipped = fmt.Sprintf("it has %d clients that are no robots, and needs at least %d", l.People, MinClients)
		return l
	}
	for i, length := range lengths {
		most := peaks(people, i)
		l.Windows = append(l.Windows, Window{length, at(most, 50), at(most, 95), at(most, 99), at(most, 100), at(most, b.o.Percentile)})
	}
	// The longest window says how fast it must go on, and the others how much more must
	// pass at once.
	last := l.Windows[len(l.Windows)-1]
	rate := b.o.Headroom * float64(last.Chosen) / last.Length.Seconds()
	for _, l.Period = range []time.Duration{time.Second, time.Minute, time.Hour} {
		if rate*l.Period.Seconds() >= 5 {
			break
		}
	}
	l.Count = max(1, int64(math.Ceil(rate*l.Period.Seconds())))
	rate = float64(l.Count) / l.Period.Seconds()
	for _, w := range l.Windows {
		l.Burst = max(l.Burst, int64(math.Ceil(b.o.Headroom*float64(w.Chosen)-rate*w.Length.Seconds())))
	}
	l.Count, l.Burst = min(l.Count, headgate.MaxCount), min(max(l.Burst, 1), headgate.MaxCount)
	return l
}

// peaks are the numbers of one window length, sorted.
func peaks(people []*usage, window int) []int64 {
	all := make([]int64, len(people))
	for i, u := range people {
		all[i] = int64(u.windows[window].most)
	}
	slices.Sort(all)
	return all
}

// at is a percentile of sorted numbers: the least that so many percent do not exceed.
func at(sorted []int64, percent float64) int64 {
	i := int(math.Ceil(percent/100*float64(len(sorted)))) - 1
	return sorted[min(max(i, 0), len(sorted)-1)]
}

// The gap that sets outliers apart, and from where on there may be one. Nobody is an
// outlier who did less than outlierLeast.
const (
	outlierGap   = 2
	outlierFrom  = 95.0
	outlierLeast = 20
)

// markOutliers marks those who did much more than all others in windows of one length.
func markOutliers(people []*usage, window int) {
	most := peaks(people, window)
	first := int(outlierFrom / 100 * float64(len(most)))
	for i := max(first, 1); i < len(most); i++ {
		if most[i] < outlierLeast || most[i] < outlierGap*most[i-1] {
			continue
		}
		for _, u := range people {
			u.outlier = u.outlier || int64(u.windows[window].most) >= most[i]
		}
		return
	}
}

// Advice is a policy, with the numbers on which it is based.
type Advice struct {
	// Counts is what the limits count.
	Counts models.Counted
	// Per and Tariff are the entries that distinguish clients and tiers.
	Per, Tariff string
	// Percentile and Headroom are those of the [Options].
	Percentile, Headroom float64
	// Requests is how many requests there were, and Limited how many of them the server answered
	// with 429. PerDay is the number of people on a typical day.
	Requests, Limited int64
	PerDay            int
	From, To          time.Time
	// Limits are the limits for all requests, and those for routes and tiers.
	Limits []Limit

	outliers        map[string]bool
	outlierRequests int64
}

// Promise is the result of replaying the advice on its own log.
type Promise struct {
	Requests, Denied int64
	// People is how many requests came from clients that are neither robots nor outliers,
	// and PeopleDenied how many of them are denied.
	People, PeopleDenied int64
	// Clients are those with denied requests, the worst first.
	Clients []replay.Client
	// Outliers says which of Clients are outliers.
	Outliers []bool
}

// Promise compares the advice with the result of a replay. The result must contain all clients with
// denied requests, by their own names unless these are secrets. For secrets, shown returns the name
// that replaces one; it is nil if clients are not distinguished by secrets.
func (a *Advice) Promise(r *replay.Result, shown func(string) string) Promise {
	outliers := a.outliers
	if shown != nil {
		outliers = make(map[string]bool, len(a.outliers))
		for name := range a.outliers {
			outliers[shown(name)] = true
		}
	}
	p := Promise{Requests: r.Requests, Denied: r.Interval.Most(), People: max(0, r.Requests-r.Robots-a.outlierRequests)}
	for i := range r.Clients {
		c := &r.Clients[i]
		if c.Denied == 0 && c.Bunched == 0 {
			break
		}
		outlier := outliers[string(appendNetwork(nil, c.Client))]
		if !outlier && !c.Robot {
			p.PeopleDenied += max(c.Denied, c.Bunched)
		}
		p.Clients, p.Outliers = append(p.Clients, *c), append(p.Outliers, outlier)
	}
	return p
}

// MostDenied is the largest share of people's requests that advice may deny.
const MostDenied = 0.001

// Holds reports whether at most [MostDenied] of people's requests are denied.
func (p *Promise) Holds() bool {
	return float64(p.PeopleDenied) <= MostDenied*float64(p.People)
}

// longestHit is how many clients with denied requests the policy lists.
const longestHit = 10

// YAML returns the policy. With a promise, it also says which clients would have requests denied.
// name returns the name to show for a client; if it is nil, names are shown as they are.
func (a *Advice) YAML(p *Promise, name func(string) string) string {
	var b strings.Builder
	line := func(format string, args ...any) { fmt.Fprintf(&b, format+"\n", args...) }
	line("# Limits from %d requests, %s to %s, of about %d clients a day that are no robots.", a.Requests, a.From.Format("2006-01-02 15:04"), a.To.Format("2006-01-02 15:04"), a.PerDay)
	line("# They leave %g %% of these clients alone, with a headroom of ×%g.", a.Percentile, a.Headroom)
	if a.Counts != models.Requests {
		line("# They count %s that were used. A server first reserves the most that a call may use, which no", strings.ReplaceAll(a.Counts.String(), "_", " "))
		line("# log shows: see that the bursts hold that of the largest call.")
	}
	if a.Limited > 0 {
		line("# %d of the requests were answered with 429 already. What these clients would have", a.Limited)
		line("# done without those limits is not in the log: these limits may be too low.")
	}
	if p != nil {
		line("#")
		line("# Replayed on the same log they deny %d of %d requests, and of those of people", p.Denied, p.Requests)
		hit := count(len(p.Clients), "client is hit", "clients are hit") + ":"
		if len(p.Clients) == 0 {
			hit = "No client is hit."
		}
		line("# %d of %d. %s", p.PeopleDenied, p.People, hit)
		for i := range p.Clients {
			if i == longestHit {
				line("#   … and %d more", len(p.Clients)-longestHit)
				break
			}
			c := &p.Clients[i]
			what := ""
			switch {
			case c.Robot:
				what = ", a robot"
			case p.Outliers[i]:
				what = ", an outlier"
			}
			client := c.Client
			if name != nil {
				client = name(client)
			}
			line("#   %s: %d of %d requests%s", quote(client), c.Denied, c.Requests, what)
		}
	}
	line("rules:")
	a.writeAll(&b)
	for i := range a.Limits[1:] {
		if l := &a.Limits[i+1]; l.Route != "" {
			line("")
			line("  # %s", quote(l.Route))
			if l.Skipped != "" {
				line("  # No limit: %s.", l.Skipped)
				continue
			}
			l.numbers(&b, "  ")
			line("  - name: route-%d%s", i+1, a.suffix())
			line("    match: { %s: present, route: %s }", a.Per, strconv.Quote(l.Route))
			line("    per: [%s]%s", a.part(), a.counts())
			line("    limits: [%s]", l)
		}
	}
	return b.String()
}

// writeAll writes the rule for all requests, with its tiers.
func (a *Advice) writeAll(b *strings.Builder) {
	all := &a.Limits[0]
	all.numbers(b, "  ")
	fmt.Fprintf(b, "  - name: per-%s%s\n    match: { %s: present }\n    per: [%s]%s\n", strings.NewReplacer("_", "-", ".", "-").Replace(a.Per), a.suffix(), a.Per, a.part(), a.counts())
	if a.Tariff == "" {
		fmt.Fprintf(b, "    limits: [%s]\n", all)
		return
	}
	fmt.Fprintf(b, "    limits:\n      %s:\n", a.Tariff)
	for i := range a.Limits[1:] {
		l := &a.Limits[i+1]
		if l.Tier == "" {
			continue
		}
		if l.Skipped != "" {
			fmt.Fprintf(b, "        # %s: no limit of its own: %s.\n", quote(l.Tier), l.Skipped)
			continue
		}
		l.numbers(b, "        ")
		fmt.Fprintf(b, "        %s: [%s]\n", strconv.Quote(l.Tier), l)
	}
	fmt.Fprintf(b, "        \"*\": [%s]\n", all)
}

// counts is the line of a rule that says what its limits count.
func (a *Advice) counts() string {
	if a.Counts == models.Requests {
		return ""
	}
	return "\n    counts: " + a.Counts.String()
}

// suffix ends the names of rules, so that they can stand beside those of rules that count requests.
func (a *Advice) suffix() string {
	if a.Counts == models.Requests {
		return ""
	}
	return "-" + strings.ReplaceAll(a.Counts.String(), "_", "-")
}

// part is the entry that the rules count by.
func (a *Advice) part() string {
	if a.Per == "ip" {
		return "ip/64"
	}
	return a.Per
}

// numbers writes the numbers on which a limit is based.
func (l *Limit) numbers(b *strings.Builder, indent string) {
	fmt.Fprintf(b, "%s# %d requests of %s; besides %s and %s.\n", indent, l.Requests, count(l.People, "client", "clients"), count(l.Robots, "robot", "robots"), count(l.Outliers, "outlier", "outliers"))
	fmt.Fprintf(b, "%s# At most in any    half of the clients   95 %%   99 %%   all   chosen\n", indent)
	for _, w := range l.Windows {
		fmt.Fprintf(b, "%s#   %-15s %20d %6d %6d %5d %8d\n", indent, span(w.Length), w.P50, w.P95, w.P99, w.Top, w.Chosen)
	}
}

func span(d time.Duration) string {
	switch {
	case d >= time.Hour:
		return count(int(d/time.Hour), "hour", "hours")
	case d >= time.Minute:
		return count(int(d/time.Minute), "minute", "minutes")
	}
	return count(int(d/time.Second), "second", "seconds")
}

func count(n int, one, many string) string {
	if n == 1 {
		return "1 " + one
	}
	return strconv.Itoa(n) + " " + many
}

// quote returns a text from strangers in a form that cannot end a comment.
func quote(s string) string {
	if quoted := strconv.QuoteToASCII(s); quoted != `"`+s+`"` {
		return quoted
	}
	return s
}
