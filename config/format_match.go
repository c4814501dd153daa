package config

import (
	"slices"
	"strings"

	"github.com/headgate/headgate/policy"
)

// list writes the field allow or deny.
func (w *writer) list(name string, entries []policy.ListEntry) {
	for i := range entries {
		if i == 0 {
			w.line(0, "%s:", name)
		}
		w.line(1, "- name: %s", quote(entries[i].Name))
		w.until(2, entries[i].Until)
		w.match(2, entries[i].Match)
		w.replaces(entries[i].Replaces)
	}
}

func (w *writer) ignore(indent int, all []policy.Ignore) {
	for i, one := range all {
		if i == 0 {
			w.line(indent, "ignore:")
		}
		w.line(indent+1, "- {code: %s, reason: %s}", one.Code, quote(one.Reason))
	}
}

// match writes the conditions of each entry together.
func (w *writer) match(indent int, conditions []policy.Condition) {
	var entries []string
	demanded, excluded := make(map[string]*policy.Condition), make(map[string]*policy.Condition)
	for i := range conditions {
		c := &conditions[i]
		side := demanded
		if c.Not {
			side = excluded
		}
		if side[c.Entry] != nil {
			w.fail("entry %q has more than one list of values; join them into one", c.Entry)
		}
		if !slices.Contains(entries, c.Entry) {
			entries = append(entries, c.Entry)
		}
		side[c.Entry] = c
	}
	if len(entries) > 0 {
		w.line(indent, "match:")
	}
	for _, entry := range entries {
		w.line(indent+1, "%s: %s", quote(entry), w.condition(entry, demanded[entry], excluded[entry]))
	}
}

func (w *writer) condition(entry string, yes, no *policy.Condition) string {
	bare := func(c *policy.Condition) bool { return c != nil && valueFields(c) == nil }
	switch {
	case bare(yes) && no == nil:
		return present
	case bare(no) && yes == nil:
		return absent
	case bare(yes) || bare(no):
		w.fail("entry %q is asked to be present or absent, and to have values as well; drop one", entry)
		return ""
	}
	var fields []string
	if yes != nil {
		fields = append(fields, valueFields(yes)...)
	}
	if no != nil {
		fields = append(fields, "not: {"+strings.Join(valueFields(no), ", ")+"}")
	}
	return "{" + strings.Join(fields, ", ") + "}"
}

func valueFields(c *policy.Condition) []string {
	networks := make([]string, len(c.Networks))
	for i, n := range c.Networks {
		networks[i] = n.String()
	}
	var fields []string
	for _, f := range []struct {
		name   string
		values []string
	}{{"equals", c.Equals}, {"prefix", c.Prefixes}, {"network", networks}, {"hash", c.Hashes}} {
		if len(f.values) == 0 {
			continue
		}
		quoted := make([]string, len(f.values))
		for i, v := range f.values {
			quoted[i] = quote(v)
		}
		fields = append(fields, f.name+": ["+strings.Join(quoted, ", ")+"]")
	}
	return fields
}
