package config

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/headgate/headgate/policy"
)

// besideFile has a policy whose subjects stand in another file.
const besideFile = `subjects: { by: user, file: %s }
rules:
  - name: api
    per: all
    limits: { tier: { pro: [600 per 1m], "*": [60 per 1m] } }
`

// write makes files in a new directory and returns it.
func write(t *testing.T, files map[string]string) string {
	t.Helper()
	dir := t.TempDir()
	for name, text := range files {
		if err := os.WriteFile(filepath.Join(dir, name), []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	return dir
}

func TestSubjectsBeside(t *testing.T) {
	for name, table := range map[string]string{
		"table.yml":  "ada: { tier: pro, tenant: acme }\neve: { tier: free }\n\"*\": { tier: none }\n",
		"table.csv":  "user,tier,tenant\nada,pro,acme\neve,free,\n*,none,\n",
		"table2.CSV": "\ufefftier,user,tenant\r\npro,ada,acme\r\n\"free\",\"eve\",\r\nnone,*,\r\n",
	} {
		dir := write(t, map[string]string{"p.yml": fmt.Sprintf(besideFile, name), name: table})
		loaded, err := Read(filepath.Join(dir, "p.yml"))
		if err != nil {
			t.Errorf("%s: %v", name, err)
			continue
		}
		want := policy.Subjects{
			By: "user", File: name,
			Table: []policy.Subject{
				{Key: "ada", Entries: []policy.Entry{{Name: "tier", Value: "pro"}, {Name: "tenant", Value: "acme"}}},
				{Key: "eve", Entries: []policy.Entry{{Name: "tier", Value: "free"}}},
			},
			Other: []policy.Entry{{Name: "tier", Value: "none"}},
		}
		if got := plainSubjects(loaded.Set.Subjects()); fmt.Sprint(got) != fmt.Sprint(want) {
			t.Errorf("%s: got %v, want %v", name, got, want)
		}
		if pos := loaded.Set.Subjects().Table[1].Pos; pos.File != filepath.Join(dir, name) || pos.Line < 2 || pos.Column < 1 {
			t.Errorf("%s: the second subject is at %v", name, pos)
		}
		if want := []string{filepath.Join(dir, "p.yml"), filepath.Join(dir, name)}; !slices.Equal(loaded.Files, want) || len(loaded.Hash) != 64 {
			t.Errorf("%s: files %v, hash %q", name, loaded.Files, loaded.Hash)
		}
		// What was loaded is written with the name of the file, and loads again.
		text, err := Format(loaded.Set)
		if err != nil {
			t.Fatal(err)
		}
		again := filepath.Join(dir, "again.yml")
		if err := os.WriteFile(again, text, 0o600); err != nil {
			t.Fatal(err)
		}
		if set, err := Load(again); err != nil || different(loaded.Set, set) != "" {
			t.Errorf("%s: written as\n%s\nwhich loads with %v, different in %s", name, text, err, different(loaded.Set, set))
		}
	}
}

// TestSparseTable: a table takes the memory of what it says, and not of its columns.
func TestSparseTable(t *testing.T) {
	table := "user,tier" + strings.Repeat(",", 500) + "\nada,pro" + strings.Repeat(",", 500) + "\n"
	rows := readCSV(&mistakes{file: "t.csv"}, "user", []byte(table))
	if len(rows) != 1 || len(rows[0].entries) != 1 || cap(rows[0].entries) != 1 {
		t.Errorf("got %d rows: %v", len(rows), rows)
	}
}

func TestSubjectsBesideMistakes(t *testing.T) {
	for _, c := range []struct{ name, table, want string }{
		{"t.yml", "", "t.yml:1:1: the file has no subjects"},
		{"t.yml", "# none\n", "t.yml:1:1: the file has no subjects"},
		{"t.yml", "- a\n", "t.yml:1:1: the table is a list of 1, must be a mapping of clients to what is known of them, such as { k1: { tier: pro } }"},
		{"t.yml", "a: b: c\n", "t.yml:1:"},
		{"t.yml", "ada: { tier: pro }\neve: pro\n", "t.yml:2:1: what is known of a client is the text \"pro\", must be a mapping, such as { tier: pro }"},
		{"t.yml", "ada: { tier: pro }\neve: { \"a b\": pro }\n", "t.yml:2:1: entry \"a b\": the name has ' ' at byte 1"},
		{"t.yml", "\"*\": { user: ada }\n", "t.yml:1:1: entry \"user\" is what the table is looked up by, and cannot be set in it"},
		{"t.csv", "", "t.csv:1:1: the file has no subjects"},
		{"t.csv", "user,tier\n", "t.csv:1:1: the file has no subjects"},
		{"t.csv", "key,tier\nada,pro\n", "t.csv:1:1: there is no column \"user\"; the first line must name the columns, and clients are looked up by that one"},
		{"t.csv", "user,tier\nada,pro,x\n", "t.csv:2:1: this is not CSV: wrong number of fields"},
		{"t.csv", "user,tier\n\"ada,pro\n", "t.csv:2:"},
		{"t.csv", "tier,user\npro,ada\nfree,ada\n", "t.csv:3:6: the subject \"ada\" is in the table twice, first at"},
		{"t.csv", "user,tier\nada,\n", "t.csv:2:1: the subject \"ada\" has no entries"},
		{"t.csv", "user,tier,tier\nada,pro,free\n", "t.csv:2:1: entry \"tier\" is set twice; keep one"},
		{"t.csv", "user,tier\nada,\xff\n", "t.csv:2:5: this is not UTF-8 text"},
	} {
		dir := write(t, map[string]string{"p.yml": fmt.Sprintf(besideFile, c.name), c.name: c.table})
		loaded, err := Read(filepath.Join(dir, "p.yml"))
		var mistakes *Error
		if !errors.As(err, &mistakes) || loaded.Set != nil || len(loaded.Files) != 2 || loaded.Hash != "" {
			t.Errorf("%q: %v, %v", c.table, loaded, err)
			continue
		}
		if got := strings.TrimPrefix(mistakes.Mistakes[0].String(), dir+string(filepath.Separator)); !strings.HasPrefix(got, c.want) {
			t.Errorf("%q:\ngot  %s\nwant %s", c.table, got, c.want)
		}
	}
	dir := write(t, map[string]string{"p.yml": fmt.Sprintf(besideFile, "none.yml")})
	loaded, err := Read(filepath.Join(dir, "p.yml"))
	if err == nil || !strings.Contains(err.Error(), "p.yml:1:29: the file with the subjects cannot be read: open ") || len(loaded.Files) != 2 {
		t.Errorf("a missing table: %v, %v", loaded, err)
	}
	if loaded, err := Read(filepath.Join(dir, "none.yml")); !errors.Is(err, fs.ErrNotExist) || len(loaded.Files) != 1 {
		t.Errorf("a missing policy: %v, %v", loaded, err)
	}
}

// TestHash: the hash is that of all files, and of nothing else.
func TestHash(t *testing.T) {
	hash := func(policy, table string) string {
		dir := write(t, map[string]string{"p.yml": policy, "t.csv": table})
		loaded, err := Read(filepath.Join(dir, "p.yml"))
		if err != nil {
			t.Fatal(err)
		}
		return loaded.Hash
	}
	text, table := fmt.Sprintf(besideFile, "t.csv"), "user,tier\nada,pro\n"
	first := hash(text, table)
	if again := hash(text, table); again != first {
		t.Errorf("the same files have the hashes %s and %s", first, again)
	}
	if hash(text, table+"eve,pro\n") == first || hash(text+"\n", table) == first {
		t.Error("different files have one hash")
	}
}

// TestLargeTable: a table of many clients loads, and is found in.
func TestLargeTable(t *testing.T) {
	var b strings.Builder
	b.WriteString("user,tier\n")
	for i := range 100_000 {
		fmt.Fprintf(&b, "u%d,pro\n", i)
	}
	dir := write(t, map[string]string{"p.yml": fmt.Sprintf(besideFile, "t.csv"), "t.csv": b.String()})
	set, err := Load(filepath.Join(dir, "p.yml"))
	if err != nil || len(set.Subjects().Table) != 100_000 {
		t.Fatal(err)
	}
	checks, err := set.Match(policy.Descriptor{{Name: "user", Value: "u99999"}}, 1, nil)
	if err != nil || checks[0].Rule.Limits()[0].Count != 600 {
		t.Errorf("the last subject has %v, %v", checks, err)
	}
	if _, err := Format(mustSet(t, policy.SubjectTable(policy.Subjects{By: "user", Table: set.Subjects().Table}))); err == nil ||
		!strings.Contains(err.Error(), "the table has 100000 rows, must have at most 1000; keep it in a file of its own") {
		t.Errorf("a large table without a file: %v", err)
	}
}

func mustSet(t *testing.T, opts ...policy.Option) *policy.Set {
	t.Helper()
	set, err := policy.New(nil, opts...)
	if err != nil {
		t.Fatal(err)
	}
	return set
}

func FuzzReadTable(f *testing.F) {
	f.Add("t.csv", "user,tier\nada,pro\n\"e\"\"ve\",\n*,none\n")
	f.Add("t.csv", "\ufefftier,user\r\npro,ada\r\n")
	f.Add("t.yml", "ada: &a { tier: pro }\neve: *a\n")
	f.Fuzz(func(t *testing.T, name, text string) {
		m := &mistakes{file: name}
		rows := readTable(m, "user", []byte(text))
		if rows != nil && m.list == nil {
			for _, row := range rows {
				if row.at.line < 1 || row.at.column < 1 {
					t.Fatalf("a row is at %v", row.at)
				}
			}
		}
	})
}
