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
			if items := one.at("items"); len(all) == 1 && one.at("type").text() == "array" && s.of(items, path) == all[0] {
				text = "a list" + bounds(one, "", "maxItems") + " of them"
			}
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
		return "integer" + bounds(n, "minimum", "maximum")
	case "number":
		return "number" + bounds(n, "minimum", "maximum")
	case "boolean":
		return "boolean"
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
	return "scalar"
}

// bounds says between which numbers a number or a length lies.
func bounds(n *node, least, most string) string {
	switch {
	case n.has(least) && n.has(most):
		return " " + n.at(least).text() + " to " + n.at(most).text()
	case n.has(least):
		return " from " + n.at(least).text()
	case n.has(most):
		return " (up to " + n.at(most).text() + ")"
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

// fields lists the fields of an object, those that must be there first. Those that their names and
// values explain share a line.
func (s *shapes) fields(p *page, object *node, path string) {
	required := object.at("required").texts()
	names := slices.Clone(object.at("properties").keys)
	slices.SortStableFunc(names, func(a, b string) int {
		return strings.Compare(mark(required, b), mark(required, a))
	})
	var plain []string
	for _, name := range names {
		field, below := object.at("properties", name), name
		if path != "" {
			below = path + "." + name
		}
		text := code(name) + mark(required, name) + " " + s.of(field, below)
		if about := field.at("description").text(); about != "" {
			p.item(text + ": " + sentence(about))
		} else {
			plain = append(plain, text)
		}
	}
	if plain != nil {
		p.item(strings.Join(plain, "; "))
	}
	p.say("\n")
}

// mark is the star of a field that must be there.
func mark(required []string, name string) string {
	if slices.Contains(required, name) {
		return "\\*"
	}
	return ""
}
