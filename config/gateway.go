package config

import (
	"fmt"
	"slices"
	"strconv"
	"strings"

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

// checkGateway finds what is wrong between fields. What is wrong with one field was found when
// the field was read.
func checkGateway(m *mistakes, root *node, g *gatewayfile.Settings) {
	wrong := make(map[place]bool)
	for _, one := range m.list {
		wrong[place{one.Line, one.Column}] = true
	}
	_, problems := g.WithDefaults()
	for _, p := range problems {
		n, list, found := root.find(p.Field)
		switch {
		case p.Field == "upstreams" && len(g.Upstreams) == 0: // the command may name them
		case n.kind == mapping && (found || !wrong[n.at]):
			m.add(n.at, "%s", p.Text)
		case n.kind != mapping && !list.anyOf(wrong):
			m.add(n.at, "%s", p.Text)
		}
	}
}

// find returns the node of a field such as "upstreams[0].tls", or if it is not there, the last
// node on the way to it. The list is the one that the node is an entry of, or else the node.
func (n *node) find(field string) (last, list *node, found bool) {
	last, list = n, n
	for _, step := range strings.FieldsFunc(field, func(c rune) bool { return strings.ContainsRune(".[]", c) }) {
		if i, err := strconv.Atoi(step); err == nil && i < len(last.items) {
			last = last.items[i]
			continue
		}
		next, ok := last.field(step)
		if !ok {
			return last, list, false
		}
		last, list = next, next
	}
	return last, list, true
}

// anyOf reports whether the node or one within it is at one of the places.
func (n *node) anyOf(places map[place]bool) bool {
	in := func(n *node) bool { return n.anyOf(places) }
	return places[n.at] || slices.ContainsFunc(n.items, in) || slices.ContainsFunc(n.fields, func(p pair) bool { return in(p.value) })
}

// IsGateway reports whether a text is a gateway file and no policy: whether one of its fields is
// one that only gateway files have.
func IsGateway(data []byte) bool {
	root := parse(new(mistakes), data, maxDepth)
	if root == nil || root.kind != mapping {
		return false
	}
	gateway, policy := gatewayFile().schema["properties"].(schema), policyFile().schema["properties"].(schema)
	return slices.ContainsFunc(root.fields, func(p pair) bool { return gateway[p.name] != nil && policy[p.name] == nil })
}
