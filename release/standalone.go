package main

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"

	"golang.org/x/mod/module"
	"golang.org/x/mod/zip"
)

// goFlags are the flags of go commands that look at a module on its own. -modcacherw lets whoever
// made the module cache remove it. With -trimpath, the build cache serves the next run, whose
// directories have other names.
const goFlags = "-mod=mod -modcacherw -buildvcs=false -trimpath"

// Environment is the environment of a go command that knows the modules in the proxy's directory
// and no workspace. What the module cache of this machine has is read from there, and the rest
// from the proxies that the machine is set up for. Nothing is written into that cache: the same
// version of a module has other contents in the next run. scratch is the cache to write to.
func Environment(ctx context.Context, proxy, scratch string) ([]string, error) {
	out, err := exec.CommandContext(ctx, "go", "env", "GOMODCACHE", "GOPROXY").Output()
	if err != nil {
		return nil, fmt.Errorf("asking for the module cache: %w", exitText(err))
	}
	cache, upstream, _ := strings.Cut(strings.TrimSpace(string(out)), "\n")
	return append(os.Environ(),
		"GOWORK=off",
		"GOMODCACHE="+scratch,
		"GOPROXY="+strings.Join([]string{
			fileURL(proxy), fileURL(filepath.Join(cache, "cache", "download")), upstream,
		}, ","),
		"GONOSUMDB="+prefix+","+prefix+"/*",
		"GOFLAGS="+goFlags,
	), nil
}

func fileURL(dir string) string { return "file://" + filepath.ToSlash(dir) }

// examine takes the module out of its zip into the directory, and looks at it there, on its own.
func (m *Module) examine(ctx context.Context, proxy, version, dir string, env []string, vet bool) error {
	escaped, err := module.EscapePath(m.path)
	if err != nil {
		return err
	}
	packed := filepath.Join(proxy, filepath.FromSlash(escaped), "@v", version+".zip")
	if err := zip.Unzip(dir, module.Version{Path: m.path, Version: version}, packed); err != nil {
		return fmt.Errorf("unpacking %s: %w", m.path, err)
	}
	before, err := readRequirements(dir)
	if err != nil {
		return err
	}
	if err := m.goCommand(ctx, dir, env, "mod", "tidy"); err != nil {
		return err
	}
	after, err := readRequirements(dir)
	if err != nil {
		return err
	}
	if vet {
		if err := m.goCommand(ctx, dir, env, "vet", "./..."); err != nil {
			return err
		}
	}
	if !bytes.Equal(before.mod, after.mod) || !bytes.Equal(before.sum, after.sum) {
		return &untidyError{m.path, after}
	}
	return nil
}

func (m *Module) goCommand(ctx context.Context, dir string, env []string, args ...string) error {
	run := exec.CommandContext(ctx, "go", args...)
	run.Dir, run.Env = dir, env
	if out, err := run.CombinedOutput(); err != nil {
		return fmt.Errorf("%s on its own: go %s: %w\n%s", m.path, strings.Join(args, " "), err, out)
	}
	return nil
}

// untidyError is a module whose go.mod or go.sum is not as "go mod tidy" writes it.
type untidyError struct {
	module string
	tidy   requirements
}

func (e *untidyError) Error() string {
	return e.module + ": go.mod or go.sum is not tidy; `make tidy` rewrites them"
}

// requirements are a module's go.mod and go.sum, the latter without the sums of sibling modules.
type requirements struct{ mod, sum []byte }

func readRequirements(dir string) (r requirements, err error) {
	if r.mod, err = os.ReadFile(filepath.Join(dir, "go.mod")); err != nil {
		return r, err
	}
	sums, err := os.ReadFile(filepath.Join(dir, "go.sum"))
	if err != nil && !errors.Is(err, os.ErrNotExist) {
		return r, err
	}
	for line := range bytes.Lines(sums) {
		if !bytes.HasPrefix(line, []byte(prefix+" ")) && !bytes.HasPrefix(line, []byte(prefix+"/")) {
			r.sum = append(r.sum, line...)
		}
	}
	return r, nil
}

func (r requirements) write(dir string) error {
	err := os.WriteFile(filepath.Join(dir, "go.mod"), r.mod, 0o644)
	if err != nil || len(r.sum) == 0 {
		return err
	}
	return os.WriteFile(filepath.Join(dir, "go.sum"), r.sum, 0o644)
}
