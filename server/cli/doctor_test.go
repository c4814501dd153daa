package cli

import (
	"bytes"
	"encoding/json"
	"fmt"
	"strings"
	"testing"

	"github.com/headgate/headgate/server/app"
)

// TestExaminationOfManyRules: people are shown the rules with the most memory, and how
// many there are besides.
func TestExaminationOfManyRules(t *testing.T) {
	const rules = 10_000
	memory := make([]map[string]any, rules)
	for i := range memory {
		memory[i] = map[string]any{"rule": fmt.Sprintf("rule%d", i), "keys": 3, "bytes_per_key": 100}
	}
	data, err := json.Marshal(map[string]any{"store": "a store", "sampled_keys": 3 * rules, "memory": memory})
	if err != nil {
		t.Fatal(err)
	}
	e := new(app.Examination)
	if err := json.Unmarshal(data, e); err != nil {
		t.Fatal(err)
	}
	var text bytes.Buffer
	writeExamination(&text, e)
	if n := strings.Count(text.String(), "\n"); n > shownRules+10 {
		t.Errorf("%d lines for %d rules", n, rules)
	}
	if want := fmt.Sprintf("%d rules more, with %d keys", rules-shownRules, 3*(rules-shownRules)); !strings.Contains(text.String(), want) || !strings.Contains(text.String(), "rule0\n") {
		t.Errorf("want rule0 and %q in:\n%s", want, &text)
	}
	text.Reset()
	e.Memory = e.Memory[:shownRules]
	if writeExamination(&text, e); strings.Contains(text.String(), "more") {
		t.Errorf("nothing is left out of:\n%s", &text)
	}
}
