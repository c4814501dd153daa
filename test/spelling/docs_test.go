package spelling

import (
	"os"
	"strings"
	"testing"

	"github.com/headgate/headgate/internal/spelling"
)

// The documentation has a table of all servers, and says of each what is true of it. With -update
// it is written.
func TestWhatIsDocumentedOfServers(t *testing.T) {
	t.Parallel()
	const page, from, to = "../../docs/gateway.md", "<!-- servers -->\n", "<!-- /servers -->"
	text, err := os.ReadFile(page)
	if err != nil {
		t.Fatal(err)
	}
	before, rest, begun := strings.Cut(string(text), from)
	table, after, ended := strings.Cut(rest, to)
	if !begun || !ended {
		t.Fatalf("%s has no place for the table", page)
	}
	var b strings.Builder
	b.WriteString("| `behind` | the same as `/login` | allowed |\n|---|---|---|\n")
	row := make(map[string]int) // by what is true of a server
	var names, truths []string
	for _, s := range spelling.Servers() {
		same := ""
		for _, one := range []struct {
			form spelling.Forms
			path string
		}{{spelling.IgnoreCase, "`/LOGIN`"}, {spelling.IgnoreSlash, "`/login/`"}, {spelling.CutExtensions, "`/login.json`"}} {
			if s.Forms&one.form != 0 {
				same = strings.TrimPrefix(same+", "+one.path, ", ")
			}
		}
		allowed := s.Forms &^ (spelling.IgnoreCase | spelling.IgnoreSlash | spelling.CutExtensions)
		truth := same + " | `" + strings.Join(allowed.Words(), "`, `") + "` |\n"
		at, known := row[truth]
		if !known {
			at = len(names)
			row[truth], names, truths = at, append(names, ""), append(truths, truth)
		}
		names[at] = strings.TrimPrefix(names[at]+", `"+s.Name+"` ("+s.Title+")", ", ")
	}
	for i, truth := range truths {
		b.WriteString("| " + names[i] + " | " + truth)
	}
	if *update {
		if err := os.WriteFile(page, []byte(before+from+b.String()+to+after), 0o644); err != nil {
			t.Fatal(err)
		}
	} else if table != b.String() {
		t.Errorf("%s does not say of the servers what is true of them: go test ./spelling -args -update writes it", page)
	}
}
