package config

import (
	"fmt"
	"maps"
	"time"

	"github.com/headgate/headgate"
	"github.com/headgate/headgate/policy"
)

// ruleText is one entry of the field rules.
type ruleText struct {
	// places has a place for each field that was given, by the rule itself or by
	// the one that it is like; inherited has the latter.
	places    places
	inherited map[place]bool
	name      string
	like      string
	match     []policy.Condition
	per       []policy.Part
	algorithm headgate.Algorithm
	limits    limitsText
	cost      costText
	zone      *time.Location
	overrides []entry[overrideText]
	soft      int
	mode      policy.Mode
	enforce   int
	giveBack  policy.Statuses
	chargeOn  policy.Statuses
	reserve   policy.Reservation
	onError   headgate.OnError
	counts    headgate.Consistency
	denyCache headgate.DenyCache
	slot      string
	replaces  []string
	ignore    []policy.Ignore
}

// limitsText is a list of limits, or a tariff: several lists by the value of an
// entry.
type limitsText struct {
	list  []entry[limitText]
	entry string
	tiers []tierText
}

type tierText struct {
	at     place
	value  string // "*" stands for all others
	limits []entry[limitText]
}

// overrideText is one entry of overrides.
type overrideText struct {
	places places
	match  []policy.Condition
	limits []entry[limitText]
	until  time.Time
}

const aboutLimits = "what may pass, such as [20 per 60s, 5 per 3s], all of them checked and charged together; or such lists by the value of an entry, as { tier: { pro: [...], \"*\": [...] } }"

func ruleMapping() value[ruleText] {
	v := object("a rule", []field[ruleText]{
		required(to("name", "the name that counters are kept under: 1 to 128 bytes without spaces and braces", nameText(),
			func(into *ruleText, n *node, v string) {
				into.name = v
				into.places.keep(n.at, "name")
			})),
		to("like", "the name of another rule, which has the fields that are not given here", nameText(),
			func(into *ruleText, n *node, v string) {
				into.like = v
				into.places.keep(n.at, "like")
			}),
		to("match", "what entries of the request must be, such as { route: POST /v1/token }; every request if left out", matchMapping("leave it out to match every request, or with like what the other rule matches"),
			func(into *ruleText, n *node, v []entry[policy.Condition]) {
				into.match = keepMatch(&into.places, n, v, "match")
			}),
		to("per", "the entries that counters are kept by, such as [api_key] or [ip/64]; one counter for all if left out", listOf(partText(), 1, policy.MaxParts),
			func(into *ruleText, n *node, v []entry[policy.Part]) {
				into.places.keep(n.at, "per")
				for _, p := range v {
					if p.good {
						into.places.keep(p.at, fmt.Sprintf("per.%d", len(into.per)))
						into.per = append(into.per, p.value)
					}
				}
			}),
		to("algorithm", "the arithmetic of the limits that do not name their own; token_bucket if left out", algorithmName(),
			func(into *ruleText, n *node, v int) {
				into.algorithm = headgate.Algorithm(v)
				into.places.keep(n.at, "algorithm")
			}),
		to("limits", aboutLimits, limitsValue(),
			func(into *ruleText, n *node, v limitsText) {
				into.limits = v
				into.places.keep(n.at, "limits")
				into.places.keep(n.at, "tariff")
			}),
		to("overrides", "other limits for some of the requests; of those that hold, the first counts", listOf(overrideMapping(), 1, policy.MaxOverrides),
			func(into *ruleText, n *node, v []entry[overrideText]) {
				into.overrides = v
				into.places.keep(n.at, "overrides")
			}),
		to("cost", "what the cost of each request is multiplied by, as a number, as a table by an entry, or by a measure; 1 if left out", costValue(),
			func(into *ruleText, n *node, v costText) {
				into.cost = v
				into.places.keep(n.at, "cost")
			}),
		to("time_zone", "the time zone of calendar windows that do not name their own, such as Europe/Berlin; UTC if left out", zoneText(),
			func(into *ruleText, n *node, v *time.Location) {
				into.zone = v
				into.places.keep(n.at, "time_zone")
			}),
		to("soft", "from how much of a limit on to warn, such as 80%", percent(1, 99),
			func(into *ruleText, n *node, v int) {
				into.soft = v
				into.places.keep(n.at, "soft")
			}),
		to("mode", "whether the rule may deny (enforce, the default), counts only (shadow), or counts and tells callers what is beyond it (quota)", oneOf(policy.ModeEnforce.String(), policy.ModeShadow.String(), policy.ModeQuota.String()),
			func(into *ruleText, n *node, v int) {
				into.mode = policy.Mode(v)
				into.places.keep(n.at, "mode")
			}),
		to("enforce", "for how many of the keys the rule may deny, such as 25%; it is in shadow for the others", percent(1, 100),
			func(into *ruleText, n *node, v int) {
				into.enforce = v
				into.places.keep(n.at, "enforce")
			}),
		to("give_back_on", "the HTTP statuses of requests that do not stay charged, such as [304, 5xx]", statusList(),
			func(into *ruleText, n *node, v policy.Statuses) {
				into.giveBack = v
				into.places.keep(n.at, "give_back_on")
			}),
		to("charge_on", "the HTTP statuses of the only requests that stay charged, such as [401, 403]", statusList(),
			func(into *ruleText, n *node, v policy.Statuses) {
				into.chargeOn = v
				into.places.keep(n.at, "charge_on")
			}),
		to("reservation", "what becomes of requests whose cost is settled later, such as { for: 5m, abandoned: give_back }", reservationMapping(),
			func(into *ruleText, n *node, v policy.Reservation) {
				into.reserve = v
				into.places.keep(n.at, "reservation")
			}),
		to("on_store_error", "what becomes of requests while the store does not answer: they are let in (allow), turned away (deny), or counted by each server, up to its share of the limits (local); what the server is told if left out", oneOf(headgate.OnErrorAllow.String(), headgate.OnErrorDeny.String(), headgate.OnErrorLocal.String()),
			func(into *ruleText, n *node, v int) {
				into.onError = headgate.OnErrorAllow + headgate.OnError(v)
				into.places.keep(n.at, "on_store_error")
			}),
		to("consistency", "how exactly the rule counts: every decision is the store's (strict), keys that are asked for often are decided from units taken in advance, never too many (leased), or all are decided at once and counted a moment later, a few too many (async); strict if left out", oneOf(headgate.Strict.String(), headgate.Leased.String(), headgate.Async.String()),
			func(into *ruleText, n *node, v int) {
				into.counts = headgate.Consistency(v)
				into.places.keep(n.at, "consistency")
			}),
		to("deny_cache", "whether a key that was denied is denied from memory until its time comes: on or off; what the server is told if left out", oneOf(headgate.DenyCacheOn.String(), headgate.DenyCacheOff.String()),
			func(into *ruleText, n *node, v int) {
				into.denyCache = headgate.DenyCacheOn + headgate.DenyCache(v)
				into.places.keep(n.at, "deny_cache")
			}),
		to("slot", "a tag: a Redis Cluster keeps all counters of all rules with the same tag on one node, and requests under several of them are one call; spread over all nodes if left out", tagText(),
			func(into *ruleText, n *node, v string) {
				into.slot = v
				into.places.keep(n.at, "slot")
			}),
		to("replaces", "the names of other rules, which do not bind a request that this one binds, and of entries of deny, which do not deny what has several descriptors", listOf(someText(), 1, policy.MaxReplaces),
			func(into *ruleText, n *node, v []entry[string]) {
				into.replaces = keepNames(&into.places, n, v)
			}),
		to("ignore", "warnings that are silenced, such as [{code: HG004, reason: internal network}]", listOf(ignoreMapping(), 1, maxIgnored),
			func(into *ruleText, _ *node, v []entry[policy.Ignore]) { into.ignore = keepIgnored(&into.places, v) }),
	})
	v.schema["anyOf"] = []schema{{"required": []string{"limits"}}, {"required": []string{"like"}}}
	return value[ruleText]{v.schema, func(r *reader, name string, n *node) (ruleText, bool) {
		t, ok := v.read(r, name, n)
		if ok && !n.has("limits") && !n.has("like") {
			r.add(n.at, "a rule must have the field \"limits\": %s", aboutLimits)
		}
		return t, ok
	}}
}

func overrideMapping() value[overrideText] {
	return object("an override", []field[overrideText]{
		required(to("match", "what entries of the request must be, such as { api_key: k1 }", matchMapping("say whom the override is for"),
			func(into *overrideText, n *node, v []entry[policy.Condition]) {
				into.match = keepMatch(&into.places, n, v, "match")
			})),
		required(to("limits", "what may pass instead, such as [200 per 60s]", limitList(),
			func(into *overrideText, n *node, v []entry[limitText]) {
				into.limits = v
				into.places.keep(n.at, "limits")
			})),
		to("until", "the last day, in UTC, or the time at which the override ends, such as 2026-12-31", untilText(),
			func(into *overrideText, _ *node, v time.Time) { into.until = v }),
	})
}

func limitList() value[[]entry[limitText]] {
	return listOf(limitEither(), 1, headgate.MaxLimits)
}

// limitsValue is a list of limits, or a mapping of one entry to such lists by
// its values.
func limitsValue() value[limitsText] {
	plain := limitList()
	s := schema{"oneOf": []schema{plain.schema, {
		"type": "object", "minProperties": 1, "maxProperties": 1,
		"propertyNames": schema{"pattern": entryPattern},
		"additionalProperties": schema{
			"type": "object", "additionalProperties": plain.schema,
			"minProperties": 1, "maxProperties": policy.MaxTiers,
		},
	}}}
	return value[limitsText]{s, func(r *reader, name string, n *node) (limitsText, bool) {
		var t limitsText
		var ok bool
		if n.kind != mapping {
			t.list, ok = plain.read(r, name, n)
			return t, ok
		}
		if len(n.fields) != 1 {
			r.add(n.at, "%s is a mapping with %d fields, must be a list, such as %s: [...], or have the one entry that limits are chosen by, such as { tier: { pro: [...] } }", name, len(n.fields), name)
			return t, false
		}
		by := n.fields[0]
		t.entry = by.name
		if by.value.kind != mapping || len(by.value.fields) == 0 || len(by.value.fields) > policy.MaxTiers {
			r.add(by.value.at, "the limits by %q are %s, must be a mapping with 1 to %d of its values, such as { pro: [...], \"*\": [...] }", by.name, describe(by.value), policy.MaxTiers)
			return t, false
		}
		lines := make(map[string]int)
		for _, p := range by.value.fields {
			if line, twice := lines[p.name]; twice {
				r.add(p.at, "the value %q is set twice, first in line %d; keep one", p.name, line)
				continue
			}
			lines[p.name] = p.at.line
			limits, ok := plain.read(r, p.name, p.value)
			if !ok {
				limits = []entry[limitText]{} // Told already.
			}
			t.tiers = append(t.tiers, tierText{p.at, p.name, limits})
		}
		return t, true
	}}
}

// maxAdvised is for how many names that are not there the one that was meant is looked
// for among ten thousand.
const maxAdvised = 20

// inherit gives every rule with like the fields that it has not, in any order of
// the rules.
func inherit(m *mistakes, rules []entry[ruleText]) {
	byName := make(map[string]*ruleText)
	var names []string
	for i := range rules {
		t := &rules[i].value
		if _, taken := byName[t.name]; rules[i].good && !taken && t.name != "" {
			byName[t.name] = t
			names = append(names, t.name)
		}
	}
	const under, done = 1, 2
	total := 0   // what all rules come to
	advised := 0 // how many names have been compared with all others
	state := make(map[*ruleText]int)
	var expand func(t *ruleText, path []string)
	expand = func(t *ruleText, path []string) {
		path = append(path, t.name)
		if t.like == "" || state[t] == done {
			return
		}
		state[t] = under
		base := byName[t.like]
		switch {
		case base == nil:
			advice := "it must be another rule of this file"
			if advised++; advised <= maxAdvised {
				if meant := closest(t.like, names); meant != "" {
					advice = fmt.Sprintf("did you mean %q?", meant)
				}
			}
			m.add(t.places["like"], "there is no rule %q to be like; %s", t.like, advice)
		case state[base] == under:
			m.add(t.places["like"], "the rule is like itself: %s; break the circle", circle(path, t.like))
		default:
			expand(base, path)
			if total > maxNodes {
				break // Told already.
			}
			t.take(base)
			if total += t.size(); total > maxNodes {
				m.add(t.places["like"], "with what rules are like written out this has more than %d values", maxNodes)
			}
		}
		state[t] = done
	}
	for i := range rules {
		if rules[i].good {
			expand(&rules[i].value, nil)
		}
	}
}

// size is about how many values the rule has.
func (t *ruleText) size() int {
	conditions := func(all []policy.Condition) (n int) {
		for i := range all {
			c := &all[i]
			n += 1 + len(c.Equals) + len(c.Prefixes) + len(c.Networks) + len(c.Hashes)
		}
		return n
	}
	n := 1 + conditions(t.match) + len(t.per) + len(t.limits.list)
	for i := range t.limits.tiers {
		n += 1 + len(t.limits.tiers[i].limits)
	}
	for i := range t.overrides {
		n += 1 + conditions(t.overrides[i].value.match) + len(t.overrides[i].value.limits)
	}
	if t.cost.costs != nil {
		n += len(t.cost.costs.Values)
	}
	return n
}

// circle writes the part of the path that goes around.
func circle(path []string, back string) string {
	text := back
	for i := len(path) - 1; i >= 0; i-- {
		text = path[i] + " is like " + text
		if path[i] == back {
			break
		}
	}
	return text
}

// take copies from base the fields that t has not.
func (t *ruleText) take(base *ruleText) {
	lacks := func(field string) bool {
		_, given := t.places[field]
		return !given
	}
	taken := make(places)
	from := func(fields ...string) bool {
		for _, f := range fields {
			if !lacks(f) {
				return false
			}
		}
		for f, at := range base.places {
			for _, field := range fields {
				if f == field || len(f) > len(field) && f[:len(field)+1] == field+"." {
					taken[f] = at
				}
			}
		}
		return true
	}
	if from("match") {
		t.match = base.match
	}
	if from("per") {
		t.per = base.per
	}
	if from("algorithm") {
		t.algorithm = base.algorithm
	}
	if from("limits", "tariff") {
		t.limits = base.limits
	}
	if from("overrides") {
		t.overrides = base.overrides
	}
	if from("cost") {
		t.cost = base.cost
	}
	if from("time_zone") {
		t.zone = base.zone
	}
	if from("soft") {
		t.soft = base.soft
	}
	if from("mode", "enforce") {
		t.mode, t.enforce = base.mode, base.enforce
	}
	if from("give_back_on", "charge_on") {
		t.giveBack, t.chargeOn = base.giveBack, base.chargeOn
	}
	if from("reservation") {
		t.reserve = base.reserve
	}
	if from("on_store_error") {
		t.onError = base.onError
	}
	if from("consistency") {
		t.counts = base.counts
	}
	if from("deny_cache") {
		t.denyCache = base.denyCache
	}
	if from("slot") {
		t.slot = base.slot
	}
	if from("replaces") {
		t.replaces = base.replaces
	}
	maps.Copy(t.places, taken)
	t.inherited = make(map[place]bool, len(taken))
	for _, at := range taken {
		t.inherited[at] = true
	}
}
