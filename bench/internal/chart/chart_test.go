package chart

import (
	"bytes"
	"encoding/xml"
	"errors"
	"io"
	"os"
	"path/filepath"
	"strings"
	"testing"
)

// TestWritten: the charts in docs/benchmarks are those of the tables in docs/benchmarks.md.
func TestWritten(t *testing.T) {
	docs := filepath.Join("..", "..", "..", "docs")
	page, err := os.ReadFile(filepath.Join(docs, "benchmarks.md"))
	if err != nil {
		t.Fatal(err)
	}
	files, err := Of(string(page))
	if err != nil {
		t.Fatal(err)
	}
	for name, want := range files {
		if got, err := os.ReadFile(filepath.Join(docs, "benchmarks", name)); err != nil || !bytes.Equal(got, want) {
			t.Errorf("docs/benchmarks/%s is not that of the tables (%v): make bench ARGS='-only charts'", name, err)
		}
		for d := xml.NewDecoder(bytes.NewReader(want)); ; {
			if _, err := d.Token(); errors.Is(err, io.EOF) {
				break
			} else if err != nil {
				t.Fatalf("%s: %v", name, err)
			}
		}
	}
	found, err := filepath.Glob(filepath.Join(docs, "benchmarks", "*"))
	if err != nil || len(found) != len(files) {
		t.Errorf("docs/benchmarks has %q, want %d charts (%v)", found, len(files), err)
	}
}

const small = `<!-- bench:x begin -->
|            | speed  | of echo |
|------------|-------:|--------:|
| Headgate   | 20 056 |  1.13 × |
| a <peer>   | 10 028 |  1.00 × |
| (harness)  |        |         |

| other |
|-------|
<!-- bench:x end -->`

func TestTables(t *testing.T) {
	all, err := tables(small, "x")
	if err != nil || len(all) != 2 {
		t.Fatalf("got %v, %v", all, err)
	}
	speed, err := all[0].bars("speed", number)
	if err != nil || len(speed) != 2 || speed[0] != (bar{"Headgate", 20056}) {
		t.Errorf("got %v, %v", speed, err)
	}
	if ratios, err := all[0].bars("of echo", number); err != nil || ratios[0].value != 1.13 {
		t.Errorf("got %v, %v", ratios, err)
	}
	if _, err := all[0].bars("size", number); err == nil {
		t.Error("a column that is not there")
	}
	if _, err := tables(small, "y"); err == nil {
		t.Error("a section that is not there")
	}
	if v, err := second("94.1 / 1 099.5"); err != nil || v != 1099.5 {
		t.Errorf("got %v, %v", v, err)
	}
	d := drawing{"speeds", whole, []group{{"all", speed}}}
	text := string(d.svg())
	for _, want := range []string{"<desc id=\"d\">All: Headgate 20,056; a &lt;peer&gt; 10,028.</desc>", `class="ours" x="340" y="64" width="290.0"`, `class="bar" x="340" y="86" width="145.0"`} {
		if !strings.Contains(text, want) {
			t.Errorf("%s\nlacks %s", text, want)
		}
	}
}

func TestPanels(t *testing.T) {
	all, err := tables(strings.Replace(small, "| (harness)  |        |         |\n", "", 1), "x")
	if err != nil {
		t.Fatal(err)
	}
	p, err := all[0].panel("It grows", true)
	if err != nil {
		t.Fatal(err)
	}
	text := string(panels("all", []panel{p, p, p}))
	for _, want := range []string{
		"<desc id=\"d\">It grows, Headgate: speed: 20,056; of echo: 1.1.", `class="curve ours" points="58.0,30.0`, `class="curve" points="58.0,85.0`,
		`translate(372,34)`, `translate(0,254)`, "a &lt;peer&gt;",
	} {
		if !strings.Contains(text, want) {
			t.Errorf("%s\nlacks %s", text, want)
		}
	}
	if _, err := (&table{[]string{"", "1"}, [][]string{{"Headgate", "much"}}}).panel("", false); err == nil {
		t.Error("a cell that is no number")
	}
}
