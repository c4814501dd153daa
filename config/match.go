package config

import (
	"fmt"
	"net/netip"
	"strings"

	"github.com/headgate/headgate/policy"
)

// The words that stand for presence and absence, and the mark of a prefix.
const (
	absent  = "absent"
	present = "present"
	star    = "*"
)

// matchMapping maps entries to what they must be: a text, a list of texts, or a
// mapping with equals, prefix, network, hash and not. The advice is for one without entries.
func matchMapping(advice string) value[[]entry[policy.Condition]] {
	c := condition()
	s := schema{
		"type":                 "object",
		"additionalProperties": c.schema,
		"propertyNames":        schema{"pattern": entryPattern},
		"minProperties":        1,
		"maxProperties":        policy.MaxConditions,
	}
	return value[[]entry[policy.Condition]]{s, func(r *reader, name string, n *node) ([]entry[policy.Condition], bool) {
		if n.kind != mapping {
			r.add(n.at, "%s is %s, must be a mapping, such as { route: POST /v1/token }", name, describe(n))
			return nil, false
		}
		if len(n.fields) == 0 || len(n.fields) > policy.MaxConditions {
			r.add(n.at, "%s has %d entries, must have 1 to %d; %s", name, len(n.fields), policy.MaxConditions, advice)
			return nil, false
		}
		var all []entry[policy.Condition]
		lines := make(map[string]int, len(n.fields))
		for _, p := range n.fields {
			if line, twice := lines[p.name]; twice {
				r.add(p.at, "the entry %q is set twice, first in line %d; write both values into one list", p.name, line)
				continue
			}
			lines[p.name] = p.at.line
			conditions, ok := c.read(r, p.name, p.value)
			for _, c := range conditions {
				c.Entry = p.name
				all = append(all, entry[policy.Condition]{p.at, c, ok})
			}
		}
		return all, true
	}}
}

// conditionText is a mapping with equals, prefix, network, hash and not.
type conditionText struct {
	demanded policy.Condition
	not      *policy.Condition
}

// condition is what one entry must be. It comes to two conditions if values are
// both demanded and excluded.
func condition() value[[]policy.Condition] {
	exact := texts(func(r *reader, _ string, n *node, into *policy.Condition) {
		into.Equals = append(into.Equals, n.text)
	})
	beginning := texts(func(r *reader, _ string, n *node, into *policy.Condition) {
		into.Prefixes = append(into.Prefixes, n.text)
	})
	network := texts(readNetwork)
	hash := texts(func(r *reader, _ string, n *node, into *policy.Condition) {
		into.Hashes = append(into.Hashes, n.text)
	})
	pattern := texts(readPattern)
	literal := []field[conditionText]{
		to("equals", "exact values, without any special characters", exact,
			func(into *conditionText, _ *node, v policy.Condition) { into.demanded.Equals = v.Equals }),
		to("prefix", "prefixes of the value, without any special characters", beginning,
			func(into *conditionText, _ *node, v policy.Condition) { into.demanded.Prefixes = v.Prefixes }),
		to("network", "networks that contain the value, an address, such as 192.0.2.0/24", network,
			func(into *conditionText, _ *node, v policy.Condition) { into.demanded.Networks = v.Networks }),
		to("hash", "hashes of secret values, as they appear in keys", hash,
			func(into *conditionText, _ *node, v policy.Condition) { into.demanded.Hashes = v.Hashes }),
	}
	inner := object("not", literal)
	inner.schema["minProperties"] = 1
	not := value[policy.Condition]{schema{"anyOf": []schema{pattern.schema, inner.schema}}, func(r *reader, name string, n *node) (policy.Condition, bool) {
		if n.kind != mapping {
			c, ok := pattern.read(r, name, n)
			return policy.Not(c), ok
		}
		if !filled(r, name, n, literal) {
			return policy.Condition{}, false
		}
		t, ok := inner.read(r, name, n)
		t.demanded.Not = true
		return t.demanded, ok
	}}
	fields := append(literal[:len(literal):len(literal)], to("not", "values that the entry must not have, in any of these forms", not,
		func(into *conditionText, _ *node, v policy.Condition) { into.not = &v }))
	outer := object("a condition", fields)
	outer.schema["minProperties"] = 1

	s := schema{"anyOf": []schema{pattern.schema, outer.schema}}
	return value[[]policy.Condition]{s, func(r *reader, name string, n *node) ([]policy.Condition, bool) {
		switch {
		case n.kind == text && n.text == absent:
			return []policy.Condition{{Not: true}}, true
		case n.kind == text && n.text == present:
			return []policy.Condition{{}}, true
		case n.kind != mapping:
			c, ok := pattern.read(r, name, n)
			return []policy.Condition{c}, ok
		case !filled(r, name, n, fields):
			return nil, false
		}
		before := r.count()
		t, _ := outer.read(r, name, n)
		if r.count() != before {
			return nil, false
		}
		var all []policy.Condition
		if valueFields(&t.demanded) != nil {
			all = append(all, t.demanded)
		}
		if t.not != nil {
			all = append(all, *t.not)
		}
		return all, true
	}}
}

// keepMatch gives the conditions that could be read, and keeps their places.
func keepMatch(p *places, n *node, v []entry[policy.Condition], field string) []policy.Condition {
	p.keep(n.at, field)
	var all []policy.Condition
	for i, c := range v {
		all = append(all, c.value)
		p.keep(c.at, fmt.Sprintf("%s.%d", field, i))
	}
	return all
}

// filled reports whether a mapping has fields at all.
func filled[T any](r *reader, name string, n *node, fields []field[T]) bool {
	if len(n.fields) == 0 {
		r.add(n.at, "%s is an empty mapping, must have %s", name, strings.Join(names(fields), ", "))
	}
	return len(n.fields) > 0
}

// texts is a scalar, or a list of them. Numbers, true and false count as the
// text that is written.
func texts(read func(r *reader, name string, n *node, into *policy.Condition)) value[policy.Condition] {
	scalar := schema{"type": []string{"string", "number", "boolean"}}
	s := schema{"anyOf": []schema{scalar, {"type": "array", "items": scalar, "minItems": 1, "maxItems": policy.MaxValues}}}
	return value[policy.Condition]{s, func(r *reader, name string, n *node) (policy.Condition, bool) {
		var c policy.Condition
		before := r.count()
		items := []*node{n}
		if n.kind == list {
			items = n.items
			if len(items) == 0 || len(items) > policy.MaxValues {
				r.add(n.at, "%s has %d values, must have 1 to %d", name, len(items), policy.MaxValues)
			}
		}
		for _, item := range items {
			switch item.kind {
			case empty:
				r.add(item.at, `%s has no value; write absent for a missing entry`, name)
			case list, mapping:
				r.add(item.at, "%s is %s, must be a text or a list of texts", name, describe(item))
			default:
				read(r, name, item, &c)
			}
		}
		return c, r.count() == before
	}}
}

// readNetwork reads a network, or an address, which is a network of its own.
func readNetwork(r *reader, name string, n *node, into *policy.Condition) {
	p, err := netip.ParsePrefix(n.text)
	if a, alone := netip.ParseAddr(n.text); alone == nil {
		a = a.Unmap().WithZone("")
		p, err = netip.PrefixFrom(a, a.BitLen()), nil
	}
	if err != nil {
		r.add(n.at, "%s is %s, must be a network such as 192.0.2.0/24 or 2001:db8::/32", name, describe(n))
		return
	}
	into.Networks = append(into.Networks, p)
}

// readPattern reads a value, or with a star at its end a prefix. What is written
// as a network is one.
func readPattern(r *reader, name string, n *node, into *policy.Condition) {
	rest, prefix := strings.CutSuffix(n.text, star)
	switch {
	case n.kind == text && (n.text == absent || n.text == present):
		r.add(n.at, "%s: %q cannot stand in a list or after not; write { equals: %s } if it is a value", name, n.text, n.text)
	case n.text == star:
		r.add(n.at, `%s: "*" would be any value; write present`, name)
	case strings.Contains(rest, star):
		r.add(n.at, "%s: %s has a star before its end, but only beginnings can be matched; write { equals: ... } if the star is part of the value", name, describe(n))
	case prefix:
		into.Prefixes = append(into.Prefixes, rest)
	default:
		if p, err := netip.ParsePrefix(n.text); err == nil {
			into.Networks = append(into.Networks, p)
			return
		}
		into.Equals = append(into.Equals, n.text)
	}
}
