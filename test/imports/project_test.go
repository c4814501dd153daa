package imports

import (
	"cmp"
	"context"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"sync"
	"testing"
)

// project is what the go command says, which takes a second of a processor: its root, the directories
// of its modules and its own packages.
var project = sync.OnceValue(func() (p struct {
	root     string
	modules  []string
	packages []Package
	err      error
},
) {
	ctx := context.Background()
	if p.root, p.modules, p.err = Workspace(ctx); p.err == nil {
		p.packages, p.err = Load(ctx, p.root, p.modules)
	}
	return p
})

// load returns the project, or fails the test.
func load(t *testing.T) (root string, modules []string, packages []Package) {
	t.Helper()
	p := project()
	if p.err != nil {
		t.Fatal(p.err)
	}
	return p.root, p.modules, p.packages
}

func TestProjectKeepsTheRules(t *testing.T) {
	_, _, packages := load(t)
	for _, path := range []string{Root, Root + "/test/imports"} {
		if !slices.ContainsFunc(packages, func(p Package) bool { return p.Path == path }) {
			t.Fatalf("%s is not among the %d packages that were read", path, len(packages))
		}
	}
	for _, line := range Check(Rooms(), packages) {
		t.Error(line)
	}
}

// TestEveryRoomIsUsed: a room without a package would be a rule about nothing.
func TestEveryRoomIsUsed(t *testing.T) {
	_, _, packages := load(t)
	used := make(map[string]bool)
	for _, p := range packages {
		room, _, _ := find(Rooms(), p.Path)
		used[room.Path] = true
	}
	for _, r := range Rooms() {
		if !used[r.Path] {
			t.Errorf("no package is in the room %s: strike it from imports.Rooms", r.Path)
		}
	}
}

func TestCoreRequiresNothing(t *testing.T) {
	root, _, _ := load(t)
	required, err := Requirements(t.Context(), root)
	if err != nil {
		t.Fatal(err)
	}
	if len(required) > 0 {
		t.Errorf("the core's go.mod requires %v; it must require nothing: what needs a dependency is a module of its own", required)
	}
}

func TestEveryModuleIsInTheWorkspace(t *testing.T) {
	root, modules, _ := load(t)
	strays, err := Strays(root, modules)
	if err != nil {
		t.Fatal(err)
	}
	for _, dir := range strays {
		t.Errorf("%s has a go.mod and is not in go.work: run `go work use` for it", dir)
	}
}

// TestTestsOfEveryPackageRun: what tests leave out under the race detector runs without it, and where
// something may run side by side it runs. The lists of the Makefile say of which packages.
func TestTestsOfEveryPackageRun(t *testing.T) {
	root, _, packages := load(t)
	makefile, err := os.ReadFile(filepath.Join(root, "Makefile"))
	if err != nil {
		t.Fatal(err)
	}
	lists := make(map[string][]string)
	for _, found := range regexp.MustCompile(`(?m)^(TWICE|COUNT|PLAIN)\s*:=((?:.*\\\n)*.*)$`).FindAllStringSubmatch(string(makefile), -1) {
		lists[found[1]] = strings.Fields(found[2])
	}
	if len(lists) != 3 {
		t.Fatalf("the Makefile has %d of the lists TWICE, COUNT and PLAIN", len(lists))
	}
	listed := append(slices.Concat(lists["TWICE"], lists["COUNT"]), ".") // always
	less := regexp.MustCompile(`race\.Enabled|race\.Fewer|(?m)^//go:build !race$`)
	beside := regexp.MustCompile(`(?m)^\s*go [^/\n]*$|\.Go\(|"sync"|"sync/atomic"|synctest|bubbletest`)
	found := 0
	for _, p := range packages {
		dir := cmp.Or(strings.TrimPrefix(strings.TrimPrefix(p.Path, Root), "/"), ".")
		files, err := filepath.Glob(filepath.Join(root, dir, "*.go"))
		if err != nil {
			t.Fatal(err)
		}
		for _, file := range files {
			text, err := os.ReadFile(file)
			if err != nil {
				t.Fatal(err)
			}
			if slices.Contains(lists["PLAIN"], dir) && dir != "bench/flow" && beside.Match(text) { // It has virtual time.
				t.Errorf("%s may run something side by side: take its package off the list PLAIN in the Makefile", file)
			}
			if !strings.HasSuffix(file, "_test.go") || !less.Match(text) {
				continue
			}
			if found++; !slices.Contains(listed, dir) {
				t.Errorf("tests of %s do less under the race detector: add it to TWICE or COUNT in the Makefile", dir)
			}
		}
	}
	if found == 0 {
		t.Error("no file was found that does less")
	}
}
