package imports

import (
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
)

// undrawn are the rooms that the diagram leaves out: what only tests import, and what may
// import anything.
var undrawn = []string{"internal", "store/layered/internal/layertest", "httplimit/httplimittest", "bench", "test", "examples", "release"}

// drawing is a diagram of who may import whom.
type drawing struct {
	rooms  map[string][]string // by the name of a place
	arrows map[string][]string // from one place to others
}

var (
	place = regexp.MustCompile(`(\w+)\["([^"]+)"\]`)
	arrow = regexp.MustCompile(`^(\w+) --> (\w+)$`)
)

// readDrawing reads the diagram under a heading of docs/architecture.md.
func readDrawing(t *testing.T, root, heading string) drawing {
	t.Helper()
	page, err := os.ReadFile(filepath.Join(root, "docs", "architecture.md"))
	if err != nil {
		t.Fatal(err)
	}
	_, rest, found := strings.Cut(string(page), "\n### "+heading+"\n")
	_, rest, begun := strings.Cut(rest, "```mermaid\n")
	diagram, _, ended := strings.Cut(rest, "```")
	if !found || !begun || !ended {
		t.Fatalf("docs/architecture.md has no diagram under the heading %q", heading)
	}
	d := drawing{make(map[string][]string), make(map[string][]string)}
	for line := range strings.Lines(diagram) {
		for _, m := range place.FindAllStringSubmatch(line, -1) {
			d.rooms[m[1]] = strings.Split(strings.ReplaceAll(m[2], "headgate", "."), "<br>")
		}
		line = strings.TrimSpace(place.ReplaceAllString(line, "$1"))
		switch m := arrow.FindStringSubmatch(line); {
		case m != nil:
			d.arrows[m[1]] = append(d.arrows[m[1]], m[2])
		case line != "" && line != "flowchart TD":
			t.Errorf("the line %q of the diagram is not understood", line)
		}
	}
	return d
}

// reaches reports whether arrows lead from one place to another.
func (d drawing) reaches(from, to string) bool {
	return from == to || slices.ContainsFunc(d.arrows[from], func(next string) bool { return d.reaches(next, to) })
}

// TestTheMapIsTrue holds the diagram of who may import whom against the table: each arrow is
// allowed for all that it begins at and all that it ends at, and arrows lead to everything that
// is allowed.
func TestTheMapIsTrue(t *testing.T) {
	root, _, err := Workspace(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	d := readDrawing(t, root, "Who may import whom")
	at := make(map[string]string) // a room's place
	for name, rooms := range d.rooms {
		for _, r := range rooms {
			if at[r] != "" {
				t.Errorf("%s is in the diagram twice", r)
			}
			at[r] = name
		}
	}
	may := make(map[string][]string)
	for _, r := range Rooms() {
		if slices.Contains(undrawn, r.Path) {
			continue
		}
		may[r.Path] = r.May
		if at[r.Path] == "" {
			t.Errorf("%s is not in the diagram", r.Path)
		}
	}
	for r := range at {
		if _, known := may[r]; !known {
			t.Errorf("the diagram has %s, which is not in the table", r)
		}
	}
	for from, others := range d.arrows {
		for _, to := range others {
			for _, r := range d.rooms[from] {
				if !slices.ContainsFunc(d.rooms[to], func(other string) bool { return slices.Contains(may[r], other) }) {
					t.Errorf("an arrow leads from %s to %s, which it may not import", r, d.rooms[to])
				}
			}
			for _, other := range d.rooms[to] {
				if !slices.ContainsFunc(d.rooms[from], func(r string) bool { return slices.Contains(may[r], other) }) {
					t.Errorf("an arrow leads from %s to %s, which they may not import", d.rooms[from], other)
				}
			}
		}
	}
	for r, allowed := range may {
		for _, other := range allowed {
			if !d.reaches(at[r], at[other]) {
				t.Errorf("%s may import %s, and no arrows lead there", r, other)
			}
		}
	}
}

// wholes are the directories that the tables name as one.
var wholes = []string{"api", "bench", "contrib", "examples", "internal/spelling", "store/layered/internal", "test"}

// TestEveryPackageIsOnTheMap: the tables of docs/architecture.md name each package, or the
// directory that it is in.
func TestEveryPackageIsOnTheMap(t *testing.T) {
	root, _, packages := load(t)
	page, err := os.ReadFile(filepath.Join(root, "docs", "architecture.md"))
	if err != nil {
		t.Fatal(err)
	}
	_, tables, _ := strings.Cut(string(page), "\n### What each package holds\n")
	tables, _, _ = strings.Cut(tables, "\n### ")
	for _, p := range packages {
		path := strings.TrimPrefix(p.Path, Root+"/")
		if path == Root {
			path = "headgate"
		}
		for _, dir := range wholes {
			if strings.HasPrefix(path, dir+"/") {
				path = dir
			}
		}
		if !strings.Contains(tables, "`"+path+"`") && !strings.Contains(tables, "`"+path+"/*`") {
			t.Errorf("%s is in none of the tables of docs/architecture.md", p.Path)
		}
	}
}
