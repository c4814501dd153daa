package config

import (
	"slices"
	"time"

	"github.com/headgate/headgate"
	"github.com/headgate/headgate/policy"
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
		to("in_progress", "how many requests may be in progress instead, for each key", wholeNumber(1, headgate.MaxCount),
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
