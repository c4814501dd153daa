package text

import (
	"net/url"
	"os"
	"path"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"github.com/headgate/headgate/test/imports"
)

// link finds the targets of Markdown links and images.
var link = regexp.MustCompile(`\]\(([^()\s]+)\)`)

// prose is a page without its blocks of code.
func prose(page string) string {
	var b strings.Builder
	code := false
	for line := range strings.Lines(page) {
		if strings.HasPrefix(strings.TrimSpace(line), "```") {
			code = !code
		} else if !code {
			b.WriteString(line)
		}
	}
	return b.String()
}

// pages are the Markdown files of the top directory, of docs and of docs/reference, without their
// blocks of code, by their paths from the top.
func pages(t *testing.T) (string, map[string]string) {
	t.Helper()
	root, _, err := imports.Workspace(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	found := make(map[string]string)
	for _, pattern := range []string{"*.md", "docs/*.md", "docs/reference/*.md"} {
		files, err := filepath.Glob(filepath.Join(root, pattern))
		if err != nil {
			t.Fatal(err)
		}
		for _, file := range files {
			content, err := os.ReadFile(file)
			if err != nil {
				t.Fatal(err)
			}
			found[path.Join(path.Dir(pattern), filepath.Base(file))] = prose(string(content))
		}
	}
	return root, found
}

// anchors are the names that GitHub gives to the headings of a page.
func anchors(page string) map[string]bool {
	found := make(map[string]bool)
	for line := range strings.Lines(page) {
		if heading := strings.TrimLeft(line, "#"); heading != line && strings.HasPrefix(heading, " ") {
			found[anchor(heading)] = true
		}
	}
	return found
}

var (
	linkInHeading = regexp.MustCompile(`\[([^]]*)\]\([^)]*\)`)
	notInAnchor   = regexp.MustCompile(`[^\p{L}\p{N}\p{M}_\- ]`)
)

// anchor is the name of one heading.
func anchor(heading string) string {
	heading = linkInHeading.ReplaceAllString(strings.TrimSpace(heading), "$1")
	heading = notInAnchor.ReplaceAllString(strings.ToLower(heading), "")
	return strings.ReplaceAll(heading, " ", "-")
}

// Each link leads to a file and a heading that are there.
func TestLinks(t *testing.T) {
	root, all := pages(t)
	headings := make(map[string]map[string]bool)
	for name, content := range all {
		headings[name] = anchors(content)
	}
	for name, content := range all {
		for _, m := range link.FindAllStringSubmatch(content, -1) {
			u, err := url.Parse(m[1])
			if err != nil {
				t.Errorf("%s: %s: %v", name, m[1], err)
				continue
			}
			if u.Scheme != "" {
				continue
			}
			target := name
			if u.Path != "" {
				target = path.Join(path.Dir(name), u.Path)
			}
			if _, err := os.Stat(filepath.Join(root, filepath.FromSlash(target))); err != nil {
				t.Errorf("%s links to %s, which is not there", name, m[1])
			}
			if has, ok := headings[target]; ok && u.Fragment != "" && !has[u.Fragment] {
				t.Errorf("%s links to %s, but %s has no such heading", name, m[1], target)
			}
		}
	}
}

// A reader who begins at the index finds every page.
func TestIndex(t *testing.T) {
	_, all := pages(t)
	const index = "docs/README.md"
	linked := make(map[string]bool)
	for _, m := range link.FindAllStringSubmatch(all[index], -1) {
		file, _, _ := strings.Cut(m[1], "#")
		linked[path.Join("docs", file)] = true
	}
	for name := range all {
		if strings.HasPrefix(name, "docs/") && name != index && !linked[name] {
			t.Errorf("%s does not link to %s", index, name)
		}
	}
}

func TestAnchor(t *testing.T) {
	for heading, want := range map[string]string{
		" `soft`, `mode` and `enforce`\n": "soft-mode-and-enforce",
		" CL.THROTTLE":                    "clthrottle",
		" A [link](x.md): and more":       "a-link-and-more",
	} {
		if got := anchor(heading); got != want {
			t.Errorf("%q has the anchor %q, want %q", heading, got, want)
		}
	}
}

// README.md keeps to what a stranger reads before he decides, tables and code included.
func TestReadmeIsShort(t *testing.T) {
	root, _ := pages(t)
	text, err := os.ReadFile(filepath.Join(root, "README.md"))
	if err != nil {
		t.Fatal(err)
	}
	const most = 800
	if n := len(strings.Fields(string(text))); n > most {
		t.Errorf("README.md has %d words, may have %d", n, most)
	}
}
