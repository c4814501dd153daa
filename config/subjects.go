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

	"github.com/headgate/headgate/policy"
)

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
			table.OtherPos = policy.Position{File: m.file, Line: row.at.line, Column: row.at.column}
			continue
		}
		table.Table = append(table.Table, policy.Subject{
			Key: row.key, Entries: row.entries,
			Pos: policy.Position{File: m.file, Line: row.at.line, Column: row.at.column},
		})
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
