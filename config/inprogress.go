package config

import (
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	"github.com/headgate/headgate"
	"github.com/headgate/headgate/policy"
)

// inProgressText is the field in_progress as it was read.
type inProgressText struct {
	places places
	bound  policy.InProgress
}

const aboutInProgress = "how many requests may be in progress at the same time for each key, such as 3; by the value of an entry, as { tier: { pro: 5, \"*\": 2 } }; or with settings, as { limit: 3, wait: 5s, queue: 100 }"

// inProgressValue is a number; a tariff, as { tier: { free: 1, pro: 5, "*": 2 } }; or a
// mapping with a limit, which is either of them, and settings.
func inProgressValue() value[inProgressText] {
	limit := permitsValue()
	period := periodText()
	settings := object("in_progress", []field[inProgressText]{
		required(to("limit", "how many requests may be in progress for each key: a number, or numbers by the value of an entry", limit,
			func(into *inProgressText, n *node, v policy.InProgress) {
				into.bound.Limit, into.bound.Entry, into.bound.Values = v.Limit, v.Entry, v.Values
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
		bound, ok := limit.read(r, name, n)
		return inProgressText{bound: bound}, ok
	}}
}

// permitsValue is a number of permits, or numbers by the value of an entry.
func permitsValue() value[policy.InProgress] {
	number := wholeNumber(1, headgate.MaxCount)
	table := schema{
		"type": "object", "minProperties": 1, "maxProperties": 1,
		"propertyNames": schema{"pattern": entryPattern},
		"additionalProperties": schema{
			"type": "object", "additionalProperties": number.schema,
			"minProperties": 1, "maxProperties": policy.MaxTiers,
		},
	}
	s := schema{"anyOf": []schema{number.schema, table}}
	return value[policy.InProgress]{s, func(r *reader, name string, n *node) (policy.InProgress, bool) {
		if n.kind != mapping {
			limit, ok := number.read(r, name, n)
			return policy.InProgress{Limit: limit}, ok
		}
		if len(n.fields) != 1 {
			r.add(n.at, "%s has %d entries, must have the one that the numbers are chosen by, such as { tier: { pro: 5, \"*\": 2 } }", name, len(n.fields))
			return policy.InProgress{}, false
		}
		by := n.fields[0]
		if by.value.kind != mapping || len(by.value.fields) == 0 || len(by.value.fields) > policy.MaxTiers {
			r.add(by.value.at, "the numbers by %q are %s, must be a mapping with 1 to %d of its values, such as { pro: 5, \"*\": 2 }", by.name, describe(by.value), policy.MaxTiers)
			return policy.InProgress{}, false
		}
		before := r.count()
		bound := policy.InProgress{Entry: by.name, Values: make(map[string]int64)}
		lines := make(map[string]int)
		for _, p := range by.value.fields {
			if line, twice := lines[p.name]; twice {
				r.add(p.at, "the value %q is set twice, first in line %d; keep one", p.name, line)
				continue
			}
			lines[p.name] = p.at.line
			limit, ok := number.read(r, fmt.Sprintf("the number of %q", p.name), p.value)
			switch {
			case !ok:
			case p.name == star:
				bound.Limit = limit
			default:
				bound.Values[p.name] = limit
			}
		}
		if len(bound.Values) == 0 && r.count() == before {
			r.add(by.value.at, "the numbers by %q have no value but \"*\"; write %d instead", by.name, bound.Limit)
		}
		return bound, r.count() == before
	}}
}

// inProgress writes what inProgressValue reads.
func (w *writer) inProgress(p *policy.InProgress) {
	if p == nil {
		return
	}
	limit := fmt.Sprint(p.Limit)
	if p.Entry != "" {
		limit = w.permits(p)
	}
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

// permits writes numbers by the value of an entry.
func (w *writer) permits(p *policy.InProgress) string {
	var values []string
	for _, v := range slices.Sorted(maps.Keys(p.Values)) {
		if v == star {
			w.fail("a number in progress is for the value \"*\", which stands for all others in a file")
		}
		values = append(values, fmt.Sprintf("%s: %d", quote(v), p.Values[v]))
	}
	if p.Limit > 0 {
		values = append(values, fmt.Sprintf("%s: %d", quote(star), p.Limit))
	}
	return fmt.Sprintf("{%s: {%s}}", quote(p.Entry), strings.Join(values, ", "))
}
