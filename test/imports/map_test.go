package imports

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
)

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
