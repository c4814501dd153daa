package imports

import (
	"slices"
	"testing"
)

// load returns the project's own packages.
func load(t *testing.T) (root string, modules []string, packages []Package) {
	t.Helper()
	root, modules, err := Workspace(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	packages, err = Load(t.Context(), root, modules)
	if err != nil {
		t.Fatal(err)
	}
	return root, modules, packages
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
