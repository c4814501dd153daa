package report

import (
	"fmt"
	"math"
	"os"
	"path/filepath"
	"strings"
	"testing"
)

func TestMedian(t *testing.T) {
	for _, c := range []struct {
		values []float64
		want   float64
	}{
		{nil, math.NaN()},
		{[]float64{7}, 7},
		{[]float64{9, 1}, 5},
		{[]float64{5, 1, 9}, 5},
		{[]float64{4, 100, 2, 3}, 3.5},
	} {
		if got := Median(c.values); !same(got, c.want) {
			t.Errorf("Median(%v) = %v, want %v", c.values, got, c.want)
		}
	}
	values := []float64{3, 1, 2}
	Median(values)
	if values[0] != 3 || values[1] != 1 {
		t.Errorf("Median has reordered its argument: %v", values)
	}
	if got := MedianOf([]string{"a", "bbb", "cc"}, func(s string) float64 { return float64(len(s)) }); got != 2 {
		t.Errorf("MedianOf = %v, want 2", got)
	}
}

func TestQuantile(t *testing.T) {
	values := []float64{4, 1, math.NaN(), 3, 2}
	for _, c := range []struct{ q, want float64 }{{0, 1}, {0.25, 1}, {0.26, 2}, {0.5, 2}, {0.75, 3}, {1, 4}} {
		if got := Quantile(values, c.q); got != c.want {
			t.Errorf("Quantile(%v, %v) = %v, want %v", values, c.q, got, c.want)
		}
	}
	if got := Quantile([]float64{math.NaN()}, 0.5); !math.IsNaN(got) {
		t.Errorf("Quantile of nothing = %v, want NaN", got)
	}
}

func TestRatioSpreadAndLeast(t *testing.T) {
	nan := math.NaN()
	for _, c := range []struct{ a, b, want float64 }{{6, 3, 2}, {1, 0, nan}, {nan, 1, nan}, {1, nan, nan}, {0, 5, 0}} {
		if got := Ratio(c.a, c.b); !same(got, c.want) {
			t.Errorf("Ratio(%v, %v) = %v, want %v", c.a, c.b, got, c.want)
		}
	}
	for _, c := range []struct {
		values []float64
		want   float64
	}{{nil, nan}, {[]float64{2, 3, 4}, 2}, {[]float64{0, 4}, nan}} {
		if got := Spread(c.values); !same(got, c.want) {
			t.Errorf("Spread(%v) = %v, want %v", c.values, got, c.want)
		}
	}
	itself := func(f float64) float64 { return f }
	if got := Least([]float64{nan, 4, 2, nan, 3}, itself); got != 2 {
		t.Errorf("Least = %v, want 2", got)
	}
	if got := Least(nil, itself); !math.IsNaN(got) {
		t.Errorf("Least of nothing = %v, want NaN", got)
	}
}

func TestNumber(t *testing.T) {
	for f, want := range map[float64]string{
		0: "0", 0.0001: "0.000", 0.0567: "0.057", 0.5: "0.50", 1.234: "1.23", 9.994: "9.99", 9.996: "10.0",
		12.34: "12.3", 99.94: "99.9", 99.96: "100", 1234: "1,234", 1234567: "1,234,567",
		-1500: "-1,500", math.Inf(1): "–",
	} {
		if got := Number(f); got != want {
			t.Errorf("Number(%v) = %q, want %q", f, got, want)
		}
	}
	if got := Number(math.NaN()); got != "–" {
		t.Errorf("Number(NaN) = %q", got)
	}
	if got := Times(2.5); got != "2.50 ×" {
		t.Errorf("Times(2.5) = %q", got)
	}
	if got := Percent(0.125); got != "12.5 %" {
		t.Errorf("Percent(0.125) = %q", got)
	}
}

func TestTable(t *testing.T) {
	table := Table{Columns: []string{"who", "ns"}}
	table.Add("a|b", "7")
	table.Add("long name")
	want := "" +
		"| who       |  ns |\n" +
		"|-----------|----:|\n" +
		"| a\\|b      |   7 |\n" +
		"| long name |     |\n"
	if got := table.String(); got != want {
		t.Errorf("table is\n%swant\n%s", got, want)
	}
}

func TestBars(t *testing.T) {
	for _, c := range []struct {
		bar Bar
		met bool
	}{
		{Bar{Bound: 2.5, Got: 2.5}, true},
		{Bar{Bound: 2.5, Got: 2.49}, false},
		{Bar{Bound: 1.5, AtMost: true, Got: 1.5}, true},
		{Bar{Bound: 1.5, AtMost: true, Got: 1.51}, false},
		{Bar{Bound: 0, Got: math.NaN()}, false},
		{Bar{Bound: 9, AtMost: true, Got: math.NaN()}, false},
	} {
		if got := c.bar.Met(); got != c.met {
			t.Errorf("%+v: Met is %v, want %v", c.bar, got, c.met)
		}
	}
	met, unknown, high := Bar{What: "x", Bound: 1, AtMost: true, Got: 0.5}, Bar{What: "y", Bound: 2, Got: math.NaN()}, Bar{What: "z", Bound: 1, AtMost: true, Got: 3}
	for _, c := range []struct {
		bars []Bar
		want string
	}{
		{[]Bar{met, met}, "All 2 bars are met.\n"},
		{[]Bar{unknown, met, high}, "1 of 3 bars are met, and not these:\n\n- y: not measured, must be ≥ 2.00\n- z: 3.00, must be ≤ 1.00\n"},
	} {
		if got := Bars(c.bars); got != c.want {
			t.Errorf("got %q, want %q", got, c.want)
		}
	}
}

const page = `# Title
by hand
<!-- bench:a begin -->
old
<!-- bench:a end -->
between
<!-- bench:b begin --><!-- bench:b end -->
after
`

func TestReplace(t *testing.T) {
	got, err := Replace(page, Section{"b", "new b\n"}, Section{"a", "\nnew a"})
	if err != nil {
		t.Fatal(err)
	}
	want := `# Title
by hand
<!-- bench:a begin -->
new a
<!-- bench:a end -->
between
<!-- bench:b begin -->
new b
<!-- bench:b end -->
after
`
	if got != want {
		t.Errorf("got\n%swant\n%s", got, want)
	}
	again, err := Replace(got, Section{"a", "new a"}, Section{"b", "new b"})
	if err != nil || again != got {
		t.Errorf("a second time the document changed (error %v):\n%s", err, again)
	}
}

func TestReplaceNamesEveryMissingMarker(t *testing.T) {
	for name, doc := range map[string]string{
		"absent":   "nothing",
		"twice":    page + page,
		"reversed": "<!-- bench:a end --><!-- bench:a begin --><!-- bench:b end --><!-- bench:b begin -->",
	} {
		_, err := Replace(doc, Section{"a", "x"}, Section{"b", "y"})
		if err == nil || !strings.Contains(err.Error(), `"a"`) || !strings.Contains(err.Error(), `"b"`) {
			t.Errorf("%s: the error is %v, want both sections named", name, err)
		}
	}
}

func TestReplaceRefusesAMarkerInABody(t *testing.T) {
	_, err := Replace(page, Section{"a", "see <!-- bench:b begin -->"})
	if err == nil || !strings.Contains(err.Error(), `"a"`) {
		t.Errorf("the error is %v, want the section named", err)
	}
}

func TestReplaceFile(t *testing.T) {
	dir := t.TempDir()
	path := filepath.Join(dir, "doc.md")
	if err := os.WriteFile(path, []byte(page), 0o640); err != nil {
		t.Fatal(err)
	}
	if err := ReplaceFile(path, Section{"a", "fresh"}); err != nil {
		t.Fatal(err)
	}
	got, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	if !strings.Contains(string(got), "begin -->\nfresh\n<!--") || !strings.Contains(string(got), "between") {
		t.Errorf("the file holds\n%s", got)
	}
	if err := ReplaceFile(path, Section{"absent", "x"}); err == nil || !strings.Contains(err.Error(), path) {
		t.Errorf("the error is %v, want the file named", err)
	}
	files, err := os.ReadDir(dir)
	if err != nil || len(files) != 1 {
		t.Errorf("the directory holds %v (error %v), want the document only", files, err)
	}
}

func FuzzReplace(f *testing.F) {
	f.Add(page, "new")
	f.Add("<!-- bench:a begin --><!-- bench:a end -->", "x <!-- bench:a end -->")
	f.Fuzz(func(t *testing.T, document, body string) {
		got, err := Replace(document, Section{"a", body})
		if err != nil {
			return
		}
		before, _, _ := strings.Cut(document, "<!-- bench:a begin -->")
		_, after, _ := strings.Cut(document, "<!-- bench:a end -->")
		if !strings.HasPrefix(got, before) || !strings.HasSuffix(got, after) {
			t.Errorf("the text around the markers changed: %q became %q", document, got)
		}
		if _, err := Replace(got, Section{"a", ""}); err != nil {
			t.Errorf("the markers are gone from %q: %v", got, err)
		}
	})
}

func ExampleTable() {
	t := Table{Columns: []string{"limiter", "ns"}}
	t.Add("one", Number(Median([]float64{61, 74.3, 60})))
	t.Add("another", Number(1234))
	fmt.Print(t.String())
	// Output:
	// | limiter |    ns |
	// |---------|------:|
	// | one     |  61.0 |
	// | another | 1,234 |
}

func same(a, b float64) bool { return a == b || math.IsNaN(a) && math.IsNaN(b) }

// TestWrap: paragraphs and lists get lines of 100 columns, which say the same in Markdown.
func TestWrap(t *testing.T) {
	t.Parallel()
	long := strings.Repeat("word ", 19) + "end"
	for text, want := range map[string]string{
		"":                              "",
		"short\n\nlines\n":              "short\n\nlines\n",
		"| " + long + " " + long + " |": "| " + long + " " + long + " |",
		long + " µµ\nnext":              long + "\nµµ\nnext",
		long + " µ\nnext":               long + " µ\nnext",
		"- " + long + " more":           "- " + long + "\n  more",
		long + " - more":                long + " -\nmore",
		long + " 10. more":              long + " 10.\nmore",
		long + " 10 more":               long + "\n10 more",
		strings.Repeat("x", 120) + " y": strings.Repeat("x", 120) + "\ny",
	} {
		if got := wrap(text); got != want {
			t.Errorf("%q\nbecomes %q\nwant    %q", text, got, want)
		}
	}
}
