package config

import (
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"hash"
	"io"
	"os"

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
