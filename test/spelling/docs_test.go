package spelling

import (
	"os"
	"strings"
	"testing"

	"github.com/headgate/headgate/internal/spelling"
	"github.com/headgate/headgate/internal/spelling/spellingtest"
)

// The documentation says of each server what is true of it.
func TestWhatIsDocumentedOfServers(t *testing.T) {
	t.Parallel()
	text, err := os.ReadFile("../../docs/gateway.md")
	if err != nil {
		t.Fatal(err)
	}
	_, table, _ := strings.Cut(string(text), "\n| server | `encoded_slashes` |")
	table, _, _ = strings.Cut(table, "\n\n")
	all, _, err := spellingtest.Servers()
	if err != nil {
		t.Fatal(err)
	}
	called := map[string]string{
		"nginx": "nginx", "tomcat": "Tomcat 10.1", "jetty": "Jetty 12", "spring": "Spring 6", "express4": "Express 4 and 5", "express5": "Express 4 and 5",
		"node": "`new URL()` in Node.js", "starlette": "Starlette", "rails": "the router of Rails 6.1", "php": "`parse_url` and `rawurldecode` in PHP", "go": "Go's `ServeMux`",
	}
	for _, s := range all {
		want := ""
		for _, f := range []spelling.Forms{spelling.EncodedSlashes, spelling.DoubleEncoding, spelling.LeadingSlashes} {
			want += map[bool]string{true: " yes |", false: " no |"}[s.Forms&f != 0]
		}
		want += map[bool]string{true: " `cut_parameters` |", false: " `kept_parameters` |"}[s.Forms&spelling.CutParameters != 0]
		found := false
		for line := range strings.Lines(table) {
			name, rest, _ := strings.Cut(strings.TrimPrefix(line, "| "), " |")
			found = found || called[s.Name] != "" && strings.Contains(name, called[s.Name]) && strings.TrimSpace(rest) == strings.TrimSpace(want)
		}
		if !found {
			t.Errorf("%s is not documented with%s", s.Name, want)
		}
	}
}
