package config

import (
	"fmt"

	"github.com/headgate/headgate"
	"github.com/headgate/headgate/policy"
)

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
	table := schema{
		"type": "object", "minProperties": 1, "maxProperties": 1,
		"propertyNames": schema{"pattern": entryPattern},
		"additionalProperties": schema{
			"type": "object", "additionalProperties": cost.schema,
			"minProperties": 1, "maxProperties": maxFields,
		},
	}
	s := schema{"anyOf": []schema{number.schema, measure.schema, table}}
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
		if len(n.fields) != 1 {
			r.add(n.at, "%s has %d entries, must have the one that costs are chosen by, such as { route: { GET /search: 5, \"*\": 1 } }", name, len(n.fields))
			return costText{}, false
		}
		by := n.fields[0]
		if by.value.kind != mapping || len(by.value.fields) == 0 || len(by.value.fields) > maxFields {
			r.add(by.value.at, "the costs by %q are %s, must be a mapping with 1 to %d of its values, such as { GET /search: 5, \"*\": 1 }", by.name, describe(by.value), maxFields)
			return costText{}, false
		}
		c := policy.Costs{Entry: by.name, Values: make(map[string]int64), Other: 1}
		lines := make(map[string]int)
		for _, p := range by.value.fields {
			if line, twice := lines[p.name]; twice {
				r.add(p.at, "the value %q is set twice, first in line %d; keep one", p.name, line)
				continue
			}
			lines[p.name] = p.at.line
			switch x, ok := cost.read(r, fmt.Sprintf("the cost of %q", p.name), p.value); {
			case !ok:
			case p.name == star:
				c.Other = x
			case p.name[max(0, len(p.name)-1):] == star:
				r.add(p.at, "the value %q ends with a star, but costs are those of whole values; \"*\" alone stands for all others", p.name)
			default:
				c.Values[p.name] = x
			}
		}
		if len(c.Values) == 0 && r.count() == before {
			r.add(by.value.at, "the costs by %q have no value but \"*\"; write cost: %d instead", by.name, c.Other)
		}
		return costText{costs: &c}, r.count() == before
	}}
}
