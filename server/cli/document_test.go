package cli

import (
	"os"
	"regexp"
	"strings"
	"testing"
)

// TestDocumentPage: the page about the command shows what the command writes.
func TestDocumentPage(t *testing.T) {
	page, err := os.ReadFile("../../docs/document.md")
	if err != nil {
		t.Fatal(err)
	}
	shown := regexp.MustCompile("(?s)```markdown\n(.*?)```").FindSubmatch(page)
	if shown == nil {
		t.Fatal("the page shows no output")
	}
	code, stdout, stderr := command(t, "document", "../../examples/rules/tariff.yml")
	if code != CodeOK || !strings.HasPrefix(stdout, string(shown[1])) {
		t.Errorf("the command writes (%d)\n%s%s, and the page shows\n%s", code, stdout, stderr, shown[1])
	}
}
