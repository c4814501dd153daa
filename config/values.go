package config

import (
	"fmt"
	"maps"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/headgate/headgate"
	"github.com/headgate/headgate/internal/closest"
	"github.com/headgate/headgate/internal/errtext"
	"github.com/headgate/headgate/policy"
)

// reader reads one file's nodes. Its methods add to the mistakes and report
// false where a value cannot be used.
type reader struct{ *mistakes }

// schema is a JSON Schema, or a part of one.
type schema map[string]any

// value is one kind of value: how the loader reads it, and how the schema
// describes it. The two stand together so that they stay the same.
type value[T any] struct {
	schema schema
	// read reads the value of the named field.
	read func(r *reader, name string, n *node) (T, bool)
}

// field is one field of a mapping that is read into a T.
type field[T any] struct {
	name     string
	about    string // one line for the schema
	required bool
	schema   schema
	read     func(r *reader, n *node, into *T)
}

// to makes a field of a value that is stored by set.
func to[T, V any](name, about string, v value[V], set func(into *T, n *node, v V)) field[T] {
	return field[T]{name: name, about: about, schema: v.schema, read: func(r *reader, n *node, into *T) {
		if x, ok := v.read(r, name, n); ok {
			set(into, n, x)
		}
	}}
}

func required[T any](f field[T]) field[T] {
	f.required = true
	return f
}

// object is a mapping with these fields and no others. A value that has mistakes
// in its fields is returned with what could be read.
func object[T any](title string, fields []field[T]) value[T] {
	properties, needed := schema{}, []string{}
	for _, f := range fields {
		s := schema{"description": f.about}
		maps.Copy(s, f.schema)
		properties[f.name] = s
		if f.required {
			needed = append(needed, f.name)
		}
	}
	s := schema{"type": "object", "properties": properties, "additionalProperties": false}
	if len(needed) > 0 {
		s["required"] = needed
	}
	return value[T]{s, func(r *reader, name string, n *node) (T, bool) {
		var into T
		if n.kind != mapping {
			r.add(n.at, "%s is %s, must be a mapping with %s", name, describe(n), strings.Join(names(fields), ", "))
			return into, false
		}
		all := names(fields)
		given := make(map[string]*node, len(n.fields))
		for _, p := range n.fields {
			first, twice := given[p.name]
			switch {
			case !slices.Contains(all, p.name):
				advice := "it has " + strings.Join(all, ", ")
				if meant := closest.Word(p.name, all); meant != "" {
					advice = fmt.Sprintf("did you mean %q?", meant)
				}
				r.add(p.at, "%s has no field %q; %s", title, p.name, advice)
			case twice:
				r.add(p.at, "the field %q is set twice, first in line %d; keep one", p.name, first.at.line)
			default:
				given[p.name] = p.value
			}
		}
		for _, f := range fields {
			if v, ok := given[f.name]; ok {
				f.read(r, v, &into)
			} else if f.required {
				r.add(n.at, "%s must have the field %q: %s", title, f.name, f.about)
			}
		}
		return into, true
	}}
}

// names are those of the fields.
func names[T any](fields []field[T]) []string {
	list := make([]string, len(fields))
	for i, f := range fields {
		list[i] = f.name
	}
	return list
}

// entry is one value of a list, with its place.
type entry[T any] struct {
	at    place
	value T
	good  bool // the value could be read
}

// listOf is a sequence of least to most values. Entries that cannot be read are
// among them, so that the place in the list stays what it is in the file.
func listOf[T any](v value[T], least, most int) value[[]entry[T]] {
	s := schema{"type": "array", "items": v.schema, "minItems": least, "maxItems": most}
	return value[[]entry[T]]{s, func(r *reader, name string, n *node) ([]entry[T], bool) {
		if n.kind != list {
			r.add(n.at, "%s is %s, must be a list, such as %s: [...]", name, describe(n), name)
			return nil, false
		}
		if len(n.items) < least || len(n.items) > most {
			r.add(n.at, "%s has %d entries, must have %d to %d", name, len(n.items), least, most)
			return nil, false
		}
		all := make([]entry[T], len(n.items))
		for i, item := range n.items {
			all[i].at = item.at
			all[i].value, all[i].good = v.read(r, fmt.Sprintf("entry %d of %s", i+1, name), item)
		}
		return all, true
	}}
}

// wholeNumber is an integer within bounds, both included.
func wholeNumber(least, most int64) value[int64] {
	s := schema{"type": "integer", "minimum": least, "maximum": most}
	return value[int64]{s, func(r *reader, name string, n *node) (int64, bool) {
		x, err := strconv.ParseInt(strings.ReplaceAll(n.text, "_", ""), 0, 64)
		switch {
		case n.kind != whole:
			r.add(n.at, "%s is %s, must be a whole number from %d to %d", name, describe(n), least, most)
		case err != nil || x < least || x > most:
			r.add(n.at, "%s is %s, must be %d to %d", name, n.text, least, most)
		default:
			return x, true
		}
		return 0, false
	}}
}

// count is a small integer within bounds, both included.
func count(least, most int) value[int] {
	v := wholeNumber(int64(least), int64(most))
	return value[int]{v.schema, func(r *reader, name string, n *node) (int, bool) {
		x, ok := v.read(r, name, n)
		return int(x), ok
	}}
}

// plainText is a text that parse makes a T of. Its errors say what to do.
func plainText[T any](s schema, parse func(text string) (T, error)) value[T] {
	all := schema{"type": "string"}
	maps.Copy(all, s)
	return value[T]{all, func(r *reader, name string, n *node) (T, bool) {
		var zero T
		if n.kind != text {
			r.add(n.at, "%s is %s, must be a text", name, describe(n))
			return zero, false
		}
		x, err := parse(n.text)
		if err != nil {
			r.add(n.at, "%s", errtext.Text(err))
			return zero, false
		}
		return x, true
	}}
}

// oneOf is one of some choices, each of which is written as its String.
func oneOf[T any](choices ...T) value[T] {
	words := make([]string, len(choices))
	for i, c := range choices {
		words[i] = fmt.Sprint(c)
	}
	return value[T]{schema{"type": "string", "enum": words}, func(r *reader, name string, n *node) (T, bool) {
		if i := slices.Index(words, n.text); n.kind == text && i >= 0 {
			return choices[i], true
		}
		advice := ""
		if meant := closest.Word(n.text, words); meant != "" {
			advice = fmt.Sprintf("; did you mean %q?", meant)
		}
		r.add(n.at, "%s is %s, must be one of %s%s", name, describe(n), strings.Join(words, ", "), advice)
		var none T
		return none, false
	}}
}

// describe says what a node is, in a message.
func describe(n *node) string {
	const long = 60
	switch n.kind {
	case empty:
		return "empty"
	case list:
		return fmt.Sprintf("a list of %d", len(n.items))
	case mapping:
		return fmt.Sprintf("a mapping with %d fields", len(n.fields))
	case text:
		if runes := []rune(n.text); len(runes) > long {
			return fmt.Sprintf("the text %q...", string(runes[:long]))
		}
		return fmt.Sprintf("the text %q", n.text)
	}
	return n.text
}

// entryPattern is what the schema knows of the name of a descriptor's entry.
const entryPattern = `^[A-Za-z0-9_.:-]{1,64}$`

func partText() value[policy.Part] {
	s := schema{"pattern": `^[A-Za-z0-9_.:-]{1,64}(/[0-9]{1,3}){0,2}$`}
	return plainText(s, policy.ParsePart)
}

// oneForAll is what per says where one counter is for all.
const oneForAll = "all"

// aboutPer ends what is said where per is missing.
const aboutPer = "entries to count by, such as [api_key] or [ip/64], with a counter for each combination of values; or all, for a single counter"

// perValue is a list of parts, or [oneForAll], which is read as none.
func perValue() value[[]entry[policy.Part]] {
	parts := listOf(partText(), 1, policy.MaxParts)
	s := schema{"anyOf": []schema{{"const": oneForAll}, parts.schema}}
	return value[[]entry[policy.Part]]{s, func(r *reader, name string, n *node) ([]entry[policy.Part], bool) {
		switch {
		case n.kind == text && n.text == oneForAll:
			return nil, true
		case n.kind != list:
			r.add(n.at, "%s is %s, must be a list, such as [api_key], or all", name, describe(n))
			return nil, false
		case len(n.items) == 1 && n.items[0].text == oneForAll:
			r.add(n.at, "%s is [all], which counts by an entry of that name; for one counter that all requests share write %s: all", name, name)
			return nil, false
		}
		return parts.read(r, name, n)
	}}
}

// oneOrMore is a list of words, or one of them.
func oneOrMore(words ...string) value[[]entry[string]] {
	one := oneOf(words...)
	several := listOf(one, 1, len(words))
	s := schema{"anyOf": []schema{one.schema, several.schema}}
	return value[[]entry[string]]{s, func(r *reader, name string, n *node) ([]entry[string], bool) {
		if n.kind == list {
			return several.read(r, name, n)
		}
		word, ok := one.read(r, name, n)
		return []entry[string]{{value: word, at: n.at, good: ok}}, ok
	}}
}

func zoneText() value[*time.Location] {
	return plainText(schema{"minLength": 1}, headgate.LoadLocation)
}

func algorithmName() value[headgate.Algorithm] {
	var choices []headgate.Algorithm
	for a := headgate.TokenBucket; a <= headgate.SlidingCounter; a++ {
		choices = append(choices, a)
	}
	return oneOf(choices...)
}

func alignName() value[headgate.Alignment] {
	var choices []headgate.Alignment
	for a := headgate.AlignUTC; a <= headgate.AlignYear; a++ {
		choices = append(choices, a)
	}
	return oneOf(choices...)
}

// percent is a whole number of percent, such as 80%.
func percent(least, most int) value[int] {
	s := schema{"type": "string", "pattern": `^[0-9]{1,3}%$`}
	return value[int]{s, func(r *reader, name string, n *node) (int, bool) {
		digits, marked := strings.CutSuffix(n.text, "%")
		x, err := strconv.ParseUint(digits, 10, 16)
		switch {
		case n.kind == whole:
			r.add(n.at, "%s is %s without a percent sign; write %s%%", name, n.text, n.text)
		case n.kind != text || !marked || err != nil || len(digits) > 3:
			r.add(n.at, "%s is %s, must be a percentage such as 80%%", name, describe(n))
		case int(x) < least || int(x) > most:
			r.add(n.at, "%s is %s, must be %d%% to %d%%", name, n.text, least, most)
		default:
			return int(x), true
		}
		return 0, false
	}}
}

// day is how a day is written.
const day = "2006-01-02"

// untilText is a day, which ends what it ends when it is over in UTC, or a time.
func untilText() value[time.Time] {
	s := schema{"pattern": `^[0-9]{4}-[0-9]{2}-[0-9]{2}([Tt ].*)?$`}
	return plainText(s, func(text string) (time.Time, error) {
		t, err := time.Parse(day, text)
		if err == nil {
			t = t.AddDate(0, 0, 1)
		} else if t, err = time.Parse(time.RFC3339, text); err != nil {
			return t, fmt.Errorf("until is %q, must be a day such as 2026-12-31, which is the last, or a time such as 2026-12-31T18:00:00Z", text)
		}
		// The zero time would never end, and a year has four digits.
		if year := t.UTC().Year(); year < 1970 || year > 9998 {
			return t, fmt.Errorf("until is %q, must lie in the years 1970 to 9998", text)
		}
		return t, nil
	})
}

// formatUntil writes what untilText reads.
func formatUntil(t time.Time) string {
	t = t.UTC()
	if t.Equal(t.Truncate(24 * time.Hour)) {
		return t.AddDate(0, 0, -1).Format(day)
	}
	return t.Format(time.RFC3339Nano)
}

// scalarText is a text, or what a number, true or false is written as.
func scalarText() value[string] {
	s := schema{"type": []string{"string", "number", "boolean"}}
	return value[string]{s, func(r *reader, name string, n *node) (string, bool) {
		if n.kind == empty || n.kind == list || n.kind == mapping {
			r.add(n.at, "%s is %s, must be a text", name, describe(n))
			return "", false
		}
		return n.text, true
	}}
}

// byEntry is a mapping of one entry to values by what the entry has, such as
// { tier: { pro: 5, "*": 2 } }.
type byEntry[T any] struct {
	entry  string
	at     place // of the values
	values []byValue[T]
}

// byValue is one of the values; for the value "*" of the entry it stands for all others.
type byValue[T any] struct {
	when string
	at   place
	is   T
	good bool
}

// table is what reads a [byEntry] of up to most values. In messages, the values are what, and each
// is an each of %q.
func table[T any](v value[T], most int, what, each, example string) value[byEntry[T]] {
	s := schema{
		"type": "object", "minProperties": 1, "maxProperties": 1,
		"propertyNames": schema{"pattern": entryPattern},
		"additionalProperties": schema{
			"type": "object", "additionalProperties": v.schema,
			"minProperties": 1, "maxProperties": most,
		},
	}
	return value[byEntry[T]]{s, func(r *reader, name string, n *node) (t byEntry[T], ok bool) {
		if len(n.fields) != 1 {
			r.add(n.at, "%s has %d entries, must have the one that %s are chosen by, such as { %s }", name, len(n.fields), what, example)
			return t, false
		}
		by := n.fields[0]
		t.entry, t.at = by.name, by.value.at
		if by.value.kind != mapping || len(by.value.fields) == 0 || len(by.value.fields) > most {
			_, of, _ := strings.Cut(example, ": ")
			r.add(t.at, "the %s by %q are %s, must be a mapping with 1 to %d of its values, such as %s", strings.TrimPrefix(what, "the "), by.name, describe(by.value), most, of)
			return t, false
		}
		lines := make(map[string]int)
		for _, p := range by.value.fields {
			if line, twice := lines[p.name]; twice {
				r.add(p.at, "the value %q is set twice, first in line %d; keep one", p.name, line)
				continue
			}
			lines[p.name] = p.at.line
			one := byValue[T]{when: p.name, at: p.at}
			one.is, one.good = v.read(r, fmt.Sprintf(each, p.name), p.value)
			t.values = append(t.values, one)
		}
		return t, true
	}}
}
