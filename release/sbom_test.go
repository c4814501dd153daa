package main

import (
	"debug/buildinfo"
	"encoding/json"
	"os"
	"path/filepath"
	"testing"
	"time"
)

// The SBOM lists every module that the linker put into the program, at its version, and our own at
// the version of the release.
func TestSBOM(t *testing.T) {
	t.Parallel()
	file := filepath.Join(t.TempDir(), "sbom.json")
	stat, err := os.Stat(program)
	if err != nil {
		t.Fatal(err)
	}
	if err := writeSBOM(program, file, "v1.2.3"); err != nil {
		t.Fatal(err)
	}
	text, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	var d document
	if err := json.Unmarshal(text, &d); err != nil {
		t.Fatal(err)
	}
	if d.Version != "SPDX-2.3" || d.Creation.Created != stat.ModTime().UTC().Format(time.RFC3339) || d.Packages[0].Checksums[0].Value == "" {
		t.Errorf("the document begins with\n%.900s", text)
	}
	listed, ids := map[string]string{}, map[string]bool{documentID: true}
	for _, p := range d.Packages {
		listed[p.Name] = p.Version
		if ids[p.ID] {
			t.Errorf("%s is the id of two packages", p.ID)
		}
		ids[p.ID] = true
		if want := "pkg:golang/" + p.Name + "@" + p.Version; p.References[0].Locator != want {
			t.Errorf("%s is referred to as %s, want %s", p.Name, p.References[0].Locator, want)
		}
	}
	for _, r := range d.Relationships {
		if !ids[r.From] || !ids[r.To] {
			t.Errorf("%+v names a package that is not there", r)
		}
	}
	if len(d.Relationships) != len(d.Packages) {
		t.Errorf("%d relationships of %d packages", len(d.Relationships), len(d.Packages))
	}
	info, err := buildinfo.ReadFile(program)
	if err != nil {
		t.Fatal(err)
	}
	want := map[string]string{prefix + "/server": "v1.2.3", prefix: "v1.2.3", prefix + "/store/redis": "v1.2.3", "stdlib": info.GoVersion[len("go"):]}
	for _, m := range info.Deps {
		if m.Sum != "" {
			want[m.Path] = m.Version
		}
	}
	for path, version := range want {
		if listed[path] != version {
			t.Errorf("%s is listed at %q, want %q", path, listed[path], version)
		}
	}
	if len(want) < 20 {
		t.Errorf("the program has %d modules: %v", len(want), want)
	}

	if err := writeSBOM("sbom_test.go", file, "v1"); err == nil {
		t.Error("a file that is no program has an SBOM")
	}
}
