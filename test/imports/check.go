package imports

import (
	"fmt"
	"slices"
	"strings"
)

// Package is what the rules need to know of one package.
type Package struct {
	// Path is the import path, and Name the name in the package clause.
	Path, Name string
	// Module is the path of the module that it belongs to.
	Module string
	// Imports are the paths that its files import, without those of its tests.
	Imports []string
}

// sayNothing are names that tell what a package is not: a home for something.
var sayNothing = []string{"base", "common", "helper", "helpers", "impl", "misc", "util", "utils"}

// Check returns one line for each way in which the packages break the rules of
// the rooms, or none.
func Check(rooms []Room, packages []Package) []string {
	var broken []string
	for _, p := range packages {
		for _, name := range append(strings.Split(relative(p.Path), "/"), p.Name) {
			if slices.Contains(sayNothing, name) {
				broken = append(broken, fmt.Sprintf("%s: the name %q does not say what the package holds", p.Path, name))
				break
			}
		}
		from, name, ok := find(rooms, p.Path)
		if !ok {
			broken = append(broken, fmt.Sprintf("%s: no room of imports.Rooms holds it; give it one, in its layer", p.Path))
			continue
		}
		for _, path := range p.Imports {
			if reason := from.refuses(rooms, name, p.Module, path); reason != "" {
				broken = append(broken, fmt.Sprintf("%s imports %s: %s", p.Path, path, reason))
			}
		}
	}
	return broken
}

// refuses returns why the room, under its own name, must not import path, or "".
func (r Room) refuses(rooms []Room, name, module, path string) string {
	if !own(path) {
		if module == Root && !standard(path) {
			return "the core's module needs nothing but the standard library"
		}
		return ""
	}
	to, toName, ok := find(rooms, path)
	switch {
	case !ok:
		return "no room of imports.Rooms holds it; give it one, in its layer"
	case toName == name, slices.Contains(r.May, to.Path), slices.Contains(r.May, toName), slices.Contains(r.May, Anything):
		return ""
	case len(r.May) == 0:
		return fmt.Sprintf("%s may import the standard library only", name)
	}
	return fmt.Sprintf("%s may import %s, and not %s", name, strings.Join(r.May, ", "), toName)
}

// find returns the room of the package, and the room's own name.
func find(rooms []Room, path string) (room Room, name string, ok bool) {
	for _, r := range rooms {
		if name, ok := r.name(relative(path)); ok {
			return r, name, true
		}
	}
	return Room{}, "", false
}

// own reports whether the package belongs to the project.
func own(path string) bool { return path == Root || strings.HasPrefix(path, Root+"/") }

// relative is the path of one of the project's packages below the root, "." for
// the root itself.
func relative(path string) string {
	if path == Root {
		return "."
	}
	return strings.TrimPrefix(path, Root+"/")
}

// standard reports whether the package is of the standard library: the first
// element of every other path has a dot, as a host's name does.
func standard(path string) bool {
	first, _, _ := strings.Cut(path, "/")
	return !strings.Contains(first, ".")
}
