// Package config reads policy files: YAML in, a policy.Set or every mistake out.
//
// # Basics
//
//	set, err := config.Load("policy.yml", policy.HashKey(key))
//	if err != nil {
//		return err // policy.yml:8:14: limit "20 pr 60s": write it as ...
//	}
//
// A file has rules, as docs/rules.md describes them, or the short form (limits), or both;
// lists that allow and deny; and a table of clients, which may be a file of its own.
// [Read] also says which files a policy was made of, and its hash. [Schema] describes the
// file to editors; headgate.schema.json is its copy. [Format] writes a set as a file,
// [SARIF] writes mistakes and warnings for code hosts, and [Sample] is a file to begin
// with. [ReadGateway] reads the gateway file in the same way.
//
// # Caveats
//
// Loading says what is wrong; package lint says what is valid and unlikely to be
// meant. Run both.
//
// Unknown fields are mistakes, so that a misspelled limit is never a limit that
// silently is not there. YAML's anchors and aliases work within bounds; merge
// keys, tags, directives and further documents are refused.
package config

import (
	"bytes"
	"cmp"
	"crypto/sha256"
	_ "embed"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"hash"
	"io"
	"os"
	"slices"
	"strings"

	"github.com/headgate/headgate"
	"github.com/headgate/headgate/policy"
	"github.com/headgate/headgate/policy/nested"
)

// Loaded is a policy and where it came from.
type Loaded struct {
	// Set is the policy; nil if there was an error.
	Set *policy.Set
	// Nested leads from ordered descriptors to the rules of the Set; nil unless
	// [ReadEnvoy] made it.
	Nested *nested.Tree
	// Files are the policy file and the files beside it that it names, whether
	// they could be read or not: what to watch for changes.
	Files []string
	// Hash is the SHA-256 of all that was read, as hexadecimal digits: the same
	// for the same policy on every node.
	Hash string
}

// Load reads the policy file at path, and the files beside it that it names. If
// a file is wrong, the error is an [*Error] with every mistake; if the policy
// file cannot be read, it wraps that of package os.
func Load(path string, opts ...policy.Option) (*policy.Set, error) {
	loaded, err := Read(path, opts...)
	return loaded.Set, err
}

// Read is [Load] for callers that watch the files, or tell one version of a
// policy from another. It returns the names of the files even with an error.
func Read(path string, opts ...policy.Option) (Loaded, error) {
	var loaded Loaded
	sum := sha256.New()
	read := func(name string, most int64) ([]byte, error) {
		loaded.Files = append(loaded.Files, name)
		data, err := readFile(name, most)
		addPart(sum, data)
		return data, err
	}
	data, err := read(path, MaxBytes)
	if err != nil {
		return loaded, fmt.Errorf("headgate: %w", err)
	}
	loaded.Set, err = compileSource(&source{path, read}, data, opts)
	if err == nil {
		loaded.Hash = hex.EncodeToString(sum.Sum(nil))
	}
	return loaded, err
}

// addPart adds a file to the hash, with its length, so that no two lists of
// files are one.
func addPart(h hash.Hash, data []byte) {
	fmt.Fprintf(h, "%d\n", len(data))
	h.Write(data)
}

// readFile reads up to one byte more than most, which tells a file that is too
// large.
func readFile(path string, most int64) ([]byte, error) {
	f, err := os.Open(path)
	if err != nil {
		return nil, err
	}
	data, err := io.ReadAll(io.LimitReader(f, most+1))
	return data, errors.Join(err, f.Close())
}

// Parse reads a policy from memory. The name stands for the file in mistakes and
// in the positions of rules. The error is an [*Error] with every mistake. The
// options are those of policy.New, such as policy.HashKey. A policy that
// names files beside it is a mistake.
func Parse(name string, data []byte, opts ...policy.Option) (*policy.Set, error) {
	return compileSource(&source{name: name}, data, opts)
}

// source is where a policy comes from.
type source struct {
	name string
	// read reads a file; nil if the policy is no file itself.
	read func(path string, most int64) ([]byte, error)
}

func compileSource(src *source, data []byte, opts []policy.Option) (*policy.Set, error) {
	m := &mistakes{file: src.name}
	root := parse(m, data, maxDepth)
	if root == nil {
		return nil, m.err()
	}
	const nothing = "the file has no policy; begin with rules: or limits:"
	if root.kind == empty {
		m.add(root.at, nothing)
		return nil, m.err()
	}
	file, ok := policyFile().read(&reader{m}, "the file", root)
	if ok && len(root.fields) == 0 {
		m.add(root.at, nothing)
	}
	set := compile(m, &file, src, opts)
	if err := m.err(); err != nil {
		return nil, err
	}
	return set, nil
}

// Mistake is one thing that is wrong with a policy file.
type Mistake struct {
	// File is the name that the file was loaded under.
	File string
	// Line and Column count from 1; a column is a character. Both are zero if
	// the mistake lies in no one place.
	Line, Column int
	// Text says what is wrong, with the numbers and what to do.
	Text string
}

// String writes the mistake as file:line:column: text.
func (m Mistake) String() string {
	if m.Line == 0 {
		return fmt.Sprintf("%s: %s", m.File, m.Text)
	}
	return fmt.Sprintf("%s:%d:%d: %s", m.File, m.Line, m.Column, m.Text)
}

// Error lists every mistake in a policy file, in the order of the file.
type Error struct{ Mistakes []Mistake }

// Error writes one mistake per line.
func (e *Error) Error() string {
	lines := make([]string, len(e.Mistakes))
	for i, m := range e.Mistakes {
		lines[i] = m.String()
	}
	return strings.Join(lines, "\n")
}

// Is makes errors.Is(err, headgate.ErrInvalid) true.
func (e *Error) Is(target error) bool { return target == headgate.ErrInvalid }

// place is a position in the file. The zero place is the file as a whole.
type place struct{ line, column int }

func (p place) in(file string) policy.Position {
	return policy.Position{File: file, Line: p.line, Column: p.column}
}

// mistakes collects what is wrong with one file and what it reads. What is there
// already is not added again: aliases and like have one part of a file read in
// several places.
type mistakes struct {
	file string
	list []Mistake
	seen map[Mistake]bool
	more int
	// again is how many were there already.
	again int
}

// maxMistakes bounds what a file that is all mistakes can cost.
const maxMistakes = 1000

func (m *mistakes) add(at place, format string, args ...any) {
	m.keep(Mistake{m.file, at.line, at.column, fmt.Sprintf(format, args...)})
}

func (m *mistakes) keep(one Mistake) {
	if m.seen[one] {
		m.again++
		return
	}
	if len(m.list) == maxMistakes {
		m.more++
		return
	}
	if m.seen == nil {
		m.seen = make(map[Mistake]bool)
	}
	m.seen[one] = true
	m.list = append(m.list, one)
}

// err returns the mistakes as an [*Error], or nil if there are none.
func (m *mistakes) err() error {
	if m.list == nil {
		return nil
	}
	slices.SortStableFunc(m.list, func(a, b Mistake) int {
		other := func(x Mistake) int {
			if x.File == m.file {
				return 0
			}
			return 1
		}
		return cmp.Or(other(a)-other(b), cmp.Compare(a.File, b.File), cmp.Compare(a.Line, b.Line), cmp.Compare(a.Column, b.Column))
	})
	if m.more > 0 {
		m.list = append(m.list, Mistake{File: m.file, Text: fmt.Sprintf("and %d more mistakes", m.more)})
	}
	return &Error{m.list}
}

// count is how many mistakes were added so far.
func (m *mistakes) count() int { return len(m.list) + m.more + m.again }

// Schema returns the JSON Schema (draft 2020-12) of a policy file, made from the
// table that the loader reads by. It is what headgate.schema.json holds.
//
// A schema sees the shape of a file and the bounds of single values. What only
// the loader sees, such as two rules of one name, passes the schema.
func Schema() []byte {
	return encodeSchema(policyFile().schema, "Headgate policy", "The rules by which Headgate limits requests.")
}

// GatewaySchema returns the JSON Schema of a gateway file, as [Schema] does that of
// a policy file. It is what gateway.schema.json holds.
func GatewaySchema() []byte {
	return encodeSchema(gatewayFile().schema, "Headgate gateway", "What Headgate's gateway passes requests on to, and how.")
}

func encodeSchema(s schema, title, description string) []byte {
	s["$schema"] = "https://json-schema.org/draft/2020-12/schema"
	s["title"] = title
	s["description"] = description
	var b bytes.Buffer
	e := json.NewEncoder(&b)
	e.SetEscapeHTML(false)
	e.SetIndent("", "  ")
	if err := e.Encode(s); err != nil {
		// The schema holds texts, numbers and lists of them, all of which encode.
		panic(err)
	}
	return b.Bytes()
}

//go:embed sample.yml
var sample string

// Sample returns the policy file that "headgate serve" uses when it is given
// none.
func Sample() []byte { return []byte(sample) }
