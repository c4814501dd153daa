package config

import (
	"net/netip"
	"slices"
	"strconv"
	"strings"
	"unicode/utf8"

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

// MatchText writes conditions as "match" has them in a policy file, in one line, or returns "" if a
// file cannot say them. Each condition demands one value, network or hash, as those of
// [policy.Set.KeyMatch] do. What Go quotes, YAML reads as the same text.
func MatchText(conditions []policy.Condition) string {
	parts := make([]string, len(conditions))
	for i, c := range conditions {
		switch {
		case len(c.Hashes) > 0:
			parts[i] = "{ hash: " + strconv.Quote(c.Hashes[0]) + " }"
		case len(c.Networks) > 0:
			parts[i] = "{ network: " + strconv.Quote(c.Networks[0].String()) + " }"
		case !utf8.ValidString(c.Equals[0]):
			return ""
		case meansMore(c.Equals[0]):
			parts[i] = "{ equals: [" + strconv.Quote(c.Equals[0]) + "] }"
		default:
			parts[i] = strconv.Quote(c.Equals[0])
		}
		name := c.Entry
		if strings.Trim(name, "abcdefghijklmnopqrstuvwxyz_") != "" {
			name = strconv.Quote(name)
		}
		parts[i] = name + ": " + parts[i]
	}
	return "{ " + strings.Join(parts, ", ") + " }"
}

// meansMore reports whether "match" takes a text for more than itself.
func meansMore(text string) bool {
	_, err := netip.ParsePrefix(text)
	return err == nil || text == present || text == absent || strings.HasSuffix(text, star)
}
