package config

import (
	"bytes"
	"encoding/json"
	"fmt"
	"maps"
	"net/netip"
	"slices"
	"strconv"
	"strings"
	"time"
	"unicode/utf8"

	"github.com/headgate/headgate"
	"github.com/headgate/headgate/policy"
	"github.com/headgate/headgate/policy/models"
)

// Format writes a set as a policy file that loads to the same set: its lists and
// subjects, rules with what they have from others written out, then direct ones
// in the short form. It returns an error for a set, made in Go, that no file can
// say: direct rules with other limits than sliding windows of whole seconds, for
// instance, or several lists of demanded or excluded values for one entry.
func Format(set *policy.Set) ([]byte, error) {
	w := new(writer)
	if declared := set.Declared(); declared != nil {
		w.line(0, "entries: %s", inline(declared, quote))
	}
	if behind := set.Behind(); len(behind) > 0 {
		w.line(0, "behind: [%s]", strings.Join(behind, ", "))
	}
	w.models(set)
	w.ignore(0, set.Ignored())
	w.subjects(set.Subjects())
	w.list("deny", set.Denied())
	w.list("allow", set.Allowed())
	if w.err != nil {
		return nil, fmt.Errorf("headgate: the policy cannot be written: %w", w.err)
	}
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
				return nil, fmt.Errorf("headgate: rule %q cannot be written: %w", r.Name, w.err)
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
	if r.Soft != 0 || r.Mode != policy.ModeEnforce || r.Enforce != 0 || len(r.Ignore)+len(r.GiveBackOn)+len(r.ChargeOn) > 0 || r.Reservation != (policy.Reservation{}) || r.OnError != headgate.OnErrorReturn || r.Consistency != headgate.Strict || r.DenyCache != headgate.DenyCacheDefault || r.Scope != headgate.Regional || r.Limits.Tag() != "" {
		w.fail("the short form has no soft, mode, enforce, ignore, give_back_on, charge_on, reservation, on_store_error, consistency, deny_cache, scope and slot")
	}
}

func (w *writer) rule(r *policy.Rule) {
	w.line(1, "- name: %s", quote(r.Name))
	w.match(2, r.Match)
	switch {
	case len(r.Per) == 0:
		w.line(2, "per: %s", oneForAll)
	case len(r.Per) == 1 && r.Per[0].String() == oneForAll:
		w.fail("the rule %q counts by an entry with the name %q, which stands for one counter in a file", r.Name, oneForAll)
	default:
		w.line(2, "per: %s", inline(r.Per, func(p policy.Part) string { return quote(p.String()) }))
	}
	var algorithm headgate.Algorithm
	if r.Limits != nil {
		algorithm = algorithmOf(r)
		w.line(2, "algorithm: %s", algorithm)
		w.limits(r, algorithm)
	}
	w.inProgress(r.InProgress)
	for i := range r.Overrides {
		if i == 0 {
			w.line(2, "overrides:")
		}
		o := &r.Overrides[i]
		switch {
		case o.Limits == nil:
			w.line(3, "- in_progress: %d", o.InProgress)
		case o.InProgress == 0:
			w.line(3, "- limits: %s", limitsYAML(o.Limits, algorithm))
		default:
			w.line(3, "- limits: %s", limitsYAML(o.Limits, algorithm))
			w.line(4, "in_progress: %d", o.InProgress)
		}
		w.until(4, o.Until)
		w.match(4, o.Match)
	}
	if r.Counts != models.Requests {
		w.line(2, "counts: %v", r.Counts)
	}
	w.cost(r)
	if r.Soft != 0 {
		w.line(2, "soft: %d%%", r.Soft)
	}
	if r.Mode != policy.ModeEnforce {
		w.line(2, "mode: %s", r.Mode)
	}
	if r.Enforce != 0 {
		w.line(2, "enforce: %d%%", r.Enforce)
	}
	w.outcome(r)
	if r.OnError != headgate.OnErrorReturn {
		w.line(2, "on_store_error: %s", r.OnError)
	}
	if r.Consistency != headgate.Strict {
		w.line(2, "consistency: %s", r.Consistency)
	}
	if r.DenyCache != headgate.DenyCacheDefault {
		w.line(2, "deny_cache: %s", r.DenyCache)
	}
	if r.Scope != headgate.Regional {
		w.line(2, "scope: %s", r.Scope)
	}
	if tag := r.Limits.Tag(); tag != "" {
		w.line(2, "slot: %s", quote(tag))
	}
	w.replaces(r.Replaces)
	w.ignore(2, r.Ignore)
}

// outcome writes what becomes of a charge after it was made.
func (w *writer) outcome(r *policy.Rule) {
	if len(r.GiveBackOn) > 0 {
		w.line(2, "give_back_on: %s", r.GiveBackOn)
	}
	if len(r.ChargeOn) > 0 {
		w.line(2, "charge_on: %s", r.ChargeOn)
	}
	var fields []string
	if r.Reservation.For != 0 {
		fields = append(fields, "for: "+headgate.FormatPeriod(r.Reservation.For))
	}
	if r.Reservation.GiveBack {
		fields = append(fields, "abandoned: "+abandonedGiveBack)
	}
	if r.Reservation.Typical {
		fields = append(fields, "reserve: "+reserveTypical)
	}
	if fields != nil {
		w.line(2, "reservation: {%s}", strings.Join(fields, ", "))
	}
}

// algorithmOf is what the rule's own field is to say: that of most limits, as far
// as they do not say it themselves.
func algorithmOf(r *policy.Rule) headgate.Algorithm {
	limits := r.Limits.Limits()
	// Calendar windows are fixed windows whatever the rule says.
	for i := range limits {
		if limits[i].Align < headgate.AlignFirst && limits[i].Algorithm != headgate.Penalty {
			return limits[i].Algorithm
		}
	}
	if limits[0].Algorithm == headgate.Penalty {
		return limits[1].Algorithm
	}
	return limits[0].Algorithm
}

// limits writes the rule's limits, or its tariff.
func (w *writer) limits(r *policy.Rule, algorithm headgate.Algorithm) {
	if r.Tariff == nil {
		w.line(2, "limits:")
		limits := r.Limits.Limits()
		for i := range limits {
			w.line(3, "- %s", limitYAML(&limits[i], algorithm))
		}
		return
	}
	w.line(2, "limits:")
	w.line(3, "%s:", quote(r.Tariff.Entry))
	for i := range r.Tariff.Tiers {
		t := &r.Tariff.Tiers[i]
		if t.Value == star {
			w.fail("a tier has the value \"*\", which stands for all others in a file")
		}
		w.line(4, "%s: %s", quote(t.Value), limitsYAML(t.Limits, algorithm))
	}
	if r.Tariff.Other != nil {
		w.line(4, "%s: %s", quote(star), limitsYAML(r.Tariff.Other, algorithm))
	}
}

func (w *writer) cost(r *policy.Rule) {
	c := r.Costs
	switch {
	case c == nil && r.Cost > 1:
		w.line(2, "cost: %d", r.Cost)
	case c == nil:
	case c.Per > 0:
		most := ""
		if c.Max > 0 {
			most = fmt.Sprintf(", max: %d", c.Max)
		}
		w.line(2, "cost: {entry: %s, per: %d%s}", quote(c.Entry), c.Per, most)
	default:
		w.line(2, "cost:")
		w.line(3, "%s:", quote(c.Entry))
		for _, v := range slices.Sorted(maps.Keys(c.Values)) {
			if strings.HasSuffix(v, star) {
				w.fail("a cost is for the value %q, which a file cannot say", v)
			}
			w.line(4, "%s: %d", quote(v), c.Values[v])
		}
		w.line(4, "%s: %d", quote(star), c.Other)
	}
}

// replaces is a field of rules and of entries of lists.
func (w *writer) replaces(names []string) {
	if len(names) > 0 {
		w.line(2, "replaces: %s", inline(names, quote))
	}
}

func (w *writer) until(indent int, t time.Time) {
	if !t.IsZero() {
		w.line(indent, "until: %s", quote(formatUntil(t)))
	}
}

// limitsYAML writes a list of limits in one line.
func limitsYAML(r *headgate.Rule, algorithm headgate.Algorithm) string {
	return inline(r.Limits(), func(l headgate.Limit) string { return limitYAML(&l, algorithm) })
}

// inline writes a list in one line.
func inline[T any](list []T, write func(T) string) string {
	texts := make([]string, len(list))
	for i, v := range list {
		texts[i] = write(v)
	}
	return "[" + strings.Join(texts, ", ") + "]"
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
		a.Capacity() == b.Capacity() && a.Align == b.Align && zone(a) == zone(b) && a.Block == b.Block && max(a.Block, a.MaxBlock) == max(b.Block, b.MaxBlock)
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
		if len(f.values) > 0 {
			fields = append(fields, f.name+": "+inline(f.values, quote))
		}
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
