package docs

import (
	"encoding/json"
	"slices"
	"strings"
	"unicode"
)

// shapes says in words what values a schema admits, and remembers which objects that names.
type shapes struct {
	// sections are the objects that a page has a section for, in the order in which they were
	// met, each once.
	sections []section
	// titles are the sections' titles by the fields of the objects.
	titles map[string]string
}

// section is an object with its own table of fields.
type section struct {
	title  string
	object *node
}

// of says what the schema at a path of fields admits.
func (s *shapes) of(n *node, path string) string {
	switch {
	case n.has("$ref"):
		ref := n.at("$ref").text()
		name := ref[strings.LastIndex(ref, "/")+1:]
		return "[" + name + "](#" + strings.ToLower(name) + ")"
	case n.has("const"):
		return code(n.at("const").text())
	case n.has("enum"):
		return codes(n.at("enum").texts())
	case n.has("properties"):
		return "[mapping](#" + anchor(s.section(n, path)) + ")"
	case n.has("anyOf") || n.has("oneOf"):
		var all []string
		for _, one := range slices.Concat(n.at("anyOf").items, n.at("oneOf").items) {
			text := s.of(one, path)
			if about := one.at("description").text(); about != "" && !one.has("properties") {
				text += " " + about
			}
			if !slices.Contains(all, text) {
				all = append(all, text)
			}
		}
		return strings.Join(all, ", or ")
	}
	switch n.at("type").text() {
	case "integer":
		return "whole number" + bounds(n, "minimum", "maximum")
	case "number":
		return "number" + bounds(n, "minimum", "maximum")
	case "boolean":
		return "`true` or `false`"
	case "string":
		return "text"
	case "array":
		return "list" + bounds(n, "", "maxItems") + " of " + s.of(n.at("items"), path)
	case "object":
		if n.has("additionalProperties") && n.at("additionalProperties").value != false {
			return "names" + bounds(n, "", "maxProperties") + ", each with: " + s.of(n.at("additionalProperties"), path+".NAME")
		}
		return "mapping"
	}
	return "text, number or boolean"
}

// bounds says between which numbers a number or a length lies.
func bounds(n *node, least, most string) string {
	switch {
	case n.has(least) && n.has(most):
		return ", " + n.at(least).text() + " to " + n.at(most).text()
	case n.has(least):
		return ", " + n.at(least).text() + " or more"
	case n.has(most):
		return " (at most " + n.at(most).text() + ")"
	}
	return ""
}

// section is the title of an object's section, which objects with the same fields share.
func (s *shapes) section(n *node, path string) string {
	fields := n.at("properties").String()
	if title, ok := s.titles[fields]; ok {
		return title
	}
	if s.titles == nil {
		s.titles = make(map[string]string)
	}
	s.titles[fields] = path
	s.sections = append(s.sections, section{path, n})
	return path
}

// String is the node as JSON, by which nodes are compared.
func (n *node) String() string {
	var b strings.Builder
	switch {
	case n.fields != nil:
		for _, key := range n.keys {
			b.WriteString("{" + key + ":" + n.fields[key].String() + "}")
		}
	case n.items != nil:
		for _, item := range n.items {
			b.WriteString("[" + item.String() + "]")
		}
	default:
		text, err := json.Marshal(n.value)
		if err != nil {
			panic(err) // It was read from JSON.
		}
		b.Write(text)
	}
	return b.String()
}

// anchor is the name that code hosts give to a heading.
func anchor(heading string) string {
	heading = strings.Map(func(r rune) rune {
		if r == ' ' || r == '-' || r == '_' || unicode.IsLetter(r) || unicode.IsDigit(r) {
			return unicode.ToLower(r)
		}
		return -1
	}, heading)
	return strings.ReplaceAll(heading, " ", "-")
}

// fieldRows are the rows of an object's fields: those that must be there first.
func (s *shapes) fieldRows(object *node, path string) [][]string {
	required := object.at("required").texts()
	var first, others [][]string
	for _, name := range object.at("properties").keys {
		field := object.at("properties", name)
		below := name
		if path != "" {
			below = path + "." + name
		}
		row := []string{code(name), s.of(field, below), sentence(field.at("description").text())}
		if slices.Contains(required, name) {
			row[0] += " (required)"
			first = append(first, row)
		} else {
			others = append(others, row)
		}
	}
	return append(first, others...)
}
