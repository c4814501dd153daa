package docs

import (
	"bytes"
	"encoding/json"
	"fmt"
	"io"
)

// node is a value of JSON. The keys of an object keep their order, in which a page shows them.
type node struct {
	keys   []string
	fields map[string]*node
	items  []*node
	// value is a string, a json.Number, a bool or nil.
	value any
}

// parse reads a document.
func parse(text []byte) (*node, error) {
	d := json.NewDecoder(bytes.NewReader(text))
	d.UseNumber()
	n, err := read(d)
	if err == nil && d.Decode(new(any)) != io.EOF {
		err = fmt.Errorf("there is more than one value")
	}
	return n, err
}

func read(d *json.Decoder) (*node, error) {
	token, err := d.Token()
	if err != nil {
		return nil, err
	}
	n := &node{}
	switch token {
	case json.Delim('{'):
		n.fields = make(map[string]*node)
		for d.More() {
			key, err := d.Token()
			if err != nil {
				return nil, err
			}
			name := fmt.Sprint(key)
			n.keys = append(n.keys, name)
			if n.fields[name], err = read(d); err != nil {
				return nil, err
			}
		}
		_, err = d.Token()
	case json.Delim('['):
		n.items = []*node{}
		for d.More() {
			item, err := read(d)
			if err != nil {
				return nil, err
			}
			n.items = append(n.items, item)
		}
		_, err = d.Token()
	default:
		n.value = token
	}
	return n, err
}

// at is what the path of keys leads to, or an empty node.
func (n *node) at(keys ...string) *node {
	for _, key := range keys {
		next, ok := n.fields[key]
		if !ok {
			return &node{}
		}
		n = next
	}
	return n
}

// has reports whether the object has the key.
func (n *node) has(key string) bool { return n.fields[key] != nil }

// text is the value as a text, "" if there is none.
func (n *node) text() string {
	if n.value == nil {
		return ""
	}
	return fmt.Sprint(n.value)
}

// texts are the items as texts.
func (n *node) texts() []string {
	var all []string
	for _, item := range n.items {
		all = append(all, item.text())
	}
	return all
}
