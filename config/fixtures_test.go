package config

import (
	"bytes"
	"errors"
	"flag"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/goccy/go-yaml"
	"github.com/santhosh-tekuri/jsonschema/v6"

	"github.com/headgate/headgate"
)

var update = flag.Bool("update", false, "write golden files and the schema instead of comparing them")

// golden compares got with the file, or writes the file if the tests run with
// -update.
func golden(t *testing.T, path string, got []byte) {
	t.Helper()
	if *update {
		if err := os.WriteFile(path, got, 0o644); err != nil {
			t.Fatal(err)
		}
	}
	want, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	if !bytes.Equal(got, want) {
		t.Errorf("%s differs; run the tests with -update and look at what changes\ngot\n%s\nwant\n%s", path, got, want)
	}
}

func fixtures(t *testing.T, pattern string) map[string][]byte {
	t.Helper()
	paths, err := filepath.Glob(pattern)
	if err != nil || len(paths) == 0 {
		t.Fatalf("no files are %s: %v", pattern, err)
	}
	files := make(map[string][]byte, len(paths))
	for _, path := range paths {
		data, err := os.ReadFile(path)
		if err != nil {
			t.Fatal(err)
		}
		files[path] = data
	}
	return files
}

func compiledSchema(t *testing.T) *jsonschema.Schema {
	t.Helper()
	doc, err := jsonschema.UnmarshalJSON(bytes.NewReader(Schema()))
	if err != nil {
		t.Fatal(err)
	}
	c := jsonschema.NewCompiler()
	c.DefaultDraft(jsonschema.Draft2020)
	if err := c.AddResource("schema.json", doc); err != nil {
		t.Fatal(err)
	}
	s, err := c.Compile("schema.json")
	if err != nil {
		t.Fatal(err)
	}
	return s
}

// meets returns what the schema has against the file.
func meets(s *jsonschema.Schema, data []byte) error {
	text, err := yaml.YAMLToJSON(data)
	if err != nil {
		return err
	}
	doc, err := jsonschema.UnmarshalJSON(bytes.NewReader(text))
	if err != nil {
		return err
	}
	return s.Validate(doc)
}

func TestGood(t *testing.T) {
	s := compiledSchema(t)
	files := fixtures(t, "testdata/good/*.yml")
	files["sample.yml"] = Sample()
	for path, data := range files {
		set, err := Load(path)
		if err != nil {
			t.Errorf("the loader refuses %s:\n%v", path, err)
			continue
		}
		if err := meets(s, data); err != nil {
			t.Errorf("the schema refuses %s:\n%v", path, err)
		}
		text, err := Format(set)
		if err != nil {
			t.Errorf("%s cannot be written: %v", path, err)
			continue
		}
		if filepath.Dir(path) == "testdata/good" {
			golden(t, strings.TrimSuffix(path, ".yml")+".formatted", text)
		}
		if again, err := Parse("again", text); err != nil || different(set, again) != "" {
			t.Errorf("%s was written as\n%s\nwhich loads with error %v, and differs in %s", path, text, err, different(set, again))
		}
		if err := meets(s, text); err != nil {
			t.Errorf("%s was written as\n%s\nwhich the schema refuses:\n%v", path, text, err)
		}
		// What editors on other systems make of the file.
		for name, changed := range map[string][]byte{
			"with CRLF":           bytes.ReplaceAll(data, []byte("\n"), []byte("\r\n")),
			"with a byte order":   append([]byte("\ufeff"), data...),
			"without a last line": bytes.TrimRight(data, "\n"),
		} {
			if again, err := Parse("changed", changed); err != nil || different(set, again) != "" {
				t.Errorf("%s %s: %v, differs in %s", path, name, err, different(set, again))
			}
		}
	}
}

// accepted is the first line of a fixture whose mistakes no schema can see.
const accepted = "# The schema accepts this.\n"

func TestBad(t *testing.T) {
	s := compiledSchema(t)
	for path, data := range fixtures(t, "testdata/bad/*.yml") {
		name := filepath.Base(path)
		set, err := Parse(name, data)
		var mistakes *Error
		if !errors.As(err, &mistakes) || !errors.Is(err, headgate.ErrInvalid) || set != nil {
			t.Errorf("%s: the loader returns %v, %v", path, set, err)
			continue
		}
		golden(t, strings.TrimSuffix(path, ".yml")+".txt", []byte(err.Error()+"\n"))
		last := Mistake{}
		for _, m := range mistakes.Mistakes {
			if m.File != name || m.Text == "" || m.Line < last.Line || m.Line == last.Line && m.Column < last.Column {
				t.Errorf("%s: mistake %v comes after %v", path, m, last)
			}
			last = m
		}
		schemaSays := meets(s, data)
		if want := bytes.HasPrefix(data, []byte(accepted)); (schemaSays == nil) != want {
			t.Errorf("%s: the schema says %v; accepting is %v", path, schemaSays, want)
		}
	}
}

func TestSchemaFile(t *testing.T) {
	golden(t, "headgate.schema.json", Schema())
}
