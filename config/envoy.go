package config

import (
	"cmp"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"github.com/headgate/headgate/policy"
	"github.com/headgate/headgate/policy/nested"
)

// EnvoyFiles are the files of a directory that hold a configuration of
// envoyproxy/ratelimit: those whose names end in .yaml or .yml and do not begin
// with a dot, in their order.
func EnvoyFiles(dir string) ([]string, error) {
	entries, err := os.ReadDir(dir)
	if err != nil {
		return nil, fmt.Errorf("headgate: %w", err)
	}
	var files []string
	for _, e := range entries {
		name := e.Name()
		if extension := filepath.Ext(name); !strings.HasPrefix(name, ".") && (extension == ".yaml" || extension == ".yml") {
			files = append(files, filepath.Join(dir, name))
		}
	}
	return files, nil
}

// ReadEnvoy reads the configuration of envoyproxy/ratelimit in a directory, a domain in each document
// of each file; those of one domain are read as one. The Set of what is loaded has a direct rule for
// each limit, and Nested leads to them. If a file is wrong, the error is an [*Error] with the mistakes
// of all files; if one cannot be read, it wraps that of package os.
func ReadEnvoy(dir string, opts ...policy.Option) (Loaded, error) {
	var loaded Loaded
	domains, err := readEnvoy(dir, &loaded)
	if err != nil {
		return loaded, err
	}
	loaded.Nested, loaded.Set, err = nested.New(domains, opts...)
	if err != nil {
		return loaded, envoyError(dir, err)
	}
	return loaded, nil
}

// ConvertEnvoy reads the configuration of envoyproxy/ratelimit in a directory and
// writes the same limits as a policy file, for which [nested.Flatten] makes the
// descriptors. What could not be written is in lost; its Lines are those of what
// was read. Errors are those of [ReadEnvoy] and [Format].
func ConvertEnvoy(dir string, opts ...policy.Option) (text []byte, lost []Mistake, err error) {
	domains, err := readEnvoy(dir, new(Loaded))
	if err != nil {
		return nil, nil, err
	}
	return convertEnvoy(dir, domains, opts)
}

func convertEnvoy(dir string, domains []nested.Domain, opts []policy.Option) (text []byte, lost []Mistake, err error) {
	facts, err := nested.Rules(domains, opts...)
	if err != nil {
		return nil, nil, envoyError(dir, err)
	}
	opts = append(slices.Clone(opts), policy.Allowed(facts.Allow...), policy.Denied(facts.Deny...))
	set, err := policy.New(facts.Rules, opts...)
	if err != nil {
		return nil, nil, envoyError(dir, err)
	}
	for i := range facts.Lost {
		lost = append(lost, placedAt(dir, &facts.Lost[i]))
	}
	text, err = Format(set)
	return text, lost, err
}

// placedAt is a mistake at the position of its node.
func placedAt(dir string, m *policy.Mistake) Mistake {
	return Mistake{cmp.Or(m.Pos.File, dir), m.Pos.Line, m.Pos.Column, m.Text}
}

func envoyError(dir string, err error) error {
	var found *policy.Error
	if !errors.As(err, &found) {
		return err
	}
	all := mistakes{file: dir}
	for i := range found.Mistakes {
		all.keep(placedAt(dir, &found.Mistakes[i]))
	}
	return all.err()
}

// readEnvoy reads all files of the directory. It notes their names and their
// hash.
func readEnvoy(dir string, loaded *Loaded) ([]nested.Domain, error) {
	files, err := EnvoyFiles(dir)
	if err != nil {
		return nil, err
	}
	loaded.Files = files
	all := mistakes{file: dir}
	if len(files) == 0 {
		all.add(place{}, "there is no file whose name ends in .yaml")
	}
	sum := sha256.New()
	var domains []nested.Domain
	for _, name := range files {
		// A pipe would keep whoever reads it waiting.
		if info, err := os.Stat(name); err == nil && !info.Mode().IsRegular() && !info.IsDir() {
			all.keep(Mistake{name, 1, 1, "this is not a regular file"})
			continue
		}
		data, err := readFile(name, MaxBytes)
		if err != nil {
			return nil, fmt.Errorf("headgate: %w", err)
		}
		addPart(sum, data)
		m := mistakes{file: name}
		if all, ok := parseEnvoy(&m, data); ok {
			domains = append(domains, all...)
		}
		var found *Error
		if errors.As(m.err(), &found) {
			for _, one := range found.Mistakes {
				all.keep(one)
			}
		}
	}
	loaded.Hash = hex.EncodeToString(sum.Sum(nil))
	return domains, all.err()
}
