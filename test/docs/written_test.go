package docs

import (
	"bytes"
	"flag"
	"os"
	"path/filepath"
	"testing"

	"github.com/headgate/headgate/test/imports"
)

var write = flag.Bool("write", false, "write docs/reference instead of comparing it")

// metrics is the page of docs/reference that test/monitoring writes and holds.
const metrics = "metrics.md"

// TestWritten: docs/reference holds the pages as they would be written now, and no others.
func TestWritten(t *testing.T) {
	root, _, err := imports.Workspace(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	pages, err := Pages(root)
	if err != nil {
		t.Fatal(err)
	}
	for name, want := range pages {
		path := filepath.Join(root, "docs", "reference", name)
		if *write {
			if err := os.WriteFile(path, want, 0o644); err != nil { //nolint:gosec // Everybody may read it.
				t.Fatal(err)
			}
			continue
		}
		if got, err := os.ReadFile(path); err != nil || !bytes.Equal(got, want) {
			t.Errorf("%s is not what it would be if it were written now (%v): make reference", path, err)
		}
	}
	found, err := os.ReadDir(filepath.Join(root, "docs", "reference"))
	if err != nil {
		t.Fatal(err)
	}
	for _, file := range found {
		if _, ok := pages[file.Name()]; !ok && file.Name() != metrics {
			t.Errorf("docs/reference/%s is written by nobody", file.Name())
		}
	}
}
