package imports

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
)

// Workspace returns the directory of the go.work that binds the current
// directory, and the directories of its modules.
func Workspace(ctx context.Context) (root string, modules []string, err error) {
	work, err := goCommand(ctx, ".", "env", "GOWORK")
	if err != nil {
		return "", nil, err
	}
	file := strings.TrimSpace(string(work))
	if file == "" || file == "off" {
		return "", nil, errors.New("imports: there is no go.work here: run the tests within the project's checkout, and without GOWORK=off")
	}
	root = filepath.Dir(file)
	dirs, err := goCommand(ctx, root, "list", "-m", "-f", "{{.Dir}}")
	if err != nil {
		return "", nil, err
	}
	return root, strings.Split(strings.TrimSpace(string(dirs)), "\n"), nil
}

// Load returns the packages of the modules in the given directories. Packages
// that only hold tests are among them.
func Load(ctx context.Context, root string, modules []string) ([]Package, error) {
	args := []string{"list", "-json=ImportPath,Name,Module,Imports"}
	for _, dir := range modules {
		args = append(args, dir+"/...")
	}
	out, err := goCommand(ctx, root, args...)
	if err != nil {
		return nil, err
	}
	var packages []Package
	for d := json.NewDecoder(bytes.NewReader(out)); ; {
		var p struct {
			ImportPath, Name string
			Module           struct{ Path string }
			Imports          []string
		}
		switch err := d.Decode(&p); {
		case errors.Is(err, io.EOF):
			return packages, nil
		case err != nil:
			return nil, fmt.Errorf("imports: what go list wrote: %w", err)
		}
		packages = append(packages, Package{p.ImportPath, p.Name, p.Module.Path, p.Imports})
	}
}

// Requirements returns the modules that the go.mod in dir requires.
func Requirements(ctx context.Context, dir string) ([]string, error) {
	out, err := goCommand(ctx, dir, "mod", "edit", "-json")
	if err != nil {
		return nil, err
	}
	var mod struct{ Require []struct{ Path string } }
	if err := json.Unmarshal(out, &mod); err != nil {
		return nil, fmt.Errorf("imports: what go mod edit wrote: %w", err)
	}
	var paths []string
	for _, r := range mod.Require {
		paths = append(paths, r.Path)
	}
	return paths, nil
}

// Strays returns the directories below root that have a go.mod and are not among
// the modules: what `make test` and `make lint` would never see.
func Strays(root string, modules []string) ([]string, error) {
	var strays []string
	err := filepath.WalkDir(root, func(path string, e fs.DirEntry, err error) error {
		switch name := e.Name(); {
		case err != nil:
			return err
		case e.IsDir() && (name == ".git" || name == "testdata"):
			return fs.SkipDir
		case name == "go.mod" && !slices.Contains(modules, filepath.Dir(path)):
			strays = append(strays, filepath.Dir(path))
		}
		return nil
	})
	if err != nil {
		return nil, fmt.Errorf("imports: %w", err)
	}
	return strays, nil
}

// goCommand runs the go command in dir and returns what it prints.
func goCommand(ctx context.Context, dir string, args ...string) ([]byte, error) {
	cmd := exec.CommandContext(ctx, "go", args...)
	cmd.Dir = dir
	out, err := cmd.Output()
	if exit, ok := errors.AsType[*exec.ExitError](err); ok {
		return nil, fmt.Errorf("imports: go %s: %w: %s", strings.Join(args, " "), err, bytes.TrimSpace(exit.Stderr))
	}
	if err != nil {
		return nil, fmt.Errorf("imports: go %s: %w", strings.Join(args, " "), err)
	}
	return out, nil
}
