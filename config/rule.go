package config

import (
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	"github.com/headgate/headgate"
	"github.com/headgate/headgate/policy"
	"github.com/headgate/headgate/policy/models"
)

// ruleText is one entry of the field rules.
type ruleText struct {
	// places has a place for each field that was given, by the rule itself or by the rule
	// that it is like. inherited has the places of the latter.
	places    places
	inherited map[place]bool
	// rule has the fields that can be read as they are. The others depend on each other.
	rule      policy.Rule
	like      string
	algorithm headgate.Algorithm
	limits    limitsText
	bound     inProgressText
	overrides []entry[overrideText]
	cost      costText
	zone      *time.Location
	slot      string
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
	places     places
	match      []policy.Condition
	limits     []entry[limitText]
	inProgress int64
	until      time.Time
}

const aboutLimits = "the limits, such as [20 per 60s, 5 per 3s], checked and charged together; or one list for each value of an entry, as { tier: { pro: [...], \"*\": [...] } }"

// ruleField is a field of a rule: how it is read, and how a rule takes it from the rule
// that it is like.
type ruleField struct {
	field[ruleText]
	// take copies the field; nil if a rule does not take it.
	take func(into, base *ruleText)
	// with are fields that say one thing together with this one: a rule that has one of
	// them takes none of them.
	with []string
}

// own is a field that is kept at a place in the rule as it is read.
func own[V any](name, about string, v value[V], at func(*ruleText) *V) ruleField {
	return kept(name, about, v, at, func(_ *places, _ *node, read V) V { return read })
}

// kept is a field that is kept at a place in the rule as what keep makes of it. Keep also
// keeps the places of what the field consists of.
func kept[V, W any](name, about string, v value[V], at func(*ruleText) *W, keep func(p *places, n *node, read V) W) ruleField {
	return ruleField{
		field: to(name, about, v, func(into *ruleText, n *node, read V) {
			into.places.keep(n.at, name)
			*at(into) = keep(&into.places, n, read)
		}),
		take: func(into, base *ruleText) { *at(into) = *at(base) },
	}
}

// together are fields that say one thing.
func together(fields ...ruleField) []ruleField {
	for i := range fields {
		for _, f := range fields {
			fields[i].with = append(fields[i].with, f.name)
		}
	}
	return fields
}

// itself is a field that a rule does not take from another one.
func itself(f ruleField) ruleField {
	f.take = nil
	return f
}

// ruleFields are the fields of a rule.
func ruleFields() []ruleField {
	name := itself(own("name", "the rule's name, also part of its counters' keys: 1 to 128 bytes without spaces and braces", nameText(),
		func(t *ruleText) *string { return &t.rule.Name }))
	name.required = true
	return slices.Concat(
		[]ruleField{
			name,
			itself(own("like", "the name of another rule, from which all fields not set here are taken", nameText(),
				func(t *ruleText) *string { return &t.like })),
			kept("match", "conditions on the request's entries, such as { route: POST /v1/token }. Default: every request", matchMapping("leave it out to match every request, or with like what the other rule matches"),
				func(t *ruleText) *[]policy.Condition { return &t.rule.Match },
				func(p *places, n *node, v []entry[policy.Condition]) []policy.Condition {
					return keepMatch(p, n, v, "match")
				}),
			kept("per", "entries to count by, such as [api_key] or [ip/64]; each combination of values has its own counter. all means one counter for all requests", perValue(),
				func(t *ruleText) *[]policy.Part { return &t.rule.Per },
				func(p *places, _ *node, v []entry[policy.Part]) []policy.Part { return keepGood(p, "per", v) }),
			own("algorithm", "the algorithm of limits that do not set their own. Default: token_bucket", algorithmName(),
				func(t *ruleText) *headgate.Algorithm { return &t.algorithm }),
			own("limits", aboutLimits, limitsValue(),
				func(t *ruleText) *limitsText { return &t.limits }),
			kept("in_progress", aboutInProgress, inProgressValue(),
				func(t *ruleText) *inProgressText { return &t.bound },
				func(p *places, _ *node, v inProgressText) inProgressText {
					for name, at := range v.places {
						p.keep(at, name)
					}
					return v
				}),
			own("overrides", "other limits for some requests. The first override that matches is used", listOf(overrideMapping(), 1, policy.MaxOverrides),
				func(t *ruleText) *[]entry[overrideText] { return &t.overrides }),
			own("counts", "what the limits count: requests (default), or of calls to language models input_tokens, output_tokens, tokens or money", oneOf(models.Requests, models.InputTokens, models.OutputTokens, models.Tokens, models.Money),
				func(t *ruleText) *models.Counted { return &t.rule.Counts }),
			own("cost", "factor for the cost of each request: a number, a table by the value of an entry, or a measured entry such as bytes. Default: 1", costValue(),
				func(t *ruleText) *costText { return &t.cost }),
			own("time_zone", "time zone of calendar windows that do not set their own, such as Europe/Berlin. Default: UTC", zoneText(),
				func(t *ruleText) **time.Location { return &t.zone }),
			own("soft", "warn clients when this much of a limit is used, such as 80%", percent(1, 99),
				func(t *ruleText) *int { return &t.rule.Soft }),
		},
		together(
			own("mode", "enforce (default): deny requests over the limit. shadow: count, but never deny. quota: count, never deny, and report to the caller what exceeds the limit", oneOf(policy.ModeEnforce, policy.ModeShadow, policy.ModeQuota),
				func(t *ruleText) *policy.Mode { return &t.rule.Mode }),
			own("enforce", "percentage of keys for which the rule is enforced, such as 25%. For the others it is in shadow mode", percent(1, 100),
				func(t *ruleText) *int { return &t.rule.Enforce }),
		),
		together(
			own("give_back_on", "refund requests that end with these HTTP statuses, such as [304, 5xx]", statusList(),
				func(t *ruleText) *policy.Statuses { return &t.rule.GiveBackOn }),
			own("charge_on", "charge only requests that end with these HTTP statuses, such as [401, 403]; refund the others", statusList(),
				func(t *ruleText) *policy.Statuses { return &t.rule.ChargeOn }),
		),
		[]ruleField{
			own("reservation", "settings for requests whose cost is settled later, such as { for: 5m, abandoned: give_back }", reservationMapping(),
				func(t *ruleText) *policy.Reservation { return &t.rule.Reservation }),
			own("on_store_error", "what to do while the store does not answer: allow requests, deny them, or enforce each server's share of the limits (local). Default: the server's --on-store-error", oneOf(headgate.OnErrorAllow, headgate.OnErrorDeny, headgate.OnErrorLocal),
				func(t *ruleText) *headgate.OnError { return &t.rule.OnError }),
			own("consistency", "how exactly the rule counts. strict (default): the store decides each request. leased: busy keys take units from the store in advance; never over the limit. async: decide locally and report to the store a moment later; slightly over the limit", oneOf(headgate.Strict, headgate.Leased, headgate.Async),
				func(t *ruleText) *headgate.Consistency { return &t.rule.Consistency }),
			own("deny_cache", "whether a denied key is answered from memory until its retry time, without asking the store: on or off. Default: the server's --deny-cache", oneOf(headgate.DenyCacheOn, headgate.DenyCacheOff),
				func(t *ruleText) *headgate.DenyCache { return &t.rule.DenyCache }),
			own("scope", "where the limits hold if the server belongs to a region (--region). regional (default): in each region on its own. global: in all regions together, of which each has a share", oneOf(headgate.Regional, headgate.Global),
				func(t *ruleText) *headgate.Scope { return &t.rule.Scope }),
			own("slot", "hash tag for Redis Cluster: counters of all rules with the same tag are on one node, so that a request under several of these rules is one call. Default: spread over all nodes", tagText(),
				func(t *ruleText) *string { return &t.slot }),
			kept("replaces", "names of other rules that do not apply where this one does, and of deny entries that do not deny a request with several descriptors", listOf(someText(), 1, policy.MaxReplaces),
				func(t *ruleText) *[]string { return &t.rule.Replaces },
				func(p *places, _ *node, v []entry[string]) []string { return keepGood(p, "replaces", v) }),
			itself(kept("ignore", "lint warnings to silence, such as [{code: HG004, reason: internal network}]", listOf(ignoreMapping(), 1, maxIgnored),
				func(t *ruleText) *[]policy.Ignore { return &t.rule.Ignore },
				func(p *places, _ *node, v []entry[policy.Ignore]) []policy.Ignore { return keepIgnored(p, v) })),
		},
	)
}

func ruleMapping() value[ruleText] {
	var fields []field[ruleText]
	for _, f := range ruleFields() {
		fields = append(fields, f.field)
	}
	v := object("a rule", fields)
	v.schema["anyOf"] = []schema{{"required": []string{"per", "limits"}}, {"required": []string{"per", "in_progress"}}, {"required": []string{"like"}}}
	return value[ruleText]{v.schema, func(r *reader, name string, n *node) (ruleText, bool) {
		t, ok := v.read(r, name, n)
		if ok && !n.has("per") && !n.has("like") {
			r.add(n.at, "a rule must have the field \"per\": %s", aboutPer)
		}
		if ok && !n.has("limits") && !n.has("in_progress") && !n.has("like") {
			r.add(n.at, "a rule must have the field \"limits\": %s", aboutLimits)
		}
		return t, ok
	}}
}

func overrideMapping() value[overrideText] {
	v := object("an override", []field[overrideText]{
		required(to("match", "conditions on the request's entries, such as { api_key: k1 }", matchMapping("say whom the override is for"),
			func(into *overrideText, n *node, v []entry[policy.Condition]) {
				into.match = keepMatch(&into.places, n, v, "match")
			})),
		to("limits", "the limits to use instead, such as [200 per 60s]", limitList(),
			func(into *overrideText, n *node, v []entry[limitText]) {
				into.limits = v
				into.places.keep(n.at, "limits")
			}),
		to("in_progress", "how many requests may be in progress instead, for each key", wholeNumber(1, headgate.MaxPermits),
			func(into *overrideText, n *node, v int64) {
				into.inProgress = v
				into.places.keep(n.at, "in_progress")
			}),
		to("until", "the last day (UTC) or the exact time at which the override expires, such as 2026-12-31", untilText(),
			func(into *overrideText, _ *node, v time.Time) { into.until = v }),
	})
	v.schema["anyOf"] = []schema{{"required": []string{"limits"}}, {"required": []string{"in_progress"}}}
	return value[overrideText]{v.schema, func(r *reader, name string, n *node) (overrideText, bool) {
		t, ok := v.read(r, name, n)
		if ok && !n.has("limits") && !n.has("in_progress") {
			r.add(n.at, "an override must have the field \"limits\": what may pass instead, such as [200 per 60s]; or in_progress")
		}
		return t, ok
	}}
}

func limitList() value[[]entry[limitText]] {
	return listOf(limitEither(), 1, headgate.MaxLimits)
}

// limitsValue is a list of limits, or a mapping of one entry to such lists by
// its values.
func limitsValue() value[limitsText] {
	plain := limitList()
	tiers := table(plain, policy.MaxTiers, "limits", "%s", `tier: { pro: [...], "*": [...] }`)
	s := schema{"oneOf": []schema{plain.schema, tiers.schema}}
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
		by, ok := tiers.read(r, name, n)
		if t.entry = by.entry; !ok {
			return t, false
		}
		for _, v := range by.values {
			if !v.good {
				v.is = []entry[limitText]{} // Reported already.
			}
			t.tiers = append(t.tiers, tierText{v.at, v.when, v.is})
		}
		return t, true
	}}
}

// limitText is one limit as it was read. Which algorithm it has may depend on
// its rule, which is why the short form is still a text.
type limitText struct {
	text   string // "20 per 60s"; empty for the long form
	limit  headgate.Limit
	chosen bool // the limit names its algorithm
}

// resolve makes the limit of a rule with this algorithm and time zone.
func (t *limitText) resolve(a headgate.Algorithm, zone *time.Location) (headgate.Limit, error) {
	l := t.limit
	switch {
	case t.text != "":
		var err error
		if l, err = headgate.ParseLimit(a, t.text); err != nil {
			return l, err
		}
	case t.chosen:
	case l.Align != headgate.AlignUTC:
		l.Algorithm = headgate.FixedWindow
	default:
		l.Algorithm = a
	}
	if l.Align >= headgate.AlignMinute && l.Location == nil {
		l.Location = zone
	}
	return l, nil
}

// limitEither is a limit in one of its two forms: a text such as "20 per 60s",
// or a mapping.
func limitEither() value[limitText] {
	long := limitMapping()
	short := schema{
		"type":        "string",
		"description": "such as 20 per 60s, 50 per 1s burst 200, 1000 per calendar month in Europe/Berlin; or a penalty, 5 denials per 1m block 1m up to 1h",
		"pattern":     `^\s*[0-9][0-9_]*\s+(denials\s+)?per\s+[^\s].*$`,
	}
	s := schema{"oneOf": []schema{short, long.schema}}
	return value[limitText]{s, func(r *reader, name string, n *node) (limitText, bool) {
		switch n.kind {
		case text:
			if n.text != "" {
				return limitText{text: n.text}, true
			}
		case mapping:
			return long.read(r, name, n)
		}
		r.add(n.at, "%s is %s, must be a limit, such as 20 per 60s", name, describe(n))
		return limitText{}, false
	}}
}

func limitMapping() value[limitText] {
	v := object("a limit", []field[limitText]{
		to("algorithm", "the algorithm. Default: the rule's, or fixed_window if align is set", algorithmName(),
			func(into *limitText, _ *node, v headgate.Algorithm) { into.limit.Algorithm, into.chosen = v, true }),
		required(to("count", "how many units are admitted in a period", wholeNumber(1, headgate.MaxCount),
			func(into *limitText, _ *node, v int64) { into.limit.Count = v })),
		to("period", "length of the window, or time in which count units refill, such as 60s, 5m, 1h or 1 day. Not for calendar windows", periodText(),
			func(into *limitText, _ *node, v time.Duration) { into.limit.Period = v }),
		to("burst", "the largest amount admitted at once (token_bucket) or queued (leaky_bucket). Default: count", wholeNumber(1, headgate.MaxCount),
			func(into *limitText, _ *node, v int64) { into.limit.Burst = v }),
		to("align", "where windows of fixed_window begin: at multiples of the period (utc), at the first request (first), or at a calendar unit", alignName(),
			func(into *limitText, _ *node, v headgate.Alignment) { into.limit.Align = v }),
		to("time_zone", "time zone of calendar windows, such as Europe/Berlin", zoneText(),
			func(into *limitText, _ *node, v *time.Location) { into.limit.Location = v }),
	})
	v.schema["anyOf"] = []schema{{"required": []string{"period"}}, {"required": []string{"align"}}}
	return value[limitText]{v.schema, func(r *reader, name string, n *node) (limitText, bool) {
		before := r.count()
		t, ok := v.read(r, name, n)
		if !ok || r.count() != before {
			return t, false
		}
		if t.limit.Period == 0 && t.limit.Align < headgate.AlignMinute {
			r.add(n.at, "a limit has no period; write one such as 60s, or align it to a calendar unit")
			return t, false
		}
		return t, true
	}}
}

func periodText() value[time.Duration] {
	v := plainText(schema{"pattern": `^\s*([0-9]+\s*)?[a-zµ]+\s*$`}, headgate.ParsePeriod)
	return value[time.Duration]{v.schema, func(r *reader, name string, n *node) (time.Duration, bool) {
		if n.kind == whole {
			r.add(n.at, "%s is %s without a unit; write %ss if seconds are meant", name, n.text, n.text)
			return 0, false
		}
		return v.read(r, name, n)
	}}
}

// costText is a number, or costs by an entry.
type costText struct {
	number int64
	costs  *policy.Costs
}

// costValue is a number; a table, as { route: { GET /search: 5, "*": 1 } }; or a
// measure, as { entry: bytes, per: 1024 }.
func costValue() value[costText] {
	number := wholeNumber(1, headgate.MaxCount)
	cost := wholeNumber(0, headgate.MaxCount)
	measure := object("a measured cost", []field[policy.Costs]{
		required(to("entry", "the entry that holds a whole number, such as bytes", plainText(schema{"pattern": entryPattern}, asWritten),
			func(into *policy.Costs, _ *node, v string) { into.Entry = v })),
		required(to("per", "how much of it costs one unit, rounded up", wholeNumber(1, headgate.MaxCount),
			func(into *policy.Costs, _ *node, v int64) { into.Per = v })),
		to("max", "upper bound on a request's cost, whatever the entry says", wholeNumber(1, headgate.MaxCount),
			func(into *policy.Costs, _ *node, v int64) { into.Max = v }),
	})
	costs := table(cost, maxFields, "costs", "the cost of %q", `route: { GET /search: 5, "*": 1 }`)
	s := schema{"anyOf": []schema{number.schema, measure.schema, costs.schema}}
	return value[costText]{s, func(r *reader, name string, n *node) (costText, bool) {
		if n.kind != mapping {
			x, ok := number.read(r, name, n)
			return costText{number: x}, ok
		}
		before := r.count()
		if e, ok := n.field("entry"); n.has("per") || n.has("max") || ok && e.kind != mapping {
			c, _ := measure.read(r, name, n)
			return costText{costs: &c}, r.count() == before
		}
		t, ok := costs.read(r, name, n)
		if !ok {
			return costText{}, false
		}
		c := policy.Costs{Entry: t.entry, Values: make(map[string]int64), Other: 1}
		for _, v := range t.values {
			switch {
			case !v.good:
			case v.when == star:
				c.Other = v.is
			case strings.HasSuffix(v.when, star):
				r.add(v.at, "the value %q ends with a star, but costs are those of whole values; \"*\" alone stands for all others", v.when)
			default:
				c.Values[v.when] = v.is
			}
		}
		if len(c.Values) == 0 && r.count() == before {
			r.add(t.at, "the costs by %q have no value but \"*\"; write cost: %d instead", t.entry, c.Other)
		}
		return costText{costs: &c}, r.count() == before
	}}
}

// statusList is a list of HTTP statuses and classes of them.
func statusList() value[policy.Statuses] {
	one := statusText()
	many := listOf(one, 1, policy.MaxStatuses)
	return value[policy.Statuses]{many.schema, func(r *reader, name string, n *node) (policy.Statuses, bool) {
		entries, ok := many.read(r, name, n)
		var all policy.Statuses
		for _, e := range entries {
			if e.good {
				all = append(all, e.value)
			}
		}
		return all, ok
	}}
}

func statusText() value[policy.StatusRange] {
	s := schema{"anyOf": []schema{
		{"type": "integer", "minimum": 100, "maximum": 599},
		{"type": "string", "pattern": "^[1-5](xx|[0-9][0-9])$"},
	}}
	return value[policy.StatusRange]{s, func(r *reader, name string, n *node) (policy.StatusRange, bool) {
		if n.kind == whole || n.kind == text {
			if v, err := policy.ParseStatus(n.text); err == nil {
				return v, true
			}
		}
		r.add(n.at, "%s is %s, must be an HTTP status, such as 304, or a class, such as 5xx", name, describe(n))
		return policy.StatusRange{}, false
	}}
}

// What becomes of a reservation that nobody settles.
const (
	abandonedCharge   = "charge"
	abandonedGiveBack = "give_back"
)

const reserveTypical = "typical"

func reservationMapping() value[policy.Reservation] {
	return object("what becomes of reservations", []field[policy.Reservation]{
		to("for", "how long a reservation waits to be settled, such as 5m. Default: 1m", periodText(),
			func(into *policy.Reservation, _ *node, v time.Duration) { into.For = v }),
		to("abandoned", "what to do with a reservation that is never settled: keep the estimate charged (charge, default), or refund it (give_back)", oneOf(abandonedCharge, abandonedGiveBack),
			func(into *policy.Reservation, _ *node, v string) { into.GiveBack = v == abandonedGiveBack }),
		to("reserve", "how much of a call to a language model is reserved: what it may use at most (declared, default), or what recent calls of the same key and model have used (typical), with which the limit can be exceeded", oneOf("declared", reserveTypical),
			func(into *policy.Reservation, _ *node, v string) { into.Typical = v == reserveTypical }),
	})
}

// inProgressText is the field in_progress as it was read.
type inProgressText struct {
	places places
	bound  policy.InProgress
}

const aboutInProgress = "how many requests may be in progress at the same time for each key, such as 3; by the value of an entry, as { tier: { pro: 5, \"*\": 2 } }; or with settings, as { limit: 3, wait: 5s, queue: 100 }"

// inProgressValue is a number; a tariff, as { tier: { free: 1, pro: 5, "*": 2 } }; or a
// mapping with a limit, which is either of them, and settings.
func inProgressValue() value[inProgressText] {
	limit := numbersValue(headgate.MaxPermits)
	period := periodText()
	settings := object("in_progress", []field[inProgressText]{
		required(to("limit", "how many requests may be in progress for each key: a number, or numbers by the value of an entry", limit,
			func(into *inProgressText, n *node, v numbers) {
				into.bound.Limit, into.bound.Entry, into.bound.Values = v.number, v.entry, v.values
				into.places.keep(n.at, "in_progress.limit")
			})),
		to("wait", "how long a request may wait for a permit, such as 5s. Default: refuse at once", period,
			func(into *inProgressText, n *node, v time.Duration) {
				into.bound.Wait = v
				into.places.keep(n.at, "in_progress.wait")
			}),
		to("queue", fmt.Sprintf("how many requests may wait for each key in one process. Default: %d", policy.DefaultQueue), count(1, policy.MaxQueue),
			func(into *inProgressText, n *node, v int) {
				into.bound.Queue = v
				into.places.keep(n.at, "in_progress.queue")
			}),
		to("shared", "whether all processes on the store share the limit, instead of each having its own", yesOrNo(),
			func(into *inProgressText, _ *node, v bool) { into.bound.Shared = v }),
		to("ttl", fmt.Sprintf("how long after a process died the store frees its permits: %v to %v. Default: %v", policy.MinTTL, policy.MaxTTL, policy.DefaultTTL), period,
			func(into *inProgressText, n *node, v time.Duration) {
				into.bound.TTL = v
				into.places.keep(n.at, "in_progress.ttl")
			}),
	})
	s := schema{"anyOf": append(limit.schema["anyOf"].([]schema)[:2:2], settings.schema)}
	return value[inProgressText]{s, func(r *reader, name string, n *node) (inProgressText, bool) {
		before := r.count()
		if n.kind == mapping && (len(n.fields) != 1 || n.has("limit") || n.fields[0].value.kind != mapping) {
			t, ok := settings.read(r, name, n)
			return t, ok && r.count() == before
		}
		v, ok := limit.read(r, name, n)
		return inProgressText{bound: policy.InProgress{Limit: v.number, Entry: v.entry, Values: v.values}}, ok
	}}
}

// numbers is a number, or numbers by the value of an entry. The number is then for all others, or
// zero.
type numbers struct {
	number int64
	entry  string
	values map[string]int64
}

// numbersValue is a number up to most, or numbers by the value of an entry.
func numbersValue(most int64) value[numbers] {
	number := wholeNumber(1, most)
	by := table(number, policy.MaxTiers, "the numbers", "the number of %q", `tier: { pro: 5, "*": 2 }`)
	s := schema{"anyOf": []schema{number.schema, by.schema}}
	return value[numbers]{s, func(r *reader, name string, n *node) (numbers, bool) {
		if n.kind != mapping {
			v, ok := number.read(r, name, n)
			return numbers{number: v}, ok
		}
		before := r.count()
		t, ok := by.read(r, name, n)
		if !ok {
			return numbers{}, false
		}
		all := numbers{entry: t.entry, values: make(map[string]int64)}
		for _, v := range t.values {
			switch {
			case !v.good:
			case v.when == star:
				all.number = v.is
			default:
				all.values[v.when] = v.is
			}
		}
		if len(all.values) == 0 && r.count() == before {
			r.add(t.at, "the numbers by %q have no value but \"*\"; write %d instead", t.entry, all.number)
		}
		return all, r.count() == before
	}}
}

// inProgress writes what inProgressValue reads.
func (w *writer) inProgress(p *policy.InProgress) {
	if p == nil {
		return
	}
	limit := w.numbers(numbers{p.Limit, p.Entry, p.Values})
	var settings []string
	if p.Wait > 0 {
		settings = append(settings, "wait: "+headgate.FormatPeriod(p.Wait))
	}
	if p.Queue > 0 {
		settings = append(settings, fmt.Sprintf("queue: %d", p.Queue))
	}
	if p.Shared {
		settings = append(settings, "shared: true")
	}
	if p.TTL > 0 {
		settings = append(settings, "ttl: "+headgate.FormatPeriod(p.TTL))
	}
	if settings == nil {
		w.line(2, "in_progress: %s", limit)
		return
	}
	w.line(2, "in_progress: {limit: %s, %s}", limit, strings.Join(settings, ", "))
}

// numbers writes what numbersValue reads.
func (w *writer) numbers(n numbers) string {
	if n.entry == "" {
		return fmt.Sprint(n.number)
	}
	var values []string
	for _, v := range slices.Sorted(maps.Keys(n.values)) {
		if v == star {
			w.fail("a number is for the value \"*\", which stands for all others in a file")
		}
		values = append(values, fmt.Sprintf("%s: %d", quote(v), n.values[v]))
	}
	if n.number > 0 {
		values = append(values, fmt.Sprintf("%s: %d", quote(star), n.number))
	}
	return fmt.Sprintf("{%s: {%s}}", quote(n.entry), strings.Join(values, ", "))
}
