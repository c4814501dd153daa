package cli

import (
	"errors"
	"fmt"
	"io/fs"
	"strings"

	"github.com/headgate/headgate/config"
	"github.com/headgate/headgate/policy"
	"github.com/headgate/headgate/server/app"
)

// lint is the command that reads policy files.
type lint struct {
	Files   []string `arg:"" name:"file" help:"Policy files."`
	Strict  bool     `help:"Exit with 1 if there are warnings."`
	HashKey string   `help:"Hash key that the servers have; without one, secrets in keys are worth a warning." placeholder:"KEY" env:"HEADGATE_HASH_KEY"`
	JSON    bool     `help:"Print for programs." name:"json"`
}

// Help is the detailed help.
func (lint) Help() string {
	return "A mistake is what a server would not start with. A warning is what is valid and yet unlikely to be meant.\n\n" +
		"Exit codes: 0 no mistakes; 1 warnings, with --strict; 2 mistakes."
}

// report of one file.
type lintedFile struct {
	File     string    `json:"file"`
	Rules    int       `json:"rules"`
	Mistakes []finding `json:"mistakes"`
	Warnings []finding `json:"warnings"`
}

// finding is one mistake or warning. Line and column count from 1 and are 0 if
// it lies in no one place.
type finding struct {
	Line   int    `json:"line"`
	Column int    `json:"column"`
	Code   string `json:"code,omitempty"`
	Rule   string `json:"rule,omitempty"`
	Text   string `json:"text"`
}

// Run reads all files and prints what there is to say.
func (l *lint) Run(c *call) error {
	var mistakes, warnings int
	files := make([]lintedFile, 0, len(l.Files))
	for _, name := range l.Files {
		f := lintFile(name, l.HashKey)
		mistakes, warnings = mistakes+len(f.Mistakes), warnings+len(f.Warnings)
		files = append(files, f)
	}
	if l.JSON {
		if err := printJSON(c.stdout, map[string]any{"files": files}); err != nil {
			return err
		}
	} else {
		for i := range files {
			files[i].print(c)
		}
	}
	switch {
	case mistakes > 0:
		return &failure{code: CodeUsage}
	case warnings > 0 && l.Strict:
		return &failure{code: CodeNo}
	}
	return nil
}

func lintFile(name, hashKey string) lintedFile {
	f := lintedFile{File: name, Mistakes: []finding{}, Warnings: []finding{}}
	set, err := app.LoadPolicy(name, hashKey)
	var wrong *config.Error
	switch {
	case errors.As(err, &wrong):
		for _, m := range wrong.Mistakes {
			f.Mistakes = append(f.Mistakes, finding{Line: m.Line, Column: m.Column, Text: m.Text})
		}
		return f
	case err != nil:
		f.Mistakes = append(f.Mistakes, finding{Text: fileError(err)})
		return f
	}
	f.Rules = len(set.Rules())
	for _, w := range policy.Lint(set) {
		f.Warnings = append(f.Warnings, finding{w.Pos.Line, w.Pos.Column, w.Code, w.Rule, w.Text})
	}
	return f
}

func (f *lintedFile) print(c *call) {
	for _, m := range f.Mistakes {
		fmt.Fprintf(c.stdout, "%s: mistake: %s\n", f.place(m), m.Text)
	}
	for _, w := range f.Warnings {
		fmt.Fprintf(c.stdout, "%s: warning %s: rule %q: %s\n", f.place(w), w.Code, w.Rule, w.Text)
	}
	switch {
	case len(f.Mistakes) > 0:
		fmt.Fprintf(c.stdout, "%s: %s\n", f.File, count(len(f.Mistakes), "mistake"))
	case len(f.Warnings) > 0:
		fmt.Fprintf(c.stdout, "%s: %s, %s\n", f.File, count(f.Rules, "rule"), count(len(f.Warnings), "warning"))
	default:
		fmt.Fprintf(c.stdout, "%s: %s, nothing to say against them\n", f.File, count(f.Rules, "rule"))
	}
}

func (f *lintedFile) place(at finding) string {
	if at.Line == 0 {
		return f.File
	}
	return fmt.Sprintf("%s:%d:%d", f.File, at.Line, at.Column)
}

func count(n int, what string) string {
	if n == 1 {
		return "1 " + what
	}
	return fmt.Sprintf("%d %ss", n, what)
}

// isFileError reports whether the error is that a file cannot be read.
func isFileError(err error) bool {
	var path *fs.PathError
	return errors.As(err, &path)
}

// fileError is why a file cannot be read, without its name.
func fileError(err error) string {
	var path *fs.PathError
	if errors.As(err, &path) {
		return path.Op + ": " + path.Err.Error()
	}
	return err.Error()
}

func joinLines(lines []string) string { return strings.Join(lines, "\n") }
