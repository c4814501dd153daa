package config

import (
	"errors"
	"fmt"
	"io"
	"os"

	"github.com/headgate/headgate/policy"
)

// Load reads the policy file at path. If the file is wrong, the error is an
// [*Error] with every mistake; if it cannot be read, it wraps that of package os.
func Load(path string, opts ...policy.Option) (*policy.Set, error) {
	f, err := os.Open(path)
	if err != nil {
		return nil, fmt.Errorf("config: %w", err)
	}
	// One byte more than the bound tells a file that is too large.
	data, err := io.ReadAll(io.LimitReader(f, MaxBytes+1))
	if err = errors.Join(err, f.Close()); err != nil {
		return nil, fmt.Errorf("config: %w", err)
	}
	return Parse(path, data, opts...)
}

// Parse reads a policy from memory. The name stands for the file in mistakes and
// in the positions of rules. The error is an [*Error] with every mistake. The
// options are those of policy.New, such as policy.WithHashKey.
func Parse(name string, data []byte, opts ...policy.Option) (*policy.Set, error) {
	m := &mistakes{file: name}
	root := parse(m, data)
	if root == nil {
		return nil, m.err()
	}
	if root.kind == empty {
		m.add(root.at, "the file has no policy; begin with rules: or limits:")
		return nil, m.err()
	}
	file, ok := policyFile().read(&reader{m}, "the file", root)
	if ok && len(root.fields) == 0 {
		m.add(root.at, "the file has no policy; begin with rules: or limits:")
	}
	set := compile(m, &file, opts)
	if err := m.err(); err != nil {
		return nil, err
	}
	return set, nil
}
