package lint

import (
	"fmt"
	"maps"
	"math"
	"math/bits"
	"slices"
	"strings"
	"time"

	"github.com/headgate/headgate"
	"github.com/headgate/headgate/internal/muldiv"
	"github.com/headgate/headgate/internal/spelling"
	"github.com/headgate/headgate/policy"
	"github.com/headgate/headgate/policy/models"
)

// rule warns of what one rule alone shows.
func (l *linter) rule(r *rule) {
	warn := l.aboutRule(r)
	l.limits(r)
	l.defaultBuckets(r)
	l.costs(r)
	l.unpriced(r)
	inProgress(r, warn)
	forgeableParts(r, warn)
	openTariff(r, warn)
	sharedLists(r, warn)
	l.oneNode(r, warn)
	l.clearSecrets(r, warn)
	for j := range r.Overrides {
		if o := &r.Overrides[j]; l.set.Ended(o.Until) {
			l.about(r.Name, o.Pos)(Ended, "override %d has ended at %s; take it out", j+1, formatTime(o.Until))
		}
	}
	if r.never != "" {
		warn(NeverMatches, "it can never match: %s", r.never)
	}
}

// unpriced warns of models without a price if the rule counts money: of those in its conditions, of
// those that the policy knows, and if the policy knows no price at all.
func (l *linter) unpriced(r *rule) {
	if r.Counts != models.Money {
		return
	}
	var names []string
	for i := range r.Match {
		if c := &r.Match[i]; c.Entry == "model" && !c.Not {
			names = append(names, c.Equals...)
		}
	}
	priced := false
	for _, m := range l.set.Models().All() {
		if priced = priced || m.Priced; names == nil && m.Is == "" && !m.Priced {
			names = append(names, m.Name)
		}
	}
	names = slices.DeleteFunc(names, func(name string) bool { return l.set.Models().Find(name).Priced })
	switch {
	case !priced:
		l.aboutField(r, "counts")(Unpriced, "it counts money, and the policy has no prices, so every call to a language model is refused; give models prices")
	case len(names) > 0:
		l.aboutField(r, "counts")(Unpriced, "it counts money, and the model %s has no price, so its calls are refused; give it one", policy.Quote(names[0]))
	}
}

// formatTime returns the time as warnings write it, in UTC.
func formatTime(t time.Time) string { return t.UTC().Format("2006-01-02 15:04 MST") }

// dearest returns the cost of the dearest request, as far as that is known from the rule alone. who
// says in words which request that is.
func dearest(r *rule) (cost int64, who string) {
	cost, who = r.Factor(), "each request costs at least"
	if c := r.Costs; c != nil {
		cost, who = c.Other, fmt.Sprintf("a request with another %s, or none, costs at least", c.Entry)
		if c.Per > 0 {
			cost = 1
		}
		for _, v := range slices.Sorted(maps.Keys(c.Values)) {
			if c.Values[v] > cost {
				cost, who = c.Values[v], fmt.Sprintf("a request with the %s %s costs at least", c.Entry, policy.Quote(v))
			}
		}
	}
	return cost, who
}

// costs warns of limits that hold less than the cost of the dearest request.
func (l *linter) costs(r *rule) {
	cost, who := dearest(r)
	such := ""
	if r.Costs != nil {
		such = "such "
	}
	for _, list := range limitLists(r) {
		for _, limit := range list.limits {
			if limit.Capacity() < cost {
				l.aboutField(r, list.at(limit))(NeverFits, "%slimit %q holds at most %d units but %s %d, so every %srequest is denied; raise the limit or its burst to %d, or lower the cost",
					list.where, limit, limit.Capacity(), who, cost, such, cost)
			}
		}
	}
}

// oneNode warns of a tag that keeps many counters on one node. A rule with one counter has it on
// one node in any case.
func (l *linter) oneNode(r *rule, warn warnFunc) {
	tag := r.Limits.Tag()
	if tag == "" || len(r.Per) == 0 && !r.Direct {
		return
	}
	const cost = "the slot %q keeps the counters of all its keys on one node of a Redis Cluster, which bears all of its load and memory"
	others := l.tags[tag] - 1
	if others == 0 {
		warn(OneNode, cost+", and gains nothing, since no other rule has that slot; leave it out", tag)
		return
	}
	with := "the other rule"
	if others > 1 {
		with = fmt.Sprintf("the %d other rules", others)
	}
	warn(OneNode, cost+"; leave it out unless requests under it and %s of that slot must be one call", tag, with)
}

// readable reports whether the condition has values of a secret in the clear.
func readable(s *policy.Set, c *policy.Condition) bool {
	return s.Secret(c.Entry) && len(c.Equals)+len(c.Prefixes) > 0
}

// clearSecrets warns of secrets that are written in the clear, once for each entry.
func (l *linter) clearSecrets(r *rule, warn warnFunc) {
	s := l.set
	var reported []string
	tell := func(entry, advice string) {
		if !slices.Contains(reported, entry) {
			reported = append(reported, entry)
			warn(ClearSecret, "it has values of the secret %s in the clear; %s", entry, advice)
		}
	}
	conditions := func(list []policy.Condition) {
		for i := range list {
			if readable(s, &list[i]) {
				tell(list[i].Entry, "write their hashes, as { hash: ... }")
			}
		}
	}
	conditions(r.Match)
	for i := range r.Overrides {
		conditions(r.Overrides[i].Match)
	}
	const advice = "give the clients a tier or the like in the table of subjects, and go by that"
	if r.Tariff != nil && s.Secret(r.Tariff.Entry) && len(r.Tariff.Tiers) > 0 {
		tell(r.Tariff.Entry, advice)
	}
	if r.InProgress != nil && s.Secret(r.InProgress.Entry) {
		tell(r.InProgress.Entry, advice)
	}
	if r.Costs != nil && s.Secret(r.Costs.Entry) {
		tell(r.Costs.Entry, advice)
	}
}

// openTariff warns of a tariff without limits for other tiers: the rule does not bind requests of
// those tiers.
func openTariff(r *rule, warn warnFunc) {
	t := r.Tariff
	if t == nil || t.Other != nil {
		return
	}
	if demands(r, t.Entry, func(value string) bool {
		return slices.ContainsFunc(t.Tiers, func(tier policy.Tier) bool { return tier.Value == value })
	}) {
		return
	}
	warn(OpenTariff, "it does not bind requests with another %s than it has limits for, nor those without one; add \"*\" with limits for them", t.Entry)
}

// chosen are the entries that a client chooses anew with each request. A tier is not one of them.
var chosen = []string{"route", "method", "path", "host", "service"}

// sharedLists warns of lists of limits for different requests that share a counter. For tiers that
// is right: a client that changes its tier keeps what it has used. But if one client sends both
// kinds of requests in turn, the result is a surprise: windows and buckets count what the other
// lists have admitted.
func sharedLists(r *rule, warn warnFunc) {
	if r.Tariff == nil || !slices.Contains(chosen, r.Tariff.Entry) {
		return
	}
	var before []listedLimit
	for _, list := range limitLists(r) {
		for _, l := range list.limits {
			for _, o := range before {
				if *o.Limit != *l.Limit && shareCounter(o.Limit, l.Limit) {
					warn(SharedLists, "limits %q and %q, for different values of %s, share a counter: what is admitted by one counts in the other; write a rule for each %s, with a condition on it",
						o, l, r.Tariff.Entry, r.Tariff.Entry)
					return
				}
			}
		}
		before = append(before, list.limits...)
	}
}

// shareCounter reports whether limits of two lists of one rule share a counter.
func shareCounter(a, b *headgate.Limit) bool {
	return a.Slot() == b.Slot() || a.Algorithm == headgate.SlidingWindow && b.Algorithm == headgate.SlidingWindow
}

// headers are the names of headers in which proxies pass on an address. Any client can set them.
var headers = []string{
	"x-forwarded-for", "x-real-ip", "forwarded", "true-client-ip", "cf-connecting-ip", "client-ip", "x-client-ip",
	"x-cluster-client-ip", "x-original-forwarded-for", "fastly-client-ip", "forwarded-for",
}

// forgeable reports whether an entry has the name of one of the headers.
func forgeable(entry string) bool {
	return slices.Contains(headers, strings.ReplaceAll(strings.ToLower(entry), "_", "-"))
}

// forgeableParts warns of a rule that counts by addresses which a client can choose.
func forgeableParts(r *rule, warn warnFunc) {
	for _, p := range r.Per {
		switch {
		case forgeable(p.Entry):
			warn(Forgeable, "it counts by %q, a header that any client can set to a new address for each request; count by \"ip\", which is an address that has been seen", p.Entry)
		case p.Address() && (p.Bits6 == 0 || p.Bits6 > 64):
			warn(Forgeable, "it counts by whole IPv6 addresses in %q, of which one customer usually has 2^64 to choose from; write %s/64", p.Entry, ipv4Part(p))
		}
	}
}

// ipv4Part writes the part without its prefix length for IPv6 addresses.
func ipv4Part(p policy.Part) string {
	if p.Bits4 == 0 {
		return p.Entry
	}
	return fmt.Sprintf("%s/%d", p.Entry, p.Bits4)
}

// plainHashes warns, once for all rules, of secrets that are hashed without a key: one hash key
// remedies all of them.
func (l *linter) plainHashes() {
	if l.set.Keyed() {
		return
	}
	var entries []string
	var first *rule
	rules := 0
	for i := range l.rules {
		r, uses := &l.rules[i], false
		for _, p := range r.Per {
			if !l.set.Secret(p.Entry) {
				continue
			}
			uses = true
			if !slices.Contains(entries, p.Entry) {
				entries = append(entries, p.Entry)
			}
		}
		if uses {
			if rules++; first == nil {
				first = r
			}
		}
	}
	if first == nil {
		return
	}
	l.aboutRule(first)(PlainHash,
		"it counts by the secret %s (%d of %d rules do), hashed without a key: whoever reads the store can test guesses; set one hash key of at least %d bytes on all nodes",
		strings.Join(entries, ", "), rules, len(l.rules), policy.MinHashKey)
}

// limitList is one of the lists of limits by which a rule may bind a request.
type limitList struct {
	where  string // what a warning puts before the limit
	field  string // the list's field in the rule, as policy.Mistake names it
	limits []listedLimit
}

// listedLimit is a limit and its index in the list.
type listedLimit struct {
	*headgate.Limit
	number int
}

// at returns the field of the limit, as policy.Mistake names it.
func (l *limitList) at(limit listedLimit) string { return fmt.Sprintf("%s.%d", l.field, limit.number) }

// limitLists returns all lists of the rule's limits.
func limitLists(r *rule) []limitList {
	var all []limitList
	// Penalties are left out. They limit no units, so nothing that warnings say about limits
	// applies to them.
	list := func(where, field string, limits *headgate.Rule) {
		one := limitList{where: where, field: field}
		each := limits.Limits()
		for i := range each {
			if each[i].Algorithm != headgate.Penalty {
				one.limits = append(one.limits, listedLimit{&each[i], i})
			}
		}
		all = append(all, one)
	}
	if r.Tariff == nil {
		list("", "limits", r.Limits)
	} else {
		for i := range r.Tariff.Tiers {
			t := &r.Tariff.Tiers[i]
			list(fmt.Sprintf("for the %s %s, ", r.Tariff.Entry, policy.Quote(t.Value)), fmt.Sprintf("tariff.%d", i), t.Limits)
		}
		if r.Tariff.Other != nil {
			list(fmt.Sprintf("for every other %s, ", r.Tariff.Entry), "tariff.other", r.Tariff.Other)
		}
	}
	for i := range r.Overrides {
		list(fmt.Sprintf("in override %d, ", i+1), fmt.Sprintf("overrides.%d.limits", i), r.Overrides[i].Limits)
	}
	return all
}

func withoutPenalties(limits []headgate.Limit) []headgate.Limit {
	return slices.DeleteFunc(slices.Clone(limits), func(l headgate.Limit) bool { return l.Algorithm == headgate.Penalty })
}

// limits warns of limits that can never bind. If two limits make each other useless, the warning is
// about the later one.
func (l *linter) limits(r *rule) {
	for _, list := range limitLists(r) {
		limits := list.limits
		for i, limit := range limits {
			for j, other := range limits {
				if i == j {
					continue
				}
				why := useless(other.Limit, limit.Limit)
				if why == "" || i < j && useless(limit.Limit, other.Limit) != "" {
					continue
				}
				l.aboutField(r, list.at(limit))(NeverBinds, "%slimit %q can never bind: %s", list.where, limit, why)
				break
			}
		}
	}
}

// promised is the longest period for which a count may be meant as a rate. Ten per second is a
// rate. Five per 15 minutes is read as a promise to admit no more.
const promised = time.Minute

// defaultBuckets warns of token buckets with long periods for which nobody has chosen the
// algorithm. In its first period, a bucket admits nearly twice its count. A limit with a burst is
// not reported, because a burst can only be meant for a bucket.
func (l *linter) defaultBuckets(r *rule) {
	for _, list := range limitLists(r) {
		for _, limit := range list.limits {
			field := list.at(limit)
			if !r.Written[field].Default || limit.Algorithm != headgate.TokenBucket || limit.Burst != 0 || limit.Period <= promised || limit.Count < 2 {
				continue
			}
			then, window := "one more every "+spoken(limit.Period/time.Duration(limit.Count)), headgate.SlidingWindow
			if limit.Count > headgate.MaxLog {
				// There is no such window, and the time between two units may be less than a microsecond.
				then, window = fmt.Sprintf("%d more every second", muldiv.Down(limit.Count, 1e6, limit.Micros(), limit.Count)), headgate.SlidingCounter
			}
			l.aboutField(r, field)(DefaultBucket, "%slimit %q has no algorithm, so it is a token bucket, which admits up to %d units in the first %s: %d at once, and then %s; write algorithm: %v if %d is a promise, or algorithm: token_bucket if this is meant",
				list.where, limit, 2*limit.Count-1, headgate.FormatPeriod(limit.Period), limit.Count, then, window, limit.Count)
		}
	}
}

// spoken returns a time as people say it: 1m26.4s, where FormatPeriod has 86400ms.
func spoken(d time.Duration) string {
	if d > time.Second {
		d = d.Round(time.Second / 10)
	}
	if d > time.Second && d%time.Second != 0 {
		return d.String()
	}
	return headgate.FormatPeriod(d)
}

// useless says why b never denies or delays what a admits. It returns the start of a sentence that
// ends with advice, or "" if b may deny or delay.
func useless(a, b *headgate.Limit) string {
	if a.Algorithm == headgate.SlidingCounter || b.Algorithm == headgate.SlidingCounter {
		return uselessCounter(a, b)
	}
	switch b.Algorithm {
	case headgate.FixedWindow, headgate.SlidingWindow:
		most := mostWithin(a, b)
		if most > b.Count {
			return ""
		}
		return fmt.Sprintf("%q lets at most %d units pass in that time; %s", a, most, below(most))
	case headgate.LeakyBucket:
		// b delays requests. Only another leaky bucket that is at least as slow delays them as
		// much.
		if a.Algorithm != headgate.LeakyBucket {
			return ""
		}
	}
	if peak(a) > b.Capacity() || !slower(a, b) {
		return ""
	}
	// same is what a's rate admits in b's period, rounded up. A smaller count of b would bind.
	same := muldiv.Up(a.Count, b.Micros(), a.Micros(), unknown)
	return fmt.Sprintf("%q has no larger burst (%d, not %d) and no higher rate (at most %d in %s, not %d); %s",
		a, peak(a), b.Capacity(), same, headgate.FormatPeriod(b.Period), b.Count, below(same))
}

// below returns the advice to set a count below most, or to leave the limit out.
func below(most int64) string {
	if most <= 1 {
		return "leave it out"
	}
	return fmt.Sprintf("set its count below %d, or leave it out", most)
}

// uselessCounter is useless where a or b is a sliding counter. Sliding counters estimate, so only
// one case is certain: both are sliding counters, a's period is a multiple of b's, and a.Count ≤
// b.Count.
func uselessCounter(a, b *headgate.Limit) string {
	if a.Algorithm != b.Algorithm || a.Micros()%b.Micros() != 0 || a.Count > b.Count {
		return ""
	}
	return fmt.Sprintf("%q lets at most %d units pass in that time; %s", a, a.Count, below(a.Count))
}

// peak returns the most that the limit admits within a moment.
func peak(l *headgate.Limit) int64 {
	if l.Algorithm == headgate.FixedWindow {
		// All at the end of one window, and all at the start of the next.
		return 2 * l.Count
	}
	return l.Capacity()
}

// slower reports whether the long-term rate of a is at most that of b.
func slower(a, b *headgate.Limit) bool {
	if a.Align >= headgate.AlignDay {
		return false // The length of such a window varies.
	}
	h1, l1 := bits.Mul64(uint64(a.Count), uint64(b.Micros()))
	h2, l2 := bits.Mul64(uint64(b.Count), uint64(a.Micros()))
	return h1 < h2 || h1 == h2 && l1 <= l2
}

// mostWithin returns the most that a admits in any one window of b, or unknown.
func mostWithin(a, b *headgate.Limit) int64 {
	if a.Algorithm == headgate.FixedWindow && b.Algorithm == headgate.FixedWindow {
		if n := windowsWithin(a, b); n > 0 {
			return muldiv.Down(a.Count, n, 1, unknown)
		}
	}
	length := b.Micros()
	if b.Align > headgate.AlignHour {
		length += shift
	}
	switch a.Algorithm {
	case headgate.TokenBucket, headgate.LeakyBucket:
		return a.Capacity() + muldiv.Down(a.Count, length-1, a.Micros(), unknown)
	case headgate.SlidingWindow:
		return muldiv.Down(a.Count, (length-1)/a.Micros()+1, 1, unknown)
	}
	if a.Align > headgate.AlignHour {
		return unknown
	}
	return muldiv.Down(a.Count, (length-1+a.Micros()-1)/a.Micros()+1, 1, unknown)
}

// shift is the most, in microseconds, by which a calendar window can be longer than usual because
// the clocks of its time zone are set back.
const shift = 2 * 3600 * 1_000_000

// windowsWithin returns how many windows of a one window of b touches at most, if the windows of
// the shorter one nest in those of the longer one. Otherwise it returns 0.
func windowsWithin(a, b *headgate.Limit) int64 {
	switch {
	case a.Align == headgate.AlignUTC && b.Align == headgate.AlignUTC:
		switch {
		case b.Micros()%a.Micros() == 0:
			return b.Micros() / a.Micros()
		case a.Micros()%b.Micros() == 0:
			return 1
		}
		return 0
	case a.Align < headgate.AlignMinute || b.Align < headgate.AlignMinute || zone(a) != zone(b):
		return 0
	case a.Align == headgate.AlignWeek && b.Align > headgate.AlignWeek,
		b.Align == headgate.AlignWeek && a.Align > headgate.AlignWeek:
		return 0 // A week may lie in two months.
	case a.Align >= b.Align:
		return 1
	}
	length := b.Micros()
	switch {
	case b.Align == headgate.AlignHour || a.Align == headgate.AlignDay:
	case a.Align == headgate.AlignMonth:
		return 12
	default:
		length += shift
	}
	return length / a.Micros()
}

func zone(l *headgate.Limit) string {
	if l.Location == nil {
		return "UTC"
	}
	return l.Location.String()
}

// unknown is more than any limit admits. It is small enough that the sum of two such values does
// not overflow.
const unknown = math.MaxInt64 / 2

// reliableTTL is the shortest time to live of permits that leaves enough time to repeat a renewal
// that has failed.
const reliableTTL = time.Second

// inProgress warns of a bound on what is in progress that does not do what it seems to say.
func inProgress(r *rule, warn warnFunc) {
	p := r.InProgress
	if p == nil {
		return
	}
	fitting(r, warn)
	if p.Entry != "" && p.Limit == 0 && !demands(r, p.Entry, func(value string) bool { return p.Values[value] != 0 }) {
		warn(OpenTariff, "it does not bound what is in progress of requests with another %s than it has numbers for, nor of those without one; add \"*\" with a number for them", p.Entry)
	}
	if p.Wait > 0 && p.Queue == 0 {
		warn(NoQueue, "requests wait for up to %v, and how many may do so at once is not said, so that it is %d under each key; add queue: %d, or the number that you can bear",
			p.Wait, policy.DefaultQueue, policy.DefaultQueue)
	}
	if p.Shared && p.Term() < reliableTTL {
		warn(ShortTTL, "the store frees permits after %v, which one slow call outlasts, so that more is in progress than the limit or work is cancelled; make the ttl at least %v", p.Term(), reliableTTL)
	}
	if route := streaming(r); route != "" {
		warn(Streams, "the route %s looks like a stream, which is in progress for as long as its client likes: a few clients can hold all permits; give streams a rule of their own, by client", policy.Quote(route))
	}
}

// fitting warns of bounds that are smaller than the cost of the dearest request, as far as that
// cost is known from the rule alone.
func fitting(r *rule, warn warnFunc) {
	p := r.InProgress
	cost, who := dearest(r)
	one := func(where string, limit int64) {
		if limit != 0 && limit < cost {
			warn(NeverFits, "%s%d may be in progress but %s %d, so such a request is always refused; raise the number to %d, or lower the cost", where, limit, who, cost, cost)
		}
	}
	for _, v := range slices.Sorted(maps.Keys(p.Values)) {
		one(fmt.Sprintf("for the %s %s, ", p.Entry, policy.Quote(v)), p.Values[v])
	}
	one("", p.Limit)
	for i := range r.Overrides {
		one(fmt.Sprintf("in override %d, ", i+1), r.Overrides[i].InProgress)
	}
}

// demands reports whether the rule matches only requests whose entry has one of the known values.
func demands(r *rule, entry string, known func(value string) bool) bool {
	unknown := func(value string) bool { return !known(value) }
	return slices.ContainsFunc(r.Match, func(c policy.Condition) bool {
		return c.Entry == entry && !c.Not && len(c.Equals) > 0 && len(c.Equals) == c.Size() && !slices.ContainsFunc(c.Equals, unknown)
	})
}

// streamWords are the last parts of paths under which servers usually stream.
var streamWords = []string{"stream", "streams", "ws", "wss", "websocket", "socket", "sse", "events", "subscribe", "watch"}

// streaming returns a route that the rule matches and that looks like a stream, or "". It returns
// "" for a rule that counts by client, because that is the right way to bound streams.
func streaming(r *rule) string {
	for i := range r.Match {
		c := &r.Match[i]
		if c.Not || c.Entry != "route" && c.Entry != "path" {
			continue
		}
		for _, value := range c.Equals {
			if last := value[strings.LastIndexByte(value, '/')+1:]; slices.Contains(streamWords, last) && !own(r) {
				return value
			}
		}
	}
	return ""
}

// own reports whether the rule counts by an entry that says who the client is. Otherwise it counts
// all clients together: by nothing, or only by entries that clients choose anew with each request.
func own(r *rule) bool {
	return slices.ContainsFunc(r.Per, func(p policy.Part) bool { return !slices.Contains(chosen, p.Entry) })
}

// behind warns of rules for scripts of PHP if the policy does not say, by what is behind, what is
// done with paths that have more behind the script.
func (l *linter) behind() {
	known, _ := spelling.Behind(l.set.Behind()...)
	if known&spelling.CutPathInfo != 0 {
		return
	}
	for i := range l.rules {
		r := &l.rules[i]
		if script := scriptOf(r); script != "" {
			l.aboutField(r, "match")(Behind, "PHP serves %s with anything behind it, such as /x, and the policy does not say that PHP is behind; write behind: php", policy.Quote(script))
		}
	}
}

// scriptOf returns the first route among the rule's conditions that ends with a script of PHP.
func scriptOf(r *rule) string {
	for i := range r.Match {
		if c := &r.Match[i]; c.Entry == "route" && !c.Not {
			for _, v := range c.Equals {
				if strings.HasSuffix(v, ".php") {
					return v
				}
			}
		}
	}
	return ""
}
