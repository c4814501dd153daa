package chaos

import (
	"fmt"
	"strings"
	"time"
)

// The table stands between these lines of the document.
const (
	first = "<!-- chaos -->\n"
	last  = "<!-- /chaos -->\n"
)

// Write returns the document with the results in the place of those before, and a
// paragraph on how they were measured above them.
func Write(document, how string, results []Result) (string, error) {
	head, rest, begins := strings.Cut(document, first)
	_, tail, ends := strings.Cut(rest, last)
	if !begins || !ends {
		return "", fmt.Errorf("the document has not the lines %q and %q, in this order", strings.TrimSpace(first), strings.TrimSpace(last))
	}
	return head + first + how + "\n\n" + table(results) + last + tail, nil
}

func table(results []Result) string {
	var b strings.Builder
	b.WriteString("| Topology, server | Fault | Lasted | Failed | of | First answer | Steady | Longest call | Over | At most | Goroutines | Errors |\n" +
		"|---|---|---:|---:|---:|---:|---:|---:|---:|---:|---:|---|\n")
	for i := range results {
		r := &results[i]
		words := strings.Join(r.Words, ", ")
		if words == "" {
			words = "–"
		}
		fmt.Fprintf(&b, "| %s, %s | %s | %s | %d | %d | %s | %s | %s | %d | %d | +%d | %s |\n", r.Topology, r.Kind, r.Fault,
			millis(r.Lasted), r.Failed, r.Requests, millis(r.First), millis(r.Steady), millis(r.Longest), r.Over, r.Gap, r.Goroutines, words)
	}
	return b.String()
}

func millis(d time.Duration) string {
	if d == 0 {
		return "–"
	}
	return fmt.Sprintf("%d ms", d.Round(time.Millisecond).Milliseconds())
}
