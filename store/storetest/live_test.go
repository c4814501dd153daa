package storetest_test

import (
	"os"
	"strings"
	"testing"

	"github.com/headgate/headgate/store/storetest"
)

// TestLiveChangesDocs: each row of the table on the page is one that the stores are held against.
func TestLiveChangesDocs(t *testing.T) {
	page, err := os.ReadFile("../../docs/changing-limits.md")
	if err != nil {
		t.Fatal(err)
	}
	tested := make(map[string]bool)
	for _, c := range storetest.LiveChanges() {
		tested[c.Row()] = true
	}
	rows := 0
	for line := range strings.Lines(string(page)) {
		row := strings.TrimSpace(line)
		if !strings.HasPrefix(row, "| ") || !strings.Contains(row, "` | `") {
			continue
		}
		if rows++; !tested[row] {
			t.Errorf("no store is held against the row\n%s", row)
		}
	}
	if rows < 12 {
		t.Errorf("the page has %d rows, want 12 or more", rows)
	}
}
