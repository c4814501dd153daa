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
tail. They may change with any version and are not among these.`)
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
	h.prose("All other errors have no `type`: the status says it all.")
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
		var rows [][]string
		for _, parameter := range o.at("parameters").items {
			name := code(parameter.at("name").text()) + " in the " + parameter.at("in").text()
			if parameter.at("required").value == true {
				name += " (required)"
			}
			rows = append(rows, []string{name, h.of(parameter.at("schema"), ""), sentence(parameter.at("description").text())})
		}
		if rows != nil {
			h.table([]string{"parameter", "value", "meaning"}, rows)
		}
		if body := h.resolved(o.at("requestBody")).at("content"); len(body.keys) > 0 {
			h.prose("The body is " + h.content(body, o.title()) + ".")
		}
		rows = nil
		for _, status := range o.at("responses").keys {
			response := h.resolved(o.at("responses", status))
			headers := codes(response.at("headers").keys)
			rows = append(rows, []string{status, h.content(response.at("content"), o.title()), headers, response.at("description").text()})
		}
		h.table([]string{"status", "body", "headers", "when"}, rows)
	}
}

// content says which schemas the content of a message has.
func (h *httpPage) content(content *node, path string) string {
	var all []string
	for _, kind := range content.keys {
		all = append(all, h.of(content.at(kind, "schema"), path))
	}
	return strings.Join(all, ", or ")
}

func (h *httpPage) schemas() {
	schemas := h.api.at("components", "schemas")
	for _, name := range schemas.keys {
		h.schema(name, schemas.at(name))
	}
	for i := 0; i < len(h.sections); i++ {
		h.schema(h.sections[i].title, h.sections[i].object)
	}
}

// schema writes the section of one schema.
func (h *httpPage) schema(title string, schema *node) {
	h.say("## %s\n\n", title)
	if about := schema.at("description").text(); about != "" {
		h.prose(sentence(about))
	}
	var parts []string
	for _, part := range append(slices.Clone(schema.at("allOf").items), schema) {
		if part.has("$ref") {
			parts = append(parts, h.of(part.only("$ref"), title))
		}
	}
	if parts != nil {
		h.prose("It has the fields of " + strings.Join(parts, " and ") + ".")
	}
	var choices []string
	for _, one := range slices.Concat(schema.at("oneOf").items, schema.at("anyOf").items) {
		if one.has("$ref") {
			choices = append(choices, h.of(one, title))
		}
	}
	if choices != nil {
		h.prose("It is " + strings.Join(choices, " or ") + ".")
	}
	switch {
	case schema.has("properties"):
		h.table([]string{"field", "value", "meaning"}, h.fieldRows(schema, title))
	case parts == nil && choices == nil:
		h.prose("Its value: " + h.of(schema, title) + ".")
	}
}

// only is the object without all fields but one.
func (n *node) only(key string) *node {
	return &node{keys: []string{key}, fields: map[string]*node{key: n.fields[key]}}
}
