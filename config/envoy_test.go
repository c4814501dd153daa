package config

import (
	"errors"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/headgate/headgate/policy"
	"github.com/headgate/headgate/policy/lint"
	"github.com/headgate/headgate/policy/nested"
)

// directories are those of the fixtures, by name.
func directories(t *testing.T, pattern string) []string {
	t.Helper()
	dirs, err := filepath.Glob(pattern)
	if err != nil || len(dirs) == 0 {
		t.Fatalf("no directories are %s: %v", pattern, err)
	}
	return slices.DeleteFunc(dirs, func(name string) bool { return filepath.Ext(name) != "" })
}

func TestEnvoyMistakes(t *testing.T) {
	for _, dir := range directories(t, "testdata/envoy/bad/*") {
		t.Run(filepath.Base(dir), func(t *testing.T) {
			_, err := ReadEnvoy(dir)
			if _, ok := errors.AsType[*Error](err); !ok {
				t.Fatalf("error is %v", err)
			}
			golden(t, dir+".txt", []byte(strings.ReplaceAll(err.Error(), dir+"/", "")+"\n"))
			if _, _, again := ConvertEnvoy(dir); again == nil || again.Error() != err.Error() {
				t.Errorf("converting says %v", again)
			}
		})
	}
}

func TestEnvoyConverted(t *testing.T) {
	for _, dir := range directories(t, "testdata/envoy/good/*") {
		t.Run(filepath.Base(dir), func(t *testing.T) {
			text, lost, err := ConvertEnvoy(dir)
			if err != nil {
				t.Fatal(err)
			}
			golden(t, dir+".yaml", text)
			golden(t, dir+".lost.txt", []byte((&Error{lost}).Error()+"\n"))
			set, err := Parse("converted", text)
			if err != nil {
				t.Fatal(err)
			}
			again, err := Format(set)
			if err != nil || string(again) != string(text) {
				t.Errorf("what was written reads as another policy: %v\n%s", err, again)
			}
			// The rules have the names, limits and modes that are served.
			loaded, err := ReadEnvoy(dir)
			if err != nil {
				t.Fatal(err)
			}
			for _, r := range set.Rules() {
				served := loaded.Set.Rule(r.Name)
				if served == nil || served.Limits.String() != r.Limits.String() || served.Mode != r.Mode {
					t.Errorf("%v is served as %v", r.Limits, served)
				}
			}
		})
	}
}

func TestReadEnvoy(t *testing.T) {
	dir := "testdata/envoy/good/features"
	loaded, err := ReadEnvoy(dir)
	if err != nil {
		t.Fatal(err)
	}
	if want := []string{dir + "/edge.yaml", dir + "/mongo.yml"}; !slices.Equal(loaded.Files, want) {
		t.Errorf("the files are %v", loaded.Files)
	}
	if len(loaded.Hash) != 64 {
		t.Errorf("the hash is %q", loaded.Hash)
	}
	leaf, key := loaded.Nested.Find("edge", policy.Descriptor{{Name: "remote_address", Value: "192.0.2.1"}, {Name: "user", Value: "u1"}})
	if leaf == nil || leaf.Rule != loaded.Set.Rule("edge.remote_address.user").Limits || key != "192.0.2.1|u1" {
		t.Errorf("found %v under %q", leaf, key)
	}
	if pos := loaded.Set.Rule("mongo_cps.database_users").Pos.String(); pos != dir+"/mongo.yml:3:5" {
		t.Errorf("the rule is at %s", pos)
	}
	for _, w := range lint.Warnings(loaded.Set) {
		t.Errorf("a warning: %s %s %s", w.Code, w.Rule, w.Text)
	}
}

func TestReadEnvoyNeedsADirectory(t *testing.T) {
	for _, name := range []string{"testdata/envoy/none", "testdata/envoy/good/features/edge.yaml"} {
		_, err := ReadEnvoy(name)
		if _, ok := errors.AsType[*fs.PathError](err); !ok {
			t.Errorf("%s: error is %v", name, err)
		}
	}
	dir := t.TempDir()
	if err := os.Mkdir(filepath.Join(dir, "a.yaml"), 0o700); err != nil {
		t.Fatal(err)
	}
	if _, err := ReadEnvoy(dir); err == nil {
		t.Error("a directory in place of a file is no error")
	}
}

// TestEnvoyReadsFilesOnly: a pipe among the files is a mistake, and keeps nobody
// waiting.
func TestEnvoyReadsFilesOnly(t *testing.T) {
	dir := t.TempDir()
	name := filepath.Join(dir, "a.yaml")
	if err := exec.CommandContext(t.Context(), "mkfifo", name).Run(); err != nil {
		t.Fatal(err)
	}
	_, err := ReadEnvoy(dir)
	if want := name + ":1:1: this is not a regular file"; err == nil || err.Error() != want {
		t.Errorf("error is %v, want %s", err, want)
	}
}

// TestEnvoyDepth: as many nested descriptors as a request can have entries, and
// not so many that reading them would be a danger.
func TestEnvoyDepth(t *testing.T) {
	nest := func(levels int) string {
		var b strings.Builder
		b.WriteString("domain: d\n")
		for i := range levels {
			indent := strings.Repeat("    ", i)
			b.WriteString(indent + "descriptors:\n" + indent + "  - key: a\n")
			if i == levels-1 {
				b.WriteString(indent + "    rate_limit: {unit: day, requests_per_unit: 1}\n")
			}
		}
		return strings.ReplaceAll(b.String(), "\n    descriptors", "\n    descriptors")
	}
	m := &mistakes{file: "deep.yaml"}
	if d, ok := parseEnvoy(m, []byte(nest(30))); !ok || len(d[0].Nodes) != 1 {
		t.Errorf("30 levels: %v", m.err())
	}
	m = &mistakes{file: "deep.yaml"}
	if _, ok := parseEnvoy(m, []byte(nest(40))); ok || !strings.Contains(m.err().Error(), "more than 64 deep") {
		t.Errorf("40 levels: %v", m.err())
	}
}

func FuzzEnvoy(f *testing.F) {
	for _, pattern := range []string{"testdata/envoy/good/*/*.y*ml", "testdata/envoy/bad/*/*.yaml"} {
		paths, err := filepath.Glob(pattern)
		if err != nil || len(paths) == 0 {
			f.Fatalf("no files are %s: %v", pattern, err)
		}
		for _, path := range paths {
			data, err := os.ReadFile(path)
			if err != nil {
				f.Fatal(err)
			}
			f.Add(data)
		}
	}
	f.Fuzz(func(t *testing.T, data []byte) {
		m := &mistakes{file: "f.yaml"}
		domains, ok := parseEnvoy(m, data)
		if ok != (m.err() == nil) {
			t.Fatalf("it could be read: %t, and the mistakes are %v", ok, m.err())
		}
		if !ok {
			return
		}
		_, set, err := nested.New(domains)
		if err != nil {
			if err := envoyError("dir", err); err == nil {
				t.Fatal("the mistakes were lost")
			}
			return
		}
		text, _, err := convertEnvoy("dir", domains, nil)
		if err != nil {
			// What a descriptor may have and a policy may not is a mistake.
			if _, ok := errors.AsType[*Error](err); !ok {
				t.Fatal(err)
			}
			return
		}
		if len(set.Rules()) == 0 {
			return
		}
		if _, err := Parse("converted", text); err != nil {
			t.Fatalf("what was written is wrong: %v\n%s", err, text)
		}
	})
}
