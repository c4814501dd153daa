package httpapi

import (
	"os"
	"regexp"
	"strings"
	"testing"
)

// TestDocs holds the JSON in docs/http-api.md against the schemas, and its
// tables against the document.
func TestDocs(t *testing.T) {
	text, err := os.ReadFile("../../docs/http-api.md")
	if err != nil {
		t.Fatal(err)
	}
	d := newDocument(t)
	blocks := regexp.MustCompile("(?s)```json\n(.*?)```").FindAllSubmatch(text, -1)
	if len(blocks) < 8 {
		t.Errorf("found %d blocks of JSON, there should be more", len(blocks))
	}
	for _, block := range blocks {
		schema := "Verdict"
		switch json := string(block[1]); {
		case strings.Contains(json, `"violated-policies"`):
			schema = "Denial"
		case strings.Contains(json, `"newly_denied"`):
			schema = "Candidate"
		case strings.Contains(json, `"mistakes"`):
			schema = "Kept"
		case strings.Contains(json, `"result"`):
			schema = "Reloaded"
		case strings.Contains(json, `"title"`):
			schema = "Problem"
		case strings.Contains(json, `"in_use"`):
			schema = "Acquired"
		case strings.Contains(json, `"allowed"`):
		case strings.Contains(json, `"at"`):
			schema = "Refund"
		default:
			schema = "TakeRequest"
		}
		if err := d.validate("/components/schemas/"+schema, block[1]); err != nil {
			t.Errorf("%s\n%v", block[1], err)
		}
	}
	paths, _ := d.at("paths")
	for _, path := range keys(paths) {
		if !strings.Contains(string(text), path) {
			t.Errorf("the page does not mention %s", path)
		}
	}
}
