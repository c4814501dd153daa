package docs

import (
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"github.com/headgate/headgate/policy/lint"
	"github.com/headgate/headgate/test/imports"
)

// text is the text of a page, by its path in docs.
func text(t *testing.T, path string) string {
	t.Helper()
	root, _, err := imports.Workspace(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	content, err := os.ReadFile(filepath.Join(root, "docs", filepath.FromSlash(path)))
	if err != nil {
		t.Fatal(err)
	}
	return string(content)
}

// Each field of a policy file and of a gateway file is in a page that explains them. The gateway's
// page leaves conditions to that of rules, and rules leave prices to that of language models.
func TestFieldsAreExplained(t *testing.T) {
	field := regexp.MustCompile("(?m)^- `(\\w+)`")
	rules := text(t, "rules.md") + text(t, "language-models.md")
	for reference, explained := range map[string]string{"policy-fields.md": rules, "gateway-fields.md": rules + text(t, "gateway.md")} {
		all := field.FindAllStringSubmatch(text(t, "reference/"+reference), -1)
		if len(all) < 30 {
			t.Fatalf("%s has %d fields, there should be more", reference, len(all))
		}
		for _, f := range all {
			if !regexp.MustCompile(`\b` + f[1] + `\b`).MatchString(explained) {
				t.Errorf("%s: no page explains the field %s", reference, f[1])
			}
		}
	}
}

// The link that lint prints beside each code leads to a heading of the page.
func TestLinksOfLint(t *testing.T) {
	page := text(t, "reference/lint.md")
	for _, c := range lint.Codes() {
		file, heading, _ := strings.Cut(lint.URL(c.Code), "#")
		if !strings.HasSuffix(file, "/docs/reference/lint.md") || heading != anchor(c.Code) || !strings.Contains(page, "\n## "+c.Code+"\n") {
			t.Errorf("%s leads to no heading", lint.URL(c.Code))
		}
	}
}

// Each command and flag that a page shows is one that there is.
func TestCommandsThatPagesShow(t *testing.T) {
	flags := make(map[string]map[string]bool) // by command
	flag := regexp.MustCompile(`--[a-z][a-z0-9-]*`)
	page, groups, _ := strings.Cut(text(t, "reference/commands.md"), "\n## Flags: ")
	common := make(map[string]string) // the sections of flags that commands share, by name
	for section := range strings.SplitSeq(groups, "\n## Flags: ") {
		name, rest, _ := strings.Cut(section, "\n")
		common["["+name+"]"] = rest
	}
	for section := range strings.SplitSeq(page, "\n## headgate ") {
		command, rest, _ := strings.Cut(section, "\n")
		flags[command] = map[string]bool{"--help": true}
		for group, its := range common {
			if strings.Contains(rest, group) {
				rest += its
			}
		}
		for _, name := range flag.FindAllString(rest, -1) {
			flags[command][name] = true
		}
	}
	if len(flags) < 15 {
		t.Fatalf("there are %d commands, there should be more", len(flags))
	}
	root, _, err := imports.Workspace(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	call := regexp.MustCompile("headgate ((?:permit |convert )?[a-z]+)((?: +[^`|;&>\n]+)?)")
	shown := 0
	for _, pattern := range []string{"*.md", "docs/*.md"} {
		files, err := filepath.Glob(filepath.Join(root, pattern))
		if err != nil {
			t.Fatal(err)
		}
		for _, file := range files {
			content, err := os.ReadFile(file)
			if err != nil {
				t.Fatal(err)
			}
			for _, m := range call.FindAllStringSubmatch(strings.ReplaceAll(string(content), "\\\n", " "), -1) {
				known, is := flags[m[1]]
				if !is {
					continue // A sentence about Headgate, such as "headgate is".
				}
				shown++
				args, _, _ := strings.Cut(m[2], " -- ")
				for _, name := range flag.FindAllString(args, -1) {
					if !known[name] {
						t.Errorf("%s shows headgate %s %s, which there is not", filepath.Base(file), m[1], name)
					}
				}
			}
		}
	}
	if shown < 100 {
		t.Errorf("pages show %d commands, there should be more", shown)
	}
}
