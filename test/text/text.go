package text

import (
	"bytes"
	"fmt"
	"io/fs"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
)

// rule is one kind of text that must not be there.
type rule struct {
	pattern *regexp.Regexp
	// parts are texts of which each match has one. Few lines have any, and to look for a part
	// takes a hundredth of the time that the pattern takes.
	parts  []string
	reason string
	// suffixes are the names' ends of the files that it is looked for in; none
	// means every file.
	suffixes []string
	// everywhere includes testdata directories.
	everywhere bool
}

// rules are written so that no pattern matches its own source.
func rules() []rule {
	return []rule{
		{
			pattern:    regexp.MustCompile(`(^|[\s"'=:(` + "`" + `])/(root|Users/\w+|home/\w+|work/(main|shared))(/|$|[\s"'):` + "`" + `])`),
			parts:      []string{"/" + "root", "/" + "Users/", "/" + "home/", "/" + "work/"},
			reason:     "a path of one developer's machine; use one relative to the project",
			everywhere: true,
		},
		{
			pattern:  regexp.MustCompile(`\b(t|b|f|tb)\.(Skip|SkipNow|Skipf)\(`),
			parts:    []string{".Skip"},
			reason:   "a test that skips itself looks like one that passed; let it fail and say what is missing",
			suffixes: []string{".go"},
		},
		{
			pattern:  regexp.MustCompile(`\b(TO[D]O|FIX[M]E|X[X]X)\b`),
			parts:    []string{"TO" + "DO", "FIX" + "ME", "XX" + "X"},
			reason:   "finish it, or leave it out",
			suffixes: []string{".go", ".lua", ".md", ".yml", ".yaml", "Makefile"},
		},
	}
}

// Find returns one line, "file:line: what is wrong", for each place below root
// that breaks a rule. Files are named relative to root, with slashes.
func Find(root fs.FS) ([]string, error) {
	all := rules()
	var found []string
	err := fs.WalkDir(root, ".", func(path string, e fs.DirEntry, err error) error {
		switch {
		case err != nil:
			return err
		case e.Name() == ".git" && !e.IsDir():
			return nil // a worktree of git has a file there, with a path
		case e.IsDir() && (e.Name() == ".git" || e.Name() == "node_modules" || e.Name() == "target" || path == "bin"):
			return fs.SkipDir
		case !e.Type().IsRegular():
			return nil
		}
		content, err := fs.ReadFile(root, path)
		if err != nil {
			return err
		}
		if bytes.IndexByte(content, 0) >= 0 {
			return nil // Not text.
		}
		for _, r := range all {
			if r.covers(path) {
				found = append(found, r.find(path, string(content))...)
			}
		}
		return nil
	})
	if err != nil {
		return nil, fmt.Errorf("text: %w", err)
	}
	return found, nil
}

// covers reports whether the rule is for this file.
func (r *rule) covers(path string) bool {
	if !r.everywhere && slices.Contains(strings.Split(path, "/"), "testdata") {
		return false
	}
	return len(r.suffixes) == 0 || slices.ContainsFunc(r.suffixes, func(suffix string) bool {
		return strings.HasSuffix(filepath.Base(path), suffix)
	})
}

// possible reports whether the rule's pattern may match the text.
func (r *rule) possible(text string) bool {
	return slices.ContainsFunc(r.parts, func(part string) bool { return strings.Contains(text, part) })
}

// find returns the places in one file.
func (r *rule) find(path, content string) []string {
	if !r.possible(content) {
		return nil
	}
	var found []string
	number := 0
	for line := range strings.Lines(content) {
		number++
		if !r.possible(line) {
			continue
		}
		if match := r.pattern.FindString(strings.TrimRight(line, "\r\n")); match != "" {
			found = append(found, fmt.Sprintf("%s:%d: %q: %s", path, number, strings.TrimSpace(match), r.reason))
		}
	}
	return found
}
