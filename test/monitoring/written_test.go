package monitoring

import (
	"bytes"
	"flag"
	"os"
	"path/filepath"
	"testing"
)

var write = flag.Bool("write", false, "write deploy/monitoring instead of comparing it")

// deployed is where the files are.
var deployed = filepath.Join("..", "..", "deploy", "monitoring")

// TestWritten: deploy/monitoring holds what the tables say, and nothing else.
func TestWritten(t *testing.T) {
	files, err := Files()
	if err != nil {
		t.Fatal(err)
	}
	for name, want := range files {
		path := filepath.Join(deployed, filepath.FromSlash(name))
		if *write {
			if err := os.MkdirAll(filepath.Dir(path), 0o750); err != nil {
				t.Fatal(err)
			}
			if err := os.WriteFile(path, want, 0o644); err != nil { //nolint:gosec // Everybody may read it.
				t.Fatal(err)
			}
			continue
		}
		if got, err := os.ReadFile(path); err != nil || !bytes.Equal(got, want) {
			t.Errorf("%s is not what the tables say (%v): make monitoring", path, err)
		}
	}
	for _, pattern := range []string{"*.*", "grafana/*"} {
		found, err := filepath.Glob(filepath.Join(deployed, pattern))
		if err != nil {
			t.Fatal(err)
		}
		for _, path := range found {
			name, err := filepath.Rel(deployed, path)
			if err != nil {
				t.Fatal(err)
			}
			if _, ok := files[filepath.ToSlash(name)]; !ok {
				t.Errorf("%s is of no table", path)
			}
		}
	}
}

// TestDescribed: each panel says what it shows.
func TestDescribed(t *testing.T) {
	for _, d := range Dashboards() {
		for _, row := range d.Rows {
			for _, p := range row.Panels {
				if p.About == "" {
					t.Errorf("%s: %s: the panel %q is not described", d.UID, row.Title, p.Title)
				}
			}
		}
	}
}
