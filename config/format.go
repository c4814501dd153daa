package config

import (
	"bytes"
	"encoding/json"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/headgate/headgate"
	"github.com/headgate/headgate/policy"
)

// Format writes a set as a policy file that loads to the same set: rules first,
// then direct ones in the short form. It returns an error for a set, made in Go,
// that no file can say: direct rules with other limits than sliding windows of
// whole seconds, or several lists of demanded or excluded values for one entry.
func Format(set *policy.Set) ([]byte, error) {
	w := new(writer)
	rules := set.Rules()
	for _, section := range []struct {
		head   string
		direct bool
		write  func(*policy.Rule)
	}{{"rules:", false, w.rule}, {"limits:", true, w.short}} {
		begun := false
		for i := range rules {
			r := &rules[i]
			if r.Direct != section.direct {
				continue
			}
			if !begun {
				w.line(0, "%s", section.head)
				begun = true
			}
			section.write(r)
			if w.err != nil {
				return nil, fmt.Errorf("config: rule %q cannot be written: %w", r.Name, w.err)
			}
		}
	}
	return w.Bytes(), nil
}

type writer struct {
	bytes.Buffer
	err error
}

func (w *writer) line(indent int, format string, args ...any) {
	w.WriteString(strings.Repeat("  ", indent) + fmt.Sprintf(format, args...) + "\n")
}

func (w *writer) fail(format string, args ...any) {
	if w.err == nil {
		w.err = fmt.Errorf(format, args...)
	}
}

func (w *writer) short(r *policy.Rule) {
	w.line(1, "- name: %s", quote(r.Name))
	w.line(2, "config:")
	limits := r.Limits.Limits()
	for i := range limits {
		l := &limits[i]
		if l.Algorithm != headgate.SlidingWindow || l.Period%time.Second != 0 || r.Cost > 1 {
			w.fail("the short form has sliding windows of whole seconds and no cost, not %s %q at cost %d", l.Algorithm, l, max(r.Cost, 1))
		}
		w.line(3, "- {limit: %d, period: %d}", l.Count, l.Period/time.Second)
	}
}

func (w *writer) rule(r *policy.Rule) {
	w.line(1, "- name: %s", quote(r.Name))
	w.match(r.Match)
	if len(r.Per) > 0 {
		parts := make([]string, len(r.Per))
		for i, p := range r.Per {
			parts[i] = quote(p.String())
		}
		w.line(2, "per: [%s]", strings.Join(parts, ", "))
	}
	limits := r.Limits.Limits()
	// Calendar windows are fixed windows whatever the rule says.
	algorithm := limits[0].Algorithm
	for i := range limits {
		if limits[i].Align < headgate.AlignFirst {
			algorithm = limits[i].Algorithm
			break
		}
	}
	w.line(2, "algorithm: %s", algorithm)
	w.line(2, "limits:")
	for i := range limits {
		w.line(3, "- %s", limitYAML(&limits[i], algorithm))
	}
	if r.Cost > 1 {
		w.line(2, "cost: %d", r.Cost)
	}
}

// match writes the conditions of each entry together.
func (w *writer) match(conditions []policy.Condition) {
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
		w.line(2, "match:")
	}
	for _, entry := range entries {
		w.line(3, "%s: %s", quote(entry), w.condition(entry, demanded[entry], excluded[entry]))
	}
}

func (w *writer) condition(entry string, yes, no *policy.Condition) string {
	bare := func(c *policy.Condition) bool { return c != nil && len(c.Equals)+len(c.Prefixes) == 0 }
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
	var fields []string
	for _, f := range []struct {
		name   string
		values []string
	}{{"equals", c.Equals}, {"prefix", c.Prefixes}} {
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

// limitYAML writes the limit as a text if that says all, in a rule with this
// algorithm, and else as a mapping.
func limitYAML(l *headgate.Limit, algorithm headgate.Algorithm) string {
	if again, err := headgate.ParseLimit(algorithm, l.String()); err == nil && sameLimit(&again, l) {
		return quote(l.String())
	}
	fields := []string{"algorithm: " + l.Algorithm.String(), fmt.Sprintf("count: %d", l.Count)}
	if l.Period != 0 {
		fields = append(fields, "period: "+headgate.FormatPeriod(l.Period))
	}
	if l.Burst != 0 {
		fields = append(fields, fmt.Sprintf("burst: %d", l.Burst))
	}
	if l.Align != headgate.AlignUTC {
		fields = append(fields, "align: "+l.Align.String())
	}
	if l.Location != nil {
		fields = append(fields, "time_zone: "+quote(l.Location.String()))
	}
	return "{" + strings.Join(fields, ", ") + "}"
}

// sameLimit reports whether two limits decide alike and count in one place.
func sameLimit(a, b *headgate.Limit) bool {
	zone := func(l *headgate.Limit) string {
		if l.Location == nil {
			return time.UTC.String()
		}
		return l.Location.String()
	}
	return a.Algorithm == b.Algorithm && a.Count == b.Count && a.Period == b.Period &&
		a.Capacity() == b.Capacity() && a.Align == b.Align && zone(a) == zone(b)
}

// quote writes a text in double quotes, which JSON and YAML have in common.
func quote(s string) string {
	var b bytes.Buffer
	e := json.NewEncoder(&b)
	e.SetEscapeHTML(false)
	if err := e.Encode(s); err != nil {
		// Texts always encode.
		panic(err)
	}
	return strings.TrimSuffix(b.String(), "\n")
}
