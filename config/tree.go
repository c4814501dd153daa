package config

import (
	"bytes"
	"errors"
	"fmt"
	"strings"
	"unicode/utf8"

	"github.com/goccy/go-yaml"
	"github.com/goccy/go-yaml/ast"
	"github.com/goccy/go-yaml/lexer"
	"github.com/goccy/go-yaml/parser"
	"github.com/goccy/go-yaml/token"

	"github.com/headgate/headgate/policy"
)

// The bounds of a policy file, besides those of package policy.
const (
	// MaxBytes is the largest policy file: 1 MiB.
	MaxBytes = 1 << 20
	// maxDepth is how deeply values may stand in each other. A policy needs
	// seven levels.
	maxDepth = 16
	// maxFields and maxItems are how many fields one mapping and how many
	// entries one list may have. The parser's time grows with their square.
	maxFields = 1000
	maxItems  = policy.MaxRules
	// maxBlank is how many blank lines may follow each other. The parser's time
	// grows with their square as well.
	maxBlank = 100
	// maxNodes is how many values a file may come to when its aliases are
	// written out. A file of MaxBytes without aliases has fewer.
	maxNodes = 1 << 20
)

type kind uint8

const (
	empty   kind = iota // nothing, null or ~
	text                // a text, quoted or not
	whole               // a whole number
	other               // a fraction or true or false
	list                // a sequence
	mapping             // a mapping
)

// node is one value of the file. Aliases share the node of their anchor.
type node struct {
	kind   kind
	at     place
	text   string // the value of a scalar, as it is written
	items  []*node
	fields []pair
	size   int // how many nodes this one comes to, itself included
}

// field returns the value of a mapping's field.
func (n *node) field(name string) (*node, bool) {
	for i := range n.fields {
		if n.fields[i].name == name {
			return n.fields[i].value, true
		}
	}
	return nil, false
}

// has reports whether a mapping has the field.
func (n *node) has(name string) bool {
	_, ok := n.field(name)
	return ok
}

type pair struct {
	name  string
	at    place
	value *node
}

// parse reads a document of YAML whose values stand at most depth deep in each other. It returns nil
// if there is nothing to be loaded, having added to the mistakes.
func parse(m *mistakes, data []byte, depth int) *node {
	all := parseAll(m, data, depth, 1)
	if all == nil {
		return nil
	}
	return all[0]
}

// parseAll reads up to most documents, of which those that are empty do not count. A file without
// any is an empty one.
func parseAll(m *mistakes, data []byte, depth, most int) []*node {
	if len(data) > MaxBytes {
		m.add(place{}, "the file has %d bytes, must have at most %d; split the policy", len(data), MaxBytes)
		return nil
	}
	data = bytes.TrimPrefix(data, []byte("\ufeff"))
	if at, why := invalidText(data); why != "" {
		m.add(at, "%s", why)
		return nil
	}
	// The library takes a carriage return inside a text for a part of it.
	source := strings.ReplaceAll(string(data), "\r\n", "\n")
	if line := blankLines(source); line > 0 {
		m.add(place{line, 1}, "more than %d blank lines follow each other; take some out", maxBlank)
		return nil
	}
	docs, err := parseYAML(m, source, depth, most)
	if err != nil {
		var syntax *yaml.SyntaxError
		if errors.As(err, &syntax) && syntax.Token != nil && syntax.Token.Position != nil {
			why := syntax.Message
			if strings.Contains(why, "'\t'") {
				why = "here is a tab; indent with spaces"
			}
			m.add(placeOf(syntax.Token), "this is not YAML: %s", why)
		} else {
			m.add(place{}, "this is not YAML: %v", err)
		}
		return nil
	}
	if docs == nil {
		return nil
	}
	var roots []*node
	size := 0
	for _, doc := range docs {
		if len(roots) == most {
			at := doc.Body.GetToken()
			if doc.Start != nil {
				at = doc.Start
			}
			m.add(placeOf(at), "%s", tooMany(most))
			return nil
		}
		// Anchors are those of a document.
		b := builder{mistakes: m, depth: depth, anchors: make(map[string]*node)}
		root := b.build(doc.Body, 1)
		if b.failed {
			return nil
		}
		if size += root.size; size > maxNodes {
			m.add(root.at, "with its aliases written out this file has more than %d values", maxNodes)
			return nil
		}
		roots = append(roots, root)
	}
	if roots == nil {
		return []*node{{kind: empty, at: place{1, 1}}}
	}
	return roots
}

func tooMany(documents int) string {
	if documents > 1 {
		return fmt.Sprintf("there are more than %d documents; split the file", documents)
	}
	return "there is a second document; keep one policy in one file, without ---"
}

// invalidText says where and why the data is no text that YAML allows, or "".
func invalidText(data []byte) (at place, why string) {
	at = place{1, 1}
	for i := 0; i < len(data); {
		r, n := utf8.DecodeRune(data[i:])
		switch {
		case r == utf8.RuneError && n == 1:
			return at, "this is not UTF-8 text; save the file as UTF-8"
		case r < ' ' && r != '\n' && r != '\r' && r != '\t' || r == 0x7f:
			return at, fmt.Sprintf(`this is the control character %q; take it out, or write it as "\x%02x"`, r, r)
		case r == '\n':
			at = place{at.line + 1, 0}
		}
		at.column++
		i += n
	}
	return place{}, ""
}

// blankLines returns the line in which too many blank lines have followed each
// other, or zero.
func blankLines(source string) int {
	line, blank := 0, 0
	for text := range strings.SplitSeq(source, "\n") {
		line++
		if blank++; strings.TrimSpace(text) != "" {
			blank = 0
		}
		if blank > maxBlank {
			return line
		}
	}
	return 0
}

// parseYAML calls the YAML library, once for each document: given all of them, it leaves out what
// follows an empty one. A panic in it, which a file should not be
// able to cause, becomes an error. It returns the documents that are not empty, and nil and no error
// if bounds refuse the file.
func parseYAML(m *mistakes, data string, depth, most int) (docs []*ast.DocumentNode, err error) {
	defer func() {
		if r := recover(); r != nil {
			docs, err = nil, fmt.Errorf("the parser gave up: %v", r)
		}
	}()
	tokens := lexer.Tokenize(data)
	if !bounded(m, tokens, depth, most) {
		return nil, nil
	}
	docs = []*ast.DocumentNode{}
	for len(tokens) > 0 {
		end := 1
		for end < len(tokens) && tokens[end].Type != token.DocumentHeaderType {
			end++
		}
		file, err := parser.Parse(tokens[:end], 0, parser.AllowDuplicateMapKey())
		if err != nil {
			return nil, err
		}
		for _, doc := range file.Docs {
			if doc.Body != nil {
				docs = append(docs, doc)
			}
		}
		tokens = tokens[end:]
	}
	return docs, nil
}

// bounded refuses, before the recursive parser sees them, files that would take
// it too deep or too long.
func bounded(m *mistakes, tokens token.Tokens, depth, most int) bool {
	line, entries := 0, 0 // how many lists begin in the line
	documents := 0
	var flow []int              // the commas in each bracket that is open
	fields := make(map[int]int) // by column, in the mappings that are open
	items := make(map[int]int)  // by column, in the lists that are open
	refuse := func(t *token.Token, format string, args ...any) bool {
		m.add(placeOf(t), format, args...)
		return false
	}
	for i, t := range tokens {
		if t.Position.Line != line {
			line, entries = t.Position.Line, 0
		}
		column := t.Position.Column
		switch t.Type {
		case token.SequenceStartType, token.MappingStartType:
			flow = append(flow, 0)
		case token.SequenceEndType, token.MappingEndType:
			flow = flow[:max(0, len(flow)-1)]
		case token.CollectEntryType:
			if n := len(flow); n > 0 {
				if flow[n-1]++; flow[n-1] > maxItems {
					return refuse(t, "there are more than %d entries between two brackets", maxItems)
				}
			}
		case token.SequenceEntryType:
			entries++
			closeBelow(fields, column)
			closeBelow(items, column)
			if items[column]++; items[column] > maxItems {
				return refuse(t, "this list has more than %d entries", maxItems)
			}
		case token.MappingValueType:
			if len(flow) > 0 || i == 0 {
				break
			}
			column = tokens[i-1].Position.Column
			closeBelow(fields, column)
			closeBelow(items, column-1)
			if fields[column]++; fields[column] > maxFields {
				return refuse(tokens[i-1], "this mapping has more than %d fields", maxFields)
			}
		case token.DocumentHeaderType, token.DocumentEndType:
			if documents++; documents > 2*most {
				return refuse(t, "%s", tooMany(most))
			}
			clear(fields)
			clear(items)
		case token.TagType:
			return refuse(t, "tags such as %s are not supported; leave it out", t.Value)
		case token.MappingKeyType:
			return refuse(t, `keys that begin with "? " are not supported; write the field as name: value`)
		case token.DirectiveType:
			return refuse(t, "directives are not supported; leave the line out")
		case token.AnchorType:
			// The name follows, then the value.
			if i+2 < len(tokens) && tokens[i+2].Type == token.AnchorType {
				return refuse(t, "one value has two anchors; leave one out")
			}
		}
		if len(flow)+entries > depth {
			return refuse(t, "values stand more than %d deep in each other", depth)
		}
	}
	return true
}

// closeBelow forgets the collections that are further in than the column.
func closeBelow(open map[int]int, column int) {
	for c := range open {
		if c > column {
			delete(open, c)
		}
	}
}

func placeOf(t *token.Token) place { return place{t.Position.Line, t.Position.Column} }

// builder turns the library's tree into nodes, and anchors into shared ones.
type builder struct {
	mistakes *mistakes
	depth    int // the greatest that is allowed
	anchors  map[string]*node
	failed   bool
}

func (b *builder) fail(t *token.Token, format string, args ...any) *node {
	b.mistakes.add(placeOf(t), format, args...)
	b.failed = true
	return &node{at: placeOf(t)}
}

// build returns the node for n, never nil.
func (b *builder) build(n ast.Node, depth int) *node {
	if depth > b.depth {
		return b.fail(n.GetToken(), "values stand more than %d deep in each other", b.depth)
	}
	at := placeOf(n.GetToken())
	made := &node{at: at, size: 1}
	switch n := n.(type) {
	case *ast.NullNode:
	case *ast.StringNode:
		made.kind, made.text = text, n.Value
	case *ast.LiteralNode:
		made.kind, made.text = text, n.Value.Value
	case *ast.IntegerNode:
		made.kind, made.text = whole, n.Token.Value
	case *ast.FloatNode:
		made.kind, made.text = other, n.Token.Value
	case *ast.BoolNode:
		made.kind, made.text = other, n.Token.Value
	case *ast.InfinityNode:
		made.kind, made.text = other, n.Token.Value
	case *ast.NanNode:
		made.kind, made.text = other, n.Token.Value
	case *ast.SequenceNode:
		made.kind = list
		for _, item := range n.Values {
			made.items = append(made.items, b.build(item, depth+1))
			b.grow(n.GetToken(), made, made.items[len(made.items)-1])
		}
	case *ast.MappingNode:
		made.kind = mapping
		for i, v := range n.Values {
			b.field(made, v, depth)
			if i == 0 && !n.IsFlowStyle {
				made.at = made.fields[0].at
			}
		}
	case *ast.MappingValueNode:
		made.kind = mapping
		b.field(made, n, depth)
		made.at = made.fields[0].at
	case *ast.AnchorNode:
		name := n.Name.GetToken().Value
		value := b.build(n.Value, depth)
		if _, taken := b.anchors[name]; taken {
			return b.fail(n.GetToken(), "the anchor &%s is set twice; give each its own name", name)
		}
		b.anchors[name] = value
		return value
	case *ast.AliasNode:
		name := n.Value.GetToken().Value
		value, ok := b.anchors[name]
		if !ok {
			return b.fail(n.GetToken(), "the alias *%s has no anchor &%s before it", name, name)
		}
		return value
	default:
		return b.fail(n.GetToken(), "%s is not supported here; write a text, a number, a list or a mapping", strings.ToLower(n.Type().String()))
	}
	return made
}

func (b *builder) field(made *node, v *ast.MappingValueNode, depth int) {
	t := v.Key.GetToken()
	name := t.Value
	if key, ok := v.Key.(*ast.StringNode); ok {
		name = key.Value
	}
	if v.Key.IsMergeKey() {
		b.fail(t, "merge keys (<<) are not supported; write the fields out")
	}
	p := pair{name: name, at: placeOf(t), value: &node{at: placeOf(t), size: 1}}
	if v.Value != nil {
		p.value = b.build(v.Value, depth+1)
	}
	if p.value.kind == empty {
		// The library puts a missing value anywhere between here and the next.
		p.value = &node{at: p.at, size: 1}
	}
	made.fields = append(made.fields, p)
	b.grow(t, made, p.value)
}

// grow counts what a part adds to the whole.
func (b *builder) grow(t *token.Token, whole, part *node) {
	whole.size += part.size
	if whole.size > maxNodes && !b.failed {
		b.fail(t, "with its aliases written out this has more than %d values", maxNodes)
	}
}
