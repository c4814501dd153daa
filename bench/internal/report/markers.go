package report

import (
	"errors"
	"fmt"
	"os"
	"strings"
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
		document = document[:at+len(s.begin())] + "\n" + strings.TrimSpace(s.Body) + "\n" + document[stop:]
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
