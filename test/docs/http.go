package docs

import (
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
)

// paths is the page of the HTTP API.
func paths(root string) ([]byte, error) {
	const source = "server/httpapi/openapi.json"
	text, err := os.ReadFile(filepath.Join(root, filepath.FromSlash(source)))
	if err != nil {
		return nil, err
	}
	api, err := parse(text)
	if err != nil {
		return nil, err
	}
	p := newPage("Paths of the HTTP API", source, `
All paths of `+"`headgate serve`"+`, with what they take and answer. [The HTTP API](../http-api.md)
explains them with examples. A server has the same at `+"`/openapi.json`"+`, from which programs
generate clients.

The paths below `+"`/v1/insight/`"+` serve the [dashboard](../dashboard.md) and the commands top and
tail. They may change with any version and are not among these.

In a list of fields, a star marks those that are always there, or must be.`)
	h := &httpPage{page: p, api: api}
	h.overview()
	h.errors()
	h.operations()
	h.schemas()
	return p.bytes(), nil
}

// httpPage is the page of an API while it is written.
type httpPage struct {
	*page
	shapes

	api *node
}

// operation is a method of a path.
type operation struct {
	method, path string
	*node
}

func (h *httpPage) all() []operation {
	var all []operation
	for _, path := range h.api.at("paths").keys {
		for _, method := range h.api.at("paths", path).keys {
			all = append(all, operation{strings.ToUpper(method), path, h.api.at("paths", path, method)})
		}
	}
	return all
}

// title is the heading of an operation.
func (o *operation) title() string { return o.method + " " + o.path }

// admin says who may call it.
func (o *operation) admin() string {
	switch items := o.at("security").items; {
	case len(items) == 0:
		return ""
	case slices.ContainsFunc(items, func(n *node) bool { return len(n.keys) == 0 }):
		return "for some of the answer"
	}
	return "yes"
}

func (h *httpPage) overview() {
	var rows [][]string
	for _, o := range h.all() {
		rows = append(rows, []string{"[`" + o.title() + "`](#" + anchor(o.title()) + ")", sentence(o.at("summary").text()), o.admin()})
	}
	h.say("## All paths\n\n")
	h.table([]string{"path", "what for", "admin token"}, rows)
}

// errors are the answers that are no success, by their statuses.
func (h *httpPage) errors() {
	type answer struct{ status, about string }
	asked := make(map[answer]map[string]bool)
	for _, o := range h.all() {
		for _, status := range o.at("responses").keys {
			if status[0] >= '4' {
				a := answer{status, h.resolved(o.at("responses", status)).at("description").text()}
				if asked[a] == nil {
					asked[a] = make(map[string]bool)
				}
				asked[a][o.path] = true
			}
		}
	}
	answers := slices.SortedFunc(maps.Keys(asked), func(a, b answer) int {
		return strings.Compare(a.status+a.about, b.status+b.about)
	})
	var rows [][]string
	for _, a := range answers {
		from := codes(slices.Sorted(maps.Keys(asked[a])))
		if n := len(asked[a]); n > 6 {
			from = "most"
		}
		rows = append(rows, []string{a.status, a.about, from})
	}
	h.say("## Errors\n\n")
	h.prose("The body of an error is `application/problem+json`, a [Problem](#problem) or what has its fields. Programs go by the status and by `type`:")
	var kinds [][]string
	for _, kind := range slices.Sorted(maps.Keys(h.problemTypes())) {
		kinds = append(kinds, []string{code(kind), h.problemTypes()[kind]})
	}
	h.table([]string{"`type`", "`title`"}, kinds)
	h.prose("All other errors have no `type`. The paths below *most* are those whose sections list the status.")
	h.table([]string{"status", "when", "paths"}, rows)
}

// problemTypes are the types of all examples of problems, with their titles.
func (h *httpPage) problemTypes() map[string]string {
	types := make(map[string]string)
	var visit func(n *node)
	visit = func(n *node) {
		if kind := n.at("type").text(); strings.Contains(kind, "://") {
			types[kind] = n.at("title").text()
		}
		for _, one := range n.fields {
			visit(one)
		}
		for _, one := range n.items {
			visit(one)
		}
	}
	visit(h.api)
	return types
}

// resolved follows a reference, if the node is one.
func (h *httpPage) resolved(n *node) *node {
	if ref := n.at("$ref").text(); ref != "" {
		return h.api.at(strings.Split(strings.TrimPrefix(ref, "#/"), "/")...)
	}
	return n
}

func (h *httpPage) operations() {
	for _, o := range h.all() {
		h.say("## %s\n\n", o.title())
		h.prose(sentence(o.at("summary").text()) + " " + o.at("description").text())
		for _, parameter := range o.at("parameters").items {
			name := code(parameter.at("name").text()) + " in the " + parameter.at("in").text()
			if parameter.at("required").value == true {
				name += " (required)"
			}
			h.item(name + ", " + h.of(parameter.at("schema"), "") + ": " + sentence(parameter.at("description").text()))
		}
		if body := h.resolved(o.at("requestBody")).at("content"); len(body.keys) > 0 {
			h.item("Body: " + h.content(body, o.title()) + ".")
		}
		var failures []string
		for _, status := range o.at("responses").keys {
			response := h.resolved(o.at("responses", status))
			body := h.content(response.at("content"), o.title())
			if status[0] >= '4' {
				if body != "" && body != problem {
					status += " (" + body + ")"
				}
				failures = append(failures, status)
				continue
			}
			text := status
			if body != "" {
				text += " " + body
			}
			if headers := response.at("headers").keys; len(headers) > 0 {
				text += " with " + codes(headers)
			}
			h.item(text + ": " + sentence(response.at("description").text()))
		}
		if failures != nil {
			h.item("[Errors](#errors): " + strings.Join(failures, ", ") + ".")
		}
		h.say("\n")
	}
}

// problem is the body that most errors have, as the page calls it.
const problem = "[Problem](#problem)"

// content says which schemas the content of a message has.
func (h *httpPage) content(content *node, path string) string {
	var all []string
	for _, kind := range content.keys {
		all = append(all, h.of(content.at(kind, "schema"), path))
	}
	return strings.Join(all, ", or ")
}

// schemas writes those that have fields, each with a section, and then the plain values.
func (h *httpPage) schemas() {
	schemas := h.api.at("components", "schemas")
	var values []string
	for _, name := range schemas.keys {
		if schema := schemas.at(name); schema.has("properties") || schema.has("allOf") || schema.has("oneOf") || schema.has("anyOf") {
			h.schema(name, schema)
		} else {
			values = append(values, name)
		}
	}
	for i := 0; i < len(h.sections); i++ {
		h.schema(h.sections[i].title, h.sections[i].object.without("description"))
	}
	for _, name := range values {
		h.say("## %s\n\n", name)
		h.prose(strings.TrimSpace(sentence(schemas.at(name).at("description").text()) + " It is: " + h.of(schemas.at(name), name+".") + "."))
	}
}

// schema writes the section of one schema.
func (h *httpPage) schema(title string, schema *node) {
	h.say("## %s\n\n", title)
	var parts, choices []string
	for _, part := range append(slices.Clone(schema.at("allOf").items), schema) {
		if part.has("$ref") {
			parts = append(parts, h.of(part.only("$ref"), title))
		}
	}
	for _, one := range slices.Concat(schema.at("oneOf").items, schema.at("anyOf").items) {
		switch {
		case one.has("$ref"):
			choices = append(choices, h.of(one, title))
		case one.has("properties"):
			choices = append(choices, "`{"+strings.Join(one.at("properties").keys, ", ")+"}`")
		}
	}
	about := sentence(schema.at("description").text())
	if parts != nil {
		about += " It has the fields of " + strings.Join(parts, " and ") + "."
	}
	if choices != nil {
		about += " It is " + strings.Join(choices, " or ") + "."
	}
	if about != "" {
		h.prose(about)
	}
	if schema.has("properties") {
		h.fields(h.page, schema, title)
	}
}

// only is the object without all fields but one.
func (n *node) only(key string) *node {
	return &node{keys: []string{key}, fields: map[string]*node{key: n.fields[key]}}
}

// without is the object without a key.
func (n *node) without(key string) *node {
	fields := maps.Clone(n.fields)
	delete(fields, key)
	return &node{keys: slices.DeleteFunc(slices.Clone(n.keys), func(k string) bool { return k == key }), fields: fields}
}
