package monitoring

import (
	"context"
	"fmt"
	"io"
	"io/fs"
	"maps"
	"net/http"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/headgate/headgate/test/docs"
	"github.com/headgate/headgate/test/imports"
)

// shown is a metric as a program shows it.
type shown struct {
	kind, help string
	// values are those of each label.
	values map[string]map[string]bool
}

var (
	sample = regexp.MustCompile(`^(\w+)(?:\{(.*)\})? `)
	pair   = regexp.MustCompile(`(\w+)="((?:[^"\\]|\\.)*)"`)
)

// read adds the metrics of Headgate in a text to those that are known. A metric that two
// programs show in different ways is an error.
func read(text string, known map[string]*shown) error {
	now := make(map[string]*shown)
	for line := range strings.Lines(text) {
		line = strings.TrimSuffix(line, "\n")
		if rest, ok := strings.CutPrefix(line, "# HELP "); ok {
			name, help, _ := strings.Cut(rest, " ")
			now[name] = &shown{help: help, values: make(map[string]map[string]bool)}
			continue
		}
		if rest, ok := strings.CutPrefix(line, "# TYPE "); ok {
			name, kind, _ := strings.Cut(rest, " ")
			now[name].kind = kind
			continue
		}
		m := sample.FindStringSubmatch(line)
		if m == nil {
			continue
		}
		s := now[familyOf(m[1], func(name string) bool { return now[name] != nil })]
		for _, p := range pair.FindAllStringSubmatch(m[2], -1) {
			if p[1] == "le" {
				continue
			}
			if s.values[p[1]] == nil {
				s.values[p[1]] = make(map[string]bool)
			}
			s.values[p[1]][p[2]] = true
		}
	}
	for name, s := range now {
		if !strings.HasPrefix(name, "headgate_") && !strings.HasPrefix(name, "gen_ai_") {
			continue
		}
		before := known[name]
		if before == nil {
			known[name] = s
			continue
		}
		if before.kind != s.kind || before.help != s.help || !slices.Equal(labelsOf(before), labelsOf(s)) {
			return fmt.Errorf("%s: one program shows it as %s %q with the labels %q, and another as %s %q with %q", name,
				before.kind, before.help, labelsOf(before), s.kind, s.help, labelsOf(s))
		}
		for label, values := range s.values {
			maps.Copy(before.values[label], values)
		}
	}
	return nil
}

// familyOf is the metric that a series belongs to: that of its name, or the histogram whose part
// it is.
func familyOf(series string, known func(string) bool) string {
	for _, end := range []string{"_bucket", "_sum", "_count"} {
		if name, ok := strings.CutSuffix(series, end); ok && !known(series) && known(name) {
			return name
		}
	}
	return series
}

func labelsOf(s *shown) []string { return slices.Sorted(maps.Keys(s.values)) }

// notYet is said of a metric that may be shown after a while.
const notYet = " is listed, and no program shows it"

// differences are what the table and what programs show do not agree on.
func differences(known map[string]*shown) []string {
	var found []string
	open := make(map[string]bool)
	for _, l := range Labels() {
		open[l[0]] = true
	}
	listed := make(map[string]bool)
	for _, g := range Groups() {
		for _, m := range g.Metrics {
			if listed[m.Name] {
				found = append(found, m.Name+" is listed twice")
			}
			listed[m.Name] = true
			s := known[m.Name]
			if s == nil {
				found = append(found, m.Name+notYet)
				continue
			}
			for label := range m.Values {
				if s.values[label] == nil {
					found = append(found, m.Name+" has values for the label "+label+", which it does not show")
				}
			}
			for label, values := range s.values {
				if m.Values[label] == nil && !open[label] {
					found = append(found, m.Name+" has the label "+label+", of which nothing is said")
				}
				for value := range values {
					if m.Values[label] != nil && !slices.Contains(m.Values[label], value) {
						found = append(found, fmt.Sprintf("%s{%s=%q} is a value that is not listed", m.Name, label, value))
					}
				}
			}
		}
	}
	for name := range known {
		if !listed[name] {
			found = append(found, name+" is shown, and not listed")
		}
	}
	slices.Sort(found)
	return found
}

// holdMetrics compares the metrics that programs show with the table, and the reference page
// with both. Programs that have just begun show more after a while.
func holdMetrics(t *testing.T, client *http.Client, addresses []string) {
	t.Helper()
	known := make(map[string]*shown)
	for end := time.Now().Add(within); ; time.Sleep(100 * time.Millisecond) {
		for _, address := range addresses {
			text, err := get(t.Context(), client, address+"/metrics")
			if err == nil {
				err = read(text, known)
			}
			if err != nil {
				t.Fatal(err)
			}
		}
		found := differences(known)
		if len(found) == 0 {
			break
		}
		if time.Now().After(end) || slices.ContainsFunc(found, func(f string) bool { return !strings.HasSuffix(f, notYet) }) {
			t.Fatalf("test/monitoring/metrics.go and what programs show differ:\n%s", strings.Join(found, "\n"))
		}
	}
	path := filepath.Join("..", "..", "docs", "reference", "metrics.md")
	want := metricsPage(known)
	if *write {
		if err := os.WriteFile(path, []byte(want), 0o644); err != nil { //nolint:gosec // Everybody may read it.
			t.Fatal(err)
		}
		return
	}
	if got, err := os.ReadFile(path); err != nil || string(got) != want {
		t.Errorf("%s is not what it would be if it were written now (%v): make reference", path, err)
	}
}

func get(ctx context.Context, client *http.Client, address string) (string, error) {
	request, err := http.NewRequestWithContext(ctx, http.MethodGet, address, http.NoBody)
	if err != nil {
		return "", err
	}
	response, err := client.Do(request)
	if err != nil {
		return "", err
	}
	defer response.Body.Close()
	text, err := io.ReadAll(response.Body)
	return string(text), err
}

// metricsPage is docs/reference/metrics.md.
func metricsPage(known map[string]*shown) string {
	var b strings.Builder
	b.WriteString(`# Metrics

<!-- Written by ` + "`make reference`" + ` from what real servers show, and test/monitoring/metrics.go. -->

All metrics of Headgate, at ` + "`/metrics`" + ` of a server or where a Go program registers them, for
Prometheus. [Operations](../operations.md#metrics) has queries worth a look, and the
[runbook](../runbook.md) says what to do when one of them is high. The end of a name is its unit:
seconds, bytes or units; without one it counts. No label ever holds a key. When a rule, a limit or an
entry of a list leaves the policy, its series end. [Labels](#labels) says what labels hold, if the
text beside a metric does not.

`)
	shared := sharedValues()
	for _, g := range Groups() {
		fmt.Fprintf(&b, "## %s\n\n", g.Title)
		if g.About != "" {
			fmt.Fprintf(&b, "%s\n\n", docs.Wrapped(g.About, 100))
		}
		for _, m := range g.Metrics {
			s := known[m.Name]
			help := strings.TrimSpace(s.help + " " + m.More)
			var labels []string
			for _, label := range labelsOf(s) {
				text, values := "`"+label+"`", m.Values[label]
				if values != nil && !slices.Contains(shared[label], strings.Join(values, ", ")) && !explains(help, values) {
					text += " (" + strings.Join(values, ", ") + ")"
				}
				labels = append(labels, text)
			}
			text := "`" + m.Name + "`, " + s.kind
			if labels != nil {
				text += " by " + strings.Join(labels, ", ")
			}
			fmt.Fprintf(&b, "- %s\n", strings.ReplaceAll(docs.Wrapped(text+": "+help, 98), "\n", "\n  "))
		}
		b.WriteString("\n")
	}
	b.WriteString("## Labels\n\n")
	for _, l := range Labels() {
		fmt.Fprintf(&b, "- `%s`: %s\n", l[0], l[1])
	}
	for _, label := range slices.Sorted(maps.Keys(shared)) {
		fmt.Fprintf(&b, "- %s\n", strings.ReplaceAll(docs.Wrapped("`"+label+"`: "+strings.Join(shared[label], "; or "), 98), "\n", "\n  "))
	}
	return b.String()
}

// sharedValues are the values of labels that several metrics have, by label.
func sharedValues() map[string][]string {
	shared, seen := make(map[string][]string), make(map[string]bool)
	for _, g := range Groups() {
		for _, m := range g.Metrics {
			for label, values := range m.Values {
				text := strings.Join(values, ", ")
				if key := label + ": " + text; !seen[key] {
					seen[key] = true
				} else if !slices.Contains(shared[label], text) {
					shared[label] = append(shared[label], text)
				}
			}
		}
	}
	for _, texts := range shared {
		slices.Sort(texts)
	}
	return shared
}

// explains reports whether a text names all values.
func explains(text string, values []string) bool {
	return !slices.ContainsFunc(values, func(v string) bool {
		return !regexp.MustCompile(`(^|[^\w-])` + regexp.QuoteMeta(v) + `($|[^\w-])`).MatchString(text)
	})
}

// TestNamesAreListed: whatever names a metric means one of the table: the code, the alerts, the
// dashboards and the documentation.
func TestNamesAreListed(t *testing.T) {
	listed := make(map[string]bool)
	for _, g := range Groups() {
		for _, m := range g.Metrics {
			listed[m.Name] = true
		}
	}
	is := func(name string) bool { return listed[name] }
	name := regexp.MustCompile(`\bheadgate_[a-z0-9_]+`)
	check := func(where, text string) {
		for _, found := range name.FindAllString(text, -1) {
			if !is(familyOf(found, is)) {
				t.Errorf("%s names %s, which is not in the table of metrics", where, found)
			}
		}
	}
	// A page, and a literal in the code, may name the beginning of several.
	begins := func(found string) bool {
		for name := range listed {
			if name == found || strings.HasPrefix(name, strings.TrimSuffix(found, "_")+"_") {
				return true
			}
		}
		return false
	}
	// What Python's and PostgreSQL's names are like, and the packages'.
	others := []string{"headgate_pb2", "headgate_pb2_grpc", "headgate_due", "headgate_0"}
	for _, r := range Recordings() {
		check("the recording "+r.Name, r.Expr)
	}
	for _, a := range Alerts() {
		check("the alert "+a.Name, a.Expr)
	}
	for _, d := range Dashboards() {
		for _, row := range d.Rows {
			for _, p := range row.Panels {
				for _, q := range p.Queries {
					check("the panel "+p.Title, q.Expr)
				}
			}
		}
	}
	root, _, err := imports.Workspace(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	literal, word := regexp.MustCompile(`"(headgate_[a-z0-9_]+)"`), regexp.MustCompile(`\b(headgate_[a-z0-9_]+)`)
	err = fs.WalkDir(os.DirFS(root), ".", func(path string, e fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		if e.IsDir() && slices.Contains([]string{".git", "bin", "test", "bench", "node_modules"}, path) {
			return fs.SkipDir
		}
		code := strings.HasSuffix(path, ".go") && !strings.HasSuffix(path, "_test.go")
		if !code && !strings.HasSuffix(path, ".md") {
			return nil
		}
		text, err := os.ReadFile(filepath.Join(root, path))
		if err != nil {
			return err
		}
		pattern := literal
		if !code {
			pattern = word
		}
		for _, found := range pattern.FindAllStringSubmatch(string(text), -1) {
			if !begins(familyOf(found[1], is)) && !slices.Contains(others, found[1]) {
				t.Errorf("%s names %s, which is not in the table of metrics", path, found[1])
			}
		}
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
}
