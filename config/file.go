package config

import (
	"bytes"
	"encoding/csv"
	"errors"
	"fmt"
	"io"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"github.com/headgate/headgate"
	"github.com/headgate/headgate/internal/spelling"
	"github.com/headgate/headgate/policy"
	"github.com/headgate/headgate/policy/lint"
	"github.com/headgate/headgate/policy/models"
)

// fileText is a file as it was read, before its rules are compiled.
type fileText struct {
	places   places
	rules    []entry[ruleText]
	short    []entry[shortText]
	subjects *subjectsText
	allow    []entry[listText]
	deny     []entry[listText]
	ignore   []policy.Ignore
	entries  []string // nil if the file does not say
	behind   []string
	models   []models.Model
	unit     *int64 // of money
}

// shortText is one entry of the field limits, the short form.
type shortText struct {
	places places
	name   string
	config []entry[windowText]
}

// windowText is one window of the short form; the period is in seconds.
type windowText struct{ limit, period int64 }

// places says where the fields of a rule stand, by the words of policy.Mistake.
type places map[string]place

func (p *places) keep(at place, field string) {
	if *p == nil {
		*p = make(places)
	}
	(*p)[field] = at
}

// policyFile has the fields of a policy file. The loader reads by it and the
// schema is made of it, so that the two cannot differ.
func policyFile() value[fileText] {
	v := object("a policy", []field[fileText]{
		to("rules", "the rules. Every rule that matches a request applies to it", listOf(ruleMapping(), 1, policy.MaxRules),
			func(into *fileText, _ *node, v []entry[ruleText]) { into.rules = v }),
		to("limits", "rules in the short form: exact sliding windows, counted under the key that the caller gives", listOf(shortMapping(), 1, policy.MaxRules),
			func(into *fileText, _ *node, v []entry[shortText]) { into.short = v }),
		to("subjects", "entries to add for known clients, such as { k1: { tier: pro } }, by API key; or { by, table, file }", subjectsValue(),
			func(into *fileText, n *node, v subjectsText) {
				into.subjects = &v
				into.places.keep(n.at, "subjects")
			}),
		to("allow", "requests that no rule applies to, such as [{name: monitoring, match: { ip: 192.0.2.0/24 }}]", listOf(listMapping("an entry of allow"), 1, policy.MaxListed),
			func(into *fileText, n *node, v []entry[listText]) {
				into.allow = v
				into.places.keep(n.at, "allow")
			}),
		to("deny", "requests that are denied without asking the store. It takes precedence over allow", listOf(listMapping("an entry of deny"), 1, policy.MaxListed),
			func(into *fileText, n *node, v []entry[listText]) {
				into.deny = v
				into.places.keep(n.at, "deny")
			}),
		to("entries", "names of your own descriptor entries, such as [tenant, plan], or [] for none. If set, any other name in match, per and elsewhere is a mistake, unless Headgate itself provides the entry", listOf(entryName(), 0, policy.MaxDeclared),
			func(into *fileText, _ *node, v []entry[string]) {
				if into.entries = keepGood(&into.places, "entries", v); len(v) == 0 {
					into.entries = []string{}
				}
			}),
		to("behind", "the servers that read the paths of requests, such as [nginx, express], or any: what is known of them decides which paths are the same, and which are refused because they can be read in different ways", oneOrMore(spelling.Names()...),
			func(into *fileText, n *node, v []entry[string]) {
				into.places.keep(n.at, "behind")
				into.behind = keepGood(&into.places, "behind", v)
			}),
		to("models", "what is known of language models: prices, and the largest input and output", listOf(modelMapping(), 1, models.MaxModels),
			func(into *fileText, n *node, v []entry[models.Model]) {
				into.places.keep(n.at, "models")
				into.models = keepGood(&into.places, "models", v)
			}),
		to("money_unit", "the unit in which rules count money, as a part of the currency that prices are in. Default: 0.000001", decimal(models.MicroUnits),
			func(into *fileText, n *node, v int64) {
				into.places.keep(n.at, "money_unit")
				into.unit = &v
			}),
		to("ignore", "lint warnings to silence in the whole file, such as [{code: HG004, reason: internal network}]", listOf(ignoreMapping(), 1, maxIgnored),
			func(into *fileText, _ *node, v []entry[policy.Ignore]) { into.ignore = keepIgnored(&into.places, v) }),
	})
	v.schema["minProperties"] = 1
	return v
}

func shortMapping() value[shortText] {
	window := object("a window", []field[windowText]{
		required(to("limit", "how many units are admitted in any window", wholeNumber(1, headgate.MaxLog),
			func(into *windowText, _ *node, v int64) { into.limit = v })),
		required(to("period", "the length of the window, in seconds", wholeNumber(1, int64(headgate.MaxPeriod/time.Second)),
			func(into *windowText, _ *node, v int64) { into.period = v })),
	})
	return object("an entry of limits", []field[shortText]{
		required(to("name", "the name for callers and counters: 1 to 128 bytes without spaces and braces", nameText(),
			func(into *shortText, n *node, v string) {
				into.name = v
				into.places.keep(n.at, "name")
			})),
		required(to("config", "the windows, checked and charged together, such as [{limit: 20, period: 60}]", listOf(window, 1, headgate.MaxLimits),
			func(into *shortText, n *node, v []entry[windowText]) {
				into.config = v
				into.places.keep(n.at, "limits")
			})),
	})
}

// listText is one entry of allow or deny.
type listText struct {
	places places
	entry  policy.ListEntry
}

func listMapping(title string) value[listText] {
	return object(title, []field[listText]{
		required(to("name", "the name in answers, logs and metrics: 1 to 128 bytes without spaces and braces", nameText(),
			func(into *listText, n *node, v string) {
				into.entry.Name = v
				into.places.keep(n.at, "name")
			})),
		required(to("match", "conditions on the request's entries, such as { ip: [192.0.2.0/24, 2001:db8::/32] }", matchMapping("say which requests are meant"),
			func(into *listText, n *node, v []entry[policy.Condition]) {
				into.entry.Match = keepMatch(&into.places, n, v, "match")
			})),
		to("until", "the last day (UTC) or the exact time at which the entry expires, such as 2026-12-31", untilText(),
			func(into *listText, _ *node, v time.Time) { into.entry.Until = v }),
		to("replaces", "for Envoy requests with several descriptors: names of rules and deny entries that no longer apply when this entry matches one of the descriptors", listOf(someText(), 1, policy.MaxReplaces),
			func(into *listText, n *node, v []entry[string]) {
				into.places.keep(n.at, "replaces")
				into.entry.Replaces = keepGood(&into.places, "replaces", v)
			}),
	})
}

// keepGood returns the entries of a list that could be read, and keeps their places under
// the field.
func keepGood[T any](p *places, field string, v []entry[T]) []T {
	var all []T
	for i := range v {
		if v[i].good {
			p.keep(v[i].at, fmt.Sprintf("%s.%d", field, len(all)))
			all = append(all, v[i].value)
		}
	}
	return all
}

// maxIgnored is how many warnings one rule or file can silence.
const maxIgnored = 100

func ignoreMapping() value[policy.Ignore] {
	return object("an entry of ignore", []field[policy.Ignore]{
		required(to("code", "the code of the warning, such as HG004", plainText(schema{"pattern": "^HG[0-9]{3}$"}, warningCode),
			func(into *policy.Ignore, _ *node, v string) { into.Code = v })),
		required(to("reason", "why the warning does not apply", plainText(schema{"minLength": 1}, asWritten),
			func(into *policy.Ignore, _ *node, v string) { into.Reason = v })),
	})
}

// warningCode reads the code of a warning that there is.
func warningCode(text string) (string, error) {
	codes := lint.Codes()
	if slices.ContainsFunc(codes, func(c lint.Code) bool { return c.Code == text }) {
		return text, nil
	}
	return "", fmt.Errorf("there is no warning %s; there are %s to %s", policy.Quote(text), codes[0].Code, codes[len(codes)-1].Code)
}

// keepIgnored gives the entries that are complete, and keeps their places.
func keepIgnored(p *places, v []entry[policy.Ignore]) []policy.Ignore {
	var all []policy.Ignore
	for _, e := range v {
		// A field that is missing was told already.
		if e.good && e.value.Code != "" && e.value.Reason != "" {
			p.keep(e.at, fmt.Sprintf("ignore.%d", len(all)))
			all = append(all, e.value)
		}
	}
	return all
}

// entryName is the name of an entry, whose bytes policy.New looks at.
func entryName() value[string] { return plainText(schema{"pattern": entryPattern}, asWritten) }

func asWritten(text string) (string, error) { return text, nil }

// nameText leaves the check to headgate.NewRule, whose words name the byte.
func nameText() value[string] {
	s := schema{"minLength": 1, "maxLength": headgate.MaxName, "pattern": `^[^\x00-\x20\x7f{}]+$`}
	return plainText(s, asWritten)
}

// tagText leaves the check to headgate.Rule.WithTag, likewise.
func tagText() value[string] {
	s := schema{"minLength": 1, "maxLength": headgate.MaxTag, "pattern": `^[^\x00-\x20\x7f{}]+$`}
	return plainText(s, asWritten)
}

// MaxTableBytes is the largest file with a table of subjects in the form of CSV:
// 64 MiB. In the form of YAML it is MaxBytes.
const MaxTableBytes = 64 << 20

// subjectsText is the field subjects as it was read.
type subjectsText struct {
	by     string
	file   string
	fileAt place
	rows   []rowText
}

// rowText is what is known of one client; the key "*" stands for all others.
type rowText struct {
	at      place
	key     string
	entries []policy.Entry
}

// subjectsValue is a table of clients, or a mapping with by, table and file.
func subjectsValue() value[subjectsText] {
	rows := tableValue()
	file := plainText(schema{"minLength": 1}, asWritten)
	long := object("subjects", []field[subjectsText]{
		to("by", "the entry by which clients are looked up. Default: api_key", plainText(schema{"pattern": entryPattern}, asWritten),
			func(into *subjectsText, _ *node, v string) { into.by = v }),
		to("table", "entries to add for each client, such as { k1: { tier: pro } }", rows,
			func(into *subjectsText, _ *node, v []rowText) { into.rows = v }),
		to("file", "file with the table, relative to this file: YAML, or CSV if its name ends in .csv", file,
			func(into *subjectsText, n *node, v string) { into.file, into.fileAt = v, n.at }),
	})
	words := []string{"by", "table", "file"}
	long.schema["oneOf"] = []schema{{"required": []string{"table"}}, {"required": []string{"file"}}}
	short := schema{"propertyNames": schema{"not": schema{"enum": words}}}
	for k, v := range rows.schema {
		short[k] = v
	}
	s := schema{"anyOf": []schema{long.schema, short}}
	return value[subjectsText]{s, func(r *reader, name string, n *node) (subjectsText, bool) {
		if !slices.ContainsFunc(words, n.has) {
			v, ok := rows.read(r, name, n)
			return subjectsText{rows: v}, ok
		}
		before := r.count()
		t, ok := long.read(r, name, n)
		if n.has("table") == n.has("file") && r.count() == before {
			r.add(n.at, "subjects must have either a table or the name of a file that holds it")
		}
		return t, ok && r.count() == before
	}}
}

// tableValue maps clients to what is known of them.
func tableValue() value[[]rowText] {
	scalar := scalarText()
	s := schema{
		"type": "object", "minProperties": 1, "maxProperties": maxFields,
		"additionalProperties": schema{
			"type": "object", "minProperties": 1, "maxProperties": policy.MaxEntries,
			"propertyNames":        schema{"pattern": entryPattern},
			"additionalProperties": scalar.schema,
		},
	}
	return value[[]rowText]{s, func(r *reader, name string, n *node) ([]rowText, bool) {
		if n.kind != mapping || len(n.fields) == 0 {
			r.add(n.at, "%s is %s, must be a mapping of clients to what is known of them, such as { k1: { tier: pro } }", name, describe(n))
			return nil, false
		}
		if len(n.fields) > maxFields {
			r.add(n.at, "%s has %d clients, must have at most %d; keep a larger one in a file of CSV", name, len(n.fields), maxFields)
			return nil, false
		}
		all := make([]rowText, 0, len(n.fields))
		for _, p := range n.fields {
			if p.value.kind != mapping {
				r.add(p.at, "what is known of a client is %s, must be a mapping, such as { tier: pro }", describe(p.value))
				continue
			}
			row := rowText{at: p.at, key: p.name}
			for _, e := range p.value.fields {
				if v, ok := scalar.read(r, e.name, e.value); ok {
					row.entries = append(row.entries, policy.Entry{Name: e.name, Value: v})
				}
			}
			all = append(all, row)
		}
		return all, true
	}}
}

// subjects adds the table of the field subjects to the options, reading it from
// its file if it has one.
func (c *compiler) subjects(t *subjectsText, src *source) {
	table := policy.Subjects{By: t.by, File: t.file}
	m, rows := c.mistakes, t.rows
	if t.file != "" {
		data, path, err := src.beside(t.file)
		if err != nil {
			c.add(t.fileAt, "the file with the subjects cannot be read: %v", err)
			return
		}
		by := t.by
		if by == "" {
			by = "api_key"
		}
		m = &mistakes{file: path}
		if rows = readTable(m, by, data); len(rows) == 0 && m.list == nil {
			m.add(place{1, 1}, "the file has no subjects")
		}
		for _, one := range m.list {
			c.keep(one)
		}
		if m.list != nil {
			return
		}
	}
	table.Table = make([]policy.Subject, 0, len(rows))
	for i := range rows {
		row := &rows[i]
		if row.key == star {
			if table.Other != nil {
				c.keep(Mistake{m.file, row.at.line, row.at.column, `the subject "*" is in the table twice; keep one`})
			}
			if table.Other = row.entries; len(row.entries) == 0 {
				c.keep(Mistake{m.file, row.at.line, row.at.column, `the subject "*" has no entries; say what is known of it, such as { tier: free }`})
			}
			table.OtherPos = row.at.in(m.file)
			continue
		}
		table.Table = append(table.Table, policy.Subject{Key: row.key, Entries: row.entries, Pos: row.at.in(m.file)})
	}
	c.options = append(c.options, policy.SubjectTable(table))
}

// readTable reads a file with subjects, or returns nil.
func readTable(m *mistakes, by string, data []byte) []rowText {
	if strings.EqualFold(filepath.Ext(m.file), ".csv") {
		return readCSV(m, by, data)
	}
	root := parse(m, data, maxDepth)
	if root == nil || root.kind == empty {
		return nil
	}
	rows, _ := tableValue().read(&reader{m}, "the table", root)
	return rows
}

// known is how many fields of a record, but for the one at key, are not empty: a table
// may have a million rows that say little in many columns.
func known(record []string, key int) (n int) {
	for i, v := range record {
		if i != key && v != "" {
			n++
		}
	}
	return n
}

// readCSV reads a table whose first line names the columns, of which one is by.
// Where a field is empty, nothing is known.
func readCSV(m *mistakes, by string, data []byte) []rowText {
	if len(data) > MaxTableBytes {
		m.add(place{}, "the file has more than %d bytes", MaxTableBytes)
		return nil
	}
	data = bytes.TrimPrefix(data, []byte("\ufeff"))
	if at, why := invalidText(data); why != "" {
		m.add(at, "%s", why)
		return nil
	}
	r := csv.NewReader(bytes.NewReader(data))
	r.ReuseRecord = true
	head, err := r.Read()
	head = slices.Clone(head)
	key := slices.Index(head, by)
	if err == nil && key < 0 {
		m.add(place{1, 1}, "there is no column %q; the first line must name the columns, and clients are looked up by that one", by)
		return nil
	}
	rows := make([]rowText, 0, min(bytes.Count(data, []byte("\n")), policy.MaxSubjects))
	for err == nil {
		var record []string
		if record, err = r.Read(); err != nil {
			break
		}
		line, column := r.FieldPos(key)
		if len(rows) == policy.MaxSubjects {
			m.add(place{line, 1}, "there are more than %d subjects", policy.MaxSubjects)
			return nil
		}
		// Only the slice is used again: the texts of each record are its own.
		row := rowText{at: place{line, column}, key: record[key]}
		if n := known(record, key); n > 0 {
			row.entries = make([]policy.Entry, 0, n)
		}
		for i, v := range record {
			if i != key && v != "" {
				row.entries = append(row.entries, policy.Entry{Name: head[i], Value: v})
			}
		}
		rows = append(rows, row)
	}
	var broken *csv.ParseError
	switch {
	case errors.As(err, &broken):
		m.add(place{broken.Line, max(broken.Column, 1)}, "this is not CSV: %v", broken.Err)
		return nil
	case err != nil && !errors.Is(err, io.EOF):
		m.add(place{}, "this is not CSV: %v", err)
		return nil
	}
	return rows
}

// formatSubjects writes the field subjects.
func (w *writer) subjects(t *policy.Subjects) {
	if t == nil {
		return
	}
	w.line(0, "subjects:")
	w.line(1, "by: %s", quote(t.By))
	if t.File != "" {
		w.line(1, "file: %s", quote(t.File))
		return
	}
	if rows := len(t.Table) + min(1, len(t.Other)); rows > maxFields {
		w.fail("the table has %d rows, must have at most %d; keep it in a file of its own", rows, maxFields)
		return
	}
	w.line(1, "table:")
	row := func(key string, entries []policy.Entry) {
		fields := make([]string, len(entries))
		for i, e := range entries {
			fields[i] = quote(e.Name) + ": " + quote(e.Value)
		}
		w.line(2, "%s: {%s}", quote(key), strings.Join(fields, ", "))
	}
	for i := range t.Table {
		if t.Table[i].Key == star {
			w.fail("a subject has the key \"*\", which stands for all others in a file")
		}
		row(t.Table[i].Key, t.Table[i].Entries)
	}
	if len(t.Other) > 0 {
		row(star, t.Other)
	}
}

// beside reads a file whose name was found in the policy.
func (s *source) beside(name string) (data []byte, path string, err error) {
	if s.read == nil {
		return nil, name, fmt.Errorf("this policy is not a file itself; load it by its path, or write the table into it")
	}
	path = name
	if !filepath.IsAbs(path) {
		path = filepath.Join(filepath.Dir(s.name), name)
	}
	most := int64(MaxBytes)
	if strings.EqualFold(filepath.Ext(path), ".csv") {
		most = MaxTableBytes
	}
	data, err = s.read(path, most)
	return data, path, err
}
