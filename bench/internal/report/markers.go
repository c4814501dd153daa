package report

import (
	"errors"
	"fmt"
	"os"
	"strings"
	"unicode/utf8"
)

// Section is a part of a document that is written by a program: what stands
// between the markers of its name.
type Section struct {
	Name string
	Body string
}

func (s Section) begin() string { return "<!-- bench:" + s.Name + " begin -->" }
func (s Section) end() string   { return "<!-- bench:" + s.Name + " end -->" }

// Replace returns the document with each section's body between its markers.
// Every section needs exactly one pair of markers, in order; all that are
// missing are reported at once.
func Replace(document string, sections ...Section) (string, error) {
	var problems []error
	for _, s := range sections {
		if strings.Contains(s.Body, "<!-- bench:") {
			problems = append(problems, fmt.Errorf("section %q has a marker in its body, which the next run would take for its own", s.Name))
			continue
		}
		begins, ends := strings.Count(document, s.begin()), strings.Count(document, s.end())
		at := strings.Index(document, s.begin())
		stop := strings.Index(document, s.end())
		if begins != 1 || ends != 1 || stop < at {
			problems = append(problems, fmt.Errorf("section %q has %d %s and %d %s, must have one of each, in this order",
				s.Name, begins, s.begin(), ends, s.end()))
			continue
		}
		document = document[:at+len(s.begin())] + "\n" + wrap(strings.TrimSpace(s.Body)) + "\n" + document[stop:]
	}
	if problems != nil {
		return "", errors.Join(problems...)
	}
	return document, nil
}

// ReplaceFile is [Replace] on a file.
func ReplaceFile(path string, sections ...Section) error {
	old, err := os.ReadFile(path)
	if err != nil {
		return fmt.Errorf("report: %w", err)
	}
	document, err := Replace(string(old), sections...)
	if err != nil {
		return fmt.Errorf("report: %s: %w", path, err)
	}
	if err := os.WriteFile(path, []byte(document), 0o600); err != nil { // the mode is that of the old file
		return fmt.Errorf("report: %w", err)
	}
	return nil
}

// columns is the width of a line of text in documents.
const columns = 100

// wrap breaks the lines of paragraphs and lists that are longer than columns. Lines of tables stay
// as they are.
func wrap(text string) string {
	var b strings.Builder
	for line := range strings.Lines(text) {
		if strings.HasPrefix(line, "|") || utf8.RuneCountInString(line) <= columns {
			b.WriteString(line)
			continue
		}
		indent := ""
		if strings.HasPrefix(line, "- ") {
			indent = "  "
		}
		width := 0
		for i, word := range strings.Fields(line) {
			length := utf8.RuneCountInString(word)
			switch {
			case i == 0:
			case width+1+length > columns && !opens(word):
				b.WriteString("\n" + indent)
				width = len(indent)
			default:
				b.WriteByte(' ')
				width++
			}
			b.WriteString(word)
			width += length
		}
		if strings.HasSuffix(line, "\n") {
			b.WriteByte('\n')
		}
	}
	return b.String()
}

// opens reports whether Markdown would take a line that begins with the word for something else than
// the rest of a paragraph: a list, a heading, a quotation, a table or a line.
func opens(word string) bool {
	mark := strings.TrimLeft(word, "0123456789")
	return strings.ContainsAny(word[:1], "-+*#>|=~") || mark == "." || mark == ")"
}
