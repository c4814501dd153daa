package lint

import (
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	"github.com/headgate/headgate"
	"github.com/headgate/headgate/policy"
)

// rule warns of what one rule alone shows.
func (l *linter) rule(r *rule) {
	warn := l.aboutRule(r)
	l.limits(r)
	l.defaultBuckets(r)
	l.costs(r)
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
	var told []string
	tell := func(entry, advice string) {
		if !slices.Contains(told, entry) {
			told = append(told, entry)
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
