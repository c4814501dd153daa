package e2e

import (
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
)

// docsPrompt is what stands before a command in the documents.
const docsPrompt = "127.0.0.1:6380> "

// sessions returns the redis-cli sessions of a document: what is typed, and what is
// said between it.
func sessions(t *testing.T, file string) (typed, said []string) {
	t.Helper()
	text, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	for i, block := range strings.Split(string(text), "\n```") {
		_, block, _ = strings.Cut(block, "\n")
		if i%2 == 0 || !strings.HasPrefix(block, docsPrompt) {
			continue
		}
		var in, out strings.Builder
		for line := range strings.Lines(block + "\n") {
			if command, ok := strings.CutPrefix(line, docsPrompt); ok {
				in.WriteString(command)
				continue
			}
			out.WriteString(line)
		}
		typed, said = append(typed, in.String()), append(said, out.String())
	}
	return typed, said
}

// docsVary is what differs from one run to the next: times, and what is made up.
var docsVary = regexp.MustCompile(`\d{5,}|"[A-Z2-7]{26}"|\(integer\) \d+\n7# "modules"|"version" => "[^"]*"`)

// What docs/resp.md says that redis-cli says, it says.
func TestRESPDocs(t *testing.T) {
	t.Parallel()
	s := serve(t, "--config", filepath.Join("..", "..", "examples", "resp", "headgate.yaml"), "--resp-listen", "127.0.0.1:0")
	port := respPort(t, s)
	typed, said := sessions(t, filepath.Join("..", "..", "docs", "resp.md"))
	if len(typed) < 4 {
		t.Fatalf("the document has %d sessions", len(typed))
	}
	for i := range typed {
		got := redisCLI(t, port, typed[i])
		if said[i] == "" {
			continue
		}
		// redis-cli puts an empty line behind an error.
		got = regexp.MustCompile(`(?m)^(\(error\).*\n)\n`).ReplaceAllString(got, "$1")
		// A session may end with a command whose answer is left out.
		want := docsVary.ReplaceAllString(said[i], "N")
		if got = docsVary.ReplaceAllString(got, "N"); !strings.HasPrefix(got, want) {
			t.Errorf("of\n%s\nredis-cli says\n%s\nthe document has\n%s", typed[i], got, want)
		}
	}
}
