package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path"
	"path/filepath"
	"slices"
	"strings"

	"golang.org/x/mod/modfile"
	"golang.org/x/mod/module"
	"golang.org/x/mod/semver"
	"golang.org/x/mod/zip"
)

// prefix is the path of the root module. All other modules have it before theirs.
const prefix = "github.com/headgate/headgate"

// private are the directories whose modules nobody imports. They get no tag, but their
// requirements are tidied with those of the others.
var private = []string{"bench", "examples", "release", "test"}

// Module is a module of the repository, as it is published.
type Module struct {
	// path is the module's path, and dir its directory relative to the repository's top, with
	// slashes; "" is the top.
	path, dir string
	// files are the names of its files, relative to the repository's top, with slashes.
	files []string
	gomod []byte
	// published says that others import the module.
	published bool
}

// workspaceVersion is the version that the workspace replaces the root module at.
func workspaceVersion(name string) (string, error) {
	text, err := os.ReadFile(name)
	if err != nil {
		return "", err
	}
	work, err := modfile.ParseWork(name, text, nil)
	if err != nil {
		return "", err
	}
	for _, r := range work.Replace {
		if r.Old.Path == prefix && semver.IsValid(r.Old.Version) {
			return r.Old.Version, nil
		}
	}
	return "", fmt.Errorf("%s: no version of %s is replaced by its directory", name, prefix)
}

// tag is the git tag that publishes the version of the module.
func (m *Module) tag(version string) string { return path.Join(m.dir, version) }

// findModules finds the modules of the repository at top, in the order of their paths, with the files that git has or would add.
func findModules(ctx context.Context, top string) ([]*Module, error) {
	list := exec.CommandContext(ctx, "git", "ls-files", "-z", "--cached", "--others", "--exclude-standard")
	list.Dir = top
	out, err := list.Output()
	if err != nil {
		return nil, fmt.Errorf("listing the files of %s: %w", top, exitText(err))
	}
	files := strings.Split(strings.TrimRight(string(out), "\x00"), "\x00")
	files = slices.DeleteFunc(files, func(file string) bool {
		_, err := os.Lstat(filepath.Join(top, filepath.FromSlash(file)))
		return errors.Is(err, os.ErrNotExist) // deleted, and not yet staged
	})
	byDir := make(map[string]*Module)
	for _, file := range files {
		if path.Base(file) != "go.mod" || strings.Contains(file, "/testdata/") {
			continue
		}
		gomod, err := os.ReadFile(filepath.Join(top, filepath.FromSlash(file)))
		if err != nil {
			return nil, err
		}
		dir := strings.TrimSuffix(path.Dir(file), ".")
		byDir[dir] = &Module{path: modfile.ModulePath(gomod), dir: dir, gomod: gomod, published: !slices.Contains(private, first(dir))}
	}
	for _, file := range files {
		if m := owner(byDir, file); m != nil {
			m.files = append(m.files, file)
		}
	}
	var modules []*Module
	for dir, m := range byDir {
		if m.path != path.Join(prefix, dir) {
			return nil, fmt.Errorf("%s/go.mod: the module is called %q, must be %q", dir, m.path, path.Join(prefix, dir))
		}
		modules = append(modules, m)
	}
	slices.SortFunc(modules, func(a, b *Module) int { return strings.Compare(a.path, b.path) })
	return modules, nil
}

// first is the first directory of a path.
func first(dir string) string {
	dir, _, _ = strings.Cut(dir, "/")
	return dir
}

// owner finds the module that the file belongs to: that of the nearest directory above.
func owner(byDir map[string]*Module, file string) *Module {
	for dir := path.Dir(file); ; dir = path.Dir(dir) {
		if dir == "." {
			return byDir[""]
		}
		if m := byDir[dir]; m != nil {
			return m
		}
	}
}

// check finds what would keep a stranger from importing the module at the version: a replace
// directive, or a sibling module that is required at another version.
func (m *Module) check(version string) error {
	f, err := modfile.Parse(path.Join(m.dir, "go.mod"), m.gomod, nil)
	if err != nil {
		return err
	}
	var problems []error
	for _, r := range f.Replace {
		problems = append(problems, fmt.Errorf("%s:%d: replaces %s, which go install refuses and importers do not see",
			path.Join(m.dir, "go.mod"), r.Syntax.Start.Line, r.Old.Path))
	}
	for _, r := range f.Require {
		sibling := r.Mod.Path == prefix || strings.HasPrefix(r.Mod.Path, prefix+"/")
		if sibling && r.Mod.Version != version {
			problems = append(problems, fmt.Errorf("%s:%d: requires %s %s, must be %s",
				path.Join(m.dir, "go.mod"), r.Syntax.Start.Line, r.Mod.Path, r.Mod.Version, version))
		}
	}
	return errors.Join(problems...)
}

// pack writes the version of the module into the directory of a module proxy.
func (m *Module) pack(top, proxy, version string) error {
	escaped, err := module.EscapePath(m.path)
	if err != nil {
		return err
	}
	dir := filepath.Join(proxy, filepath.FromSlash(escaped), "@v")
	if err := os.MkdirAll(dir, 0o755); err != nil {
		return err
	}
	base := filepath.Join(dir, version)
	for name, text := range map[string][]byte{
		base + ".mod":              m.gomod,
		base + ".info":             fmt.Appendf(nil, `{"Version":%q,"Time":"2026-01-01T00:00:00Z"}`, version),
		filepath.Join(dir, "list"): []byte(version + "\n"),
	} {
		if err := os.WriteFile(name, text, 0o644); err != nil {
			return err
		}
	}
	packed, err := os.Create(base + ".zip")
	if err != nil {
		return err
	}
	defer packed.Close()
	if err := zip.Create(packed, module.Version{Path: m.path, Version: version}, m.contents(top)); err != nil {
		return fmt.Errorf("packing %s: %w", m.path, err)
	}
	return packed.Close()
}

// contents are the files of the module's zip. A module without a licence of its own gets the
// repository's, as the go command does it.
func (m *Module) contents(top string) []zip.File {
	var all []zip.File
	licensed := false
	for _, file := range m.files {
		name := strings.TrimPrefix(strings.TrimPrefix(file, m.dir), "/")
		licensed = licensed || name == "LICENSE"
		all = append(all, packedFile{name, filepath.Join(top, filepath.FromSlash(file))})
	}
	if !licensed {
		all = append(all, packedFile{"LICENSE", filepath.Join(top, "LICENSE")})
	}
	return all
}

// packedFile is a file in a module's zip, and where it is read from.
type packedFile struct{ name, source string }

func (f packedFile) Path() string                 { return f.name }
func (f packedFile) Lstat() (os.FileInfo, error)  { return os.Lstat(f.source) }
func (f packedFile) Open() (io.ReadCloser, error) { return os.Open(f.source) }

// exitText adds what a command said on its standard error to the error of its end.
func exitText(err error) error {
	var exit *exec.ExitError
	if errors.As(err, &exit) && len(exit.Stderr) > 0 {
		return fmt.Errorf("%w: %s", err, strings.TrimSpace(string(exit.Stderr)))
	}
	return err
}
