package text

import (
	"os"
	"strings"
	"testing"
	"testing/fstest"

	"github.com/headgate/headgate/test/imports"
)

func TestProjectIsFreeOfIt(t *testing.T) {
	root, _, err := imports.Workspace(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	found, err := Find(os.DirFS(root))
	if err != nil {
		t.Fatal(err)
	}
	for _, line := range found {
		t.Error(line)
	}
}

// TestFind puts the forbidden texts together at run time, so that this file is
// free of them.
func TestFind(t *testing.T) {
	home := "/" + "home/ada/headgate"
	later := "TO" + "DO"
	skip := "t.Sk" + "ip("
	tests := []struct {
		name, path, content string
		want                string // the place that is reported; "" for none
	}{
		{"machine path in code", "a.go", "package a\n\nconst dir = \"" + home + "\"\n", "a.go:3: "},
		{"machine path at the start of a line", "docs/a.md", home, "docs/a.md:1: "},
		{"machine path in test data", "a/testdata/x.txt", "see " + home + "\n", "a/testdata/x.txt:1: "},
		{"root's home", "Makefile", "GO = /" + "root/go\n", "Makefile:1: "},
		{"path of a URL", "a.go", "// https://example.com" + home + "\n", ""},
		{"path of a request", "a.go", "const route = \"GET /home\"\n", ""},
		{"skipped test", "a_test.go", "\t" + skip + "\"later\")\n", "a_test.go:1: "},
		{"skipped test in prose", "docs/a.md", skip + ")\n", ""},
		{"skipping something else", "a.go", "scanner.Sk" + "ip(1)\n", ""},
		{"unfinished", "script.lua", "-- " + later + ": expire\n", "script.lua:1: "},
		{"unfinished in test data", "testdata/a.go", "// " + later + "\n", ""},
		{"part of a word", "a.go", "const x" + later + "x = 1\n", ""},
		{"binary", "a.go", "\x00 " + later + "\n", ""},
		{"what was built", "bin/a.go", later + "\n", ""},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			found, err := Find(fstest.MapFS{tt.path: {Data: []byte(tt.content)}})
			if err != nil {
				t.Fatal(err)
			}
			switch {
			case tt.want == "" && len(found) > 0:
				t.Errorf("got %q, want nothing", found)
			case tt.want != "" && (len(found) != 1 || !strings.HasPrefix(found[0], tt.want)):
				t.Errorf("got %q, want one line that begins with %q", found, tt.want)
			}
		})
	}
}
