package config

import (
	"fmt"
	"net/http"

	"github.com/headgate/headgate/config/gatewayfile"
)

// ReadGateway reads the gateway file at path. If it is wrong, the error is an
// [*Error] with every mistake; if it cannot be read, it wraps that of package os.
// Names of files in it stay as they are written.
func ReadGateway(path string) (*gatewayfile.Settings, error) {
	data, err := readFile(path, MaxBytes)
	if err != nil {
		return nil, fmt.Errorf("headgate: %w", err)
	}
	return ParseGateway(path, data)
}

// ParseGateway reads a gateway file from memory. The name stands for the file in
// mistakes.
func ParseGateway(name string, data []byte) (*gatewayfile.Settings, error) {
	m := &mistakes{file: name}
	root := parse(m, data, maxDepth)
	if root == nil {
		return nil, m.err()
	}
	if root.kind == empty {
		root = &node{kind: mapping, at: place{1, 1}}
	}
	g, _ := gatewayFile().read(&reader{m}, "the file", root)
	checkGateway(m, root, &g)
	if err := m.err(); err != nil {
		return nil, err
	}
	return &g, nil
}

// checkGateway finds what is wrong between fields.
func checkGateway(m *mistakes, root *node, g *gatewayfile.Settings) {
	upstreams := make(map[string]bool)
	for i := range g.Upstreams {
		u := &g.Upstreams[i]
		at := itemAt(root, "upstreams", i)
		if upstreams[u.Name] {
			m.add(at, "the upstream %q is there twice; give each its own name", u.Name)
		}
		upstreams[u.Name] = true
		if (u.Files.Cert == "") != (u.Files.Key == "") {
			m.add(at, "the upstream %q has a certificate without its key, or a key without its certificate; give both", u.Name)
		}
	}
	mux := http.NewServeMux()
	for i := range g.Routes {
		r := &g.Routes[i]
		at := itemAt(root, "routes", i)
		if problem := register(mux, r.Pattern); r.Pattern != "" && problem != "" {
			m.add(at, "the route %q %s", r.Pattern, problem)
		}
		if r.Upstream != "" && !upstreams[r.Upstream] {
			m.add(at, "the route %q goes to the upstream %q, which is not there", r.Pattern, r.Upstream)
		}
	}
	names := make(map[string]bool)
	for i := range g.Concurrency {
		if names[g.Concurrency[i].Name] {
			m.add(itemAt(root, "concurrency", i), "the bound %q is there twice; give each its own name", g.Concurrency[i].Name)
		}
		names[g.Concurrency[i].Name] = true
	}
	rules := make(map[string]bool)
	for i := range g.Settle {
		if rules[g.Settle[i].Rule] {
			m.add(itemAt(root, "settle", i), "the rule %q is there twice; keep one", g.Settle[i].Rule)
		}
		rules[g.Settle[i].Rule] = true
	}
	if id := &g.Identity; len(id.Trusted) > 0 && len(id.Address.Trust) == 0 {
		if n, ok := root.field("identity"); ok {
			m.add(n.at, "there are trusted_headers, but no proxy is trusted; say which ones under address")
		}
	}
}

// itemAt is where an entry of one of the file's lists stands.
func itemAt(root *node, name string, i int) place {
	if n, ok := root.field(name); ok && i < len(n.items) {
		return n.items[i].at
	}
	return root.at
}

// register says why a pattern cannot stand beside those that the mux has, or "".
func register(mux *http.ServeMux, pattern string) (problem string) {
	switch {
	case !registered(http.NewServeMux(), pattern):
		return "is no pattern such as GET /items/{id}"
	case !registered(mux, pattern):
		return "conflicts with another one: some requests match both, and neither of them is the more specific one"
	}
	return ""
}

// registered registers a pattern, unless ServeMux takes it for a defect.
func registered(mux *http.ServeMux, pattern string) (ok bool) {
	defer func() { ok = recover() == nil }()
	mux.Handle(pattern, http.NotFoundHandler())
	return true
}
