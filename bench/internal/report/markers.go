package report

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
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

// ReplaceFile is [Replace] on a file, which is exchanged as a whole: a reader
// never sees half of it.
func ReplaceFile(path string, sections ...Section) (err error) {
	old, err := os.ReadFile(path)
	if err != nil {
		return fmt.Errorf("report: %w", err)
	}
	document, err := Replace(string(old), sections...)
	if err != nil {
		return fmt.Errorf("report: %s: %w", path, err)
	}
	info, err := os.Stat(path)
	if err != nil {
		return fmt.Errorf("report: %w", err)
	}
	next, err := os.CreateTemp(filepath.Dir(path), filepath.Base(path)+".*")
	if err != nil {
		return fmt.Errorf("report: %w", err)
	}
	defer func() {
		if err != nil {
			err = errors.Join(err, os.Remove(next.Name()))
		}
	}()
	_, err = next.WriteString(document)
	if err = errors.Join(err, next.Chmod(info.Mode().Perm()), next.Close()); err != nil {
		return fmt.Errorf("report: %w", err)
	}
	if err = os.Rename(next.Name(), path); err != nil {
		return fmt.Errorf("report: %w", err)
	}
	return nil
}
