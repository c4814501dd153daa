package storetest_test

import (
	"os"
	"strings"
	"testing"

	"github.com/headgate/headgate/store/storetest"
)

// TestLiveChangesDocs: the page has the table that the stores are held against, and
// no other rows.
func TestLiveChangesDocs(t *testing.T) {
	page, err := os.ReadFile("../../docs/changing-limits.md")
	if err != nil {
		t.Fatal(err)
	}
	var rows []string
	for line := range strings.Lines(string(page)) {
		if strings.HasPrefix(line, "| ") && strings.Contains(line, "`<br>`") || strings.Contains(line, "` | `") {
			rows = append(rows, strings.TrimSpace(line))
		}
	}
	want := storetest.LiveChanges()
	for i, c := range want {
		if i >= len(rows) || rows[i] != c.Row() {
			t.Fatalf("row %d of the page must be\n%s", i+1, c.Row())
		}
	}
	if len(rows) != len(want) {
		t.Errorf("the page has %d rows, want %d", len(rows), len(want))
	}
}
