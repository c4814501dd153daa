package godoc

import (
	"os"
	"slices"
	"testing"
	"testing/fstest"

	"github.com/headgate/headgate/test/imports"
)

func TestUnknown(t *testing.T) {
	file := func(text string) *fstest.MapFile { return &fstest.MapFile{Data: []byte(text)} }
	got, err := Unknown(fstest.MapFS{
		"gate/doc.go": file("// Package gate decides: gate.Prose is no code.\n//\n" +
			"//\tg := gate.New(gate.Every(3))\n" +
			"//\terr := g.Allow(other.Thing, fmt.Nothing, gate.ErrShut, x.gate.Field)\n" +
			"package gate\n"),
		"gate/gate.go":          file("package gate\n\n// gate.Missing in a comment of its own is not looked at.\nfunc New() {}\n\nvar ErrShut error\n"),
		"gate/gate_test.go":     file("package gate\n\nfunc Every() {}\n"),
		"gate/testdata/bad.go":  file("not Go"),
		"other/other.go":        file("package other\n\ntype Thing int\n\nfunc (Thing) Every() {}\n"),
		"same/doc.go":           file("// Package same:\n//\n//\tgate, err := other.Open()\n//\tdefer gate.Close()\npackage same\n"),
		"other/doc.go":          file("// Package other:\n//\n//\tvar _ other.Thing = other.Every\npackage other\n"),
		"examples/http/main.go": file("// Package http is an example:\n//\n//\thttp.Serve(gate.Nothing)\npackage http\n"),
		"node_modules/x/odd.go": file("not Go either"),
	})
	if err != nil {
		t.Fatal(err)
	}
	slices.Sort(got)
	if want := []string{"examples/http/main.go: gate.Nothing", "gate/doc.go: gate.Every", "other/doc.go: other.Every", "same/doc.go: other.Open"}; !slices.Equal(got, want) {
		t.Errorf("got %q, want %q", got, want)
	}
}

func TestProject(t *testing.T) {
	root, _, err := imports.Workspace(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	unknown, err := Unknown(os.DirFS(root))
	if err != nil {
		t.Fatal(err)
	}
	for _, line := range unknown {
		t.Errorf("%s does not exist", line)
	}
}
