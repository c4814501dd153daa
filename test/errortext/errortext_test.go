package errortext

import (
	"os"
	"testing"
	"testing/fstest"

	"github.com/headgate/headgate/test/imports"
)

func TestProjectReadsNoErrorsText(t *testing.T) {
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

func TestFind(t *testing.T) {
	tests := []struct {
		name, path, body string
		want             int
	}{
		{"a prefix is taken off", "a/a.go", `println(strings.TrimPrefix(err.Error(), "x: "))`, 1},
		{"a word is looked for", "a/a.go", `if strings.Contains(err.Error(), "x") {}`, 1},
		{"by way of a variable", "a/a.go", `text := err.Error(); _ = strings.HasPrefix(text, "x")`, 1},
		{"compared", "a/a.go", `if err.Error() == "x" {}`, 1},
		{"cut", "a/a.go", `_ = err.Error()[1:]`, 1},
		{"a switch", "a/a.go", `switch err.Error() { case "x": }`, 1},
		{"a pattern", "a/a.go", `_ = pattern.MatchString(err.Error())`, 1},
		{"in a closure", "a/a.go", `func() { _ = strings.ToLower(err.Error()) }()`, 1},
		{"passed on", "a/a.go", `log(err.Error())`, 0},
		{"other text", "a/a.go", `_ = strings.TrimPrefix(name, "x")`, 0},
		{"an answer's error", "a/a.go", `if client.Do().Error() != nil {}`, 0},
		{"a test", "a/a_test.go", `_ = strings.Contains(err.Error(), "x")`, 0},
		{"for tests", "test/a/a.go", `_ = strings.Contains(err.Error(), "x")`, 0},
		{"what may", "internal/errtext/errtext.go", `_ = strings.Contains(err.Error(), "x")`, 0},
	}
	for _, c := range tests {
		t.Run(c.name, func(t *testing.T) {
			source := "package a\n\nfunc f() {\n" + c.body + "\n}\n"
			found, err := Find(fstest.MapFS{c.path: {Data: []byte(source)}})
			if err != nil || len(found) != c.want {
				t.Errorf("found %q, error %v; want %d", found, err, c.want)
			}
		})
	}
}
