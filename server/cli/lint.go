package cli

import (
	"errors"
	"fmt"
	"io"
	"io/fs"
	"maps"
	"os"
	"slices"
	"strings"
	"text/tabwriter"

	"github.com/headgate/headgate/config"
	"github.com/headgate/headgate/policy"
	"github.com/headgate/headgate/policy/footprint"
	"github.com/headgate/headgate/policy/lint"
	"github.com/headgate/headgate/server/app"
)

// lintRequest is the command that checks policy files.
type lintRequest struct {
	Files  []string `arg:"" name:"file" help:"Policy files, gateway files, and configurations of Envoy; - means standard input."`
	Strict bool     `help:"Exit with 1 if there are warnings."`
	Keys   hashKeys `embed:"" group:"Hash keys"`
	Format string   `help:"Output format: text, json, or sarif, which code hosts show beside the lines." type:"choice" of:"text json sarif" default:"text"`
	JSON   bool     `help:"The same as --format json." name:"json"`
	Memory bool     `help:"Print an estimate of the most memory that each rule's counters take in Redis."`
}

// Help is the detailed help.
func (lintRequest) Help() string {
	return "With a mistake, a server does not start. A warning marks something that is valid but probably not intended.\n\n" +
		"Exit codes: 0 no mistakes; 1 warnings, with --strict; 2 mistakes."
}

// lintedFile is the report about one file.
type lintedFile struct {
	File  string `json:"file"`
	Rules int    `json:"rules"`
	// Gateway means that it is a gateway file without mistakes. Such a file has no rules.
	Gateway bool `json:"gateway,omitempty"`
	// Envoy means that it is a configuration of Envoy. Its buckets of the rate limit quota service were
	// looked at.
	Envoy    bool      `json:"envoy,omitempty"`
	Mistakes []finding `json:"mistakes"`
	Warnings []finding `json:"warnings"`
	// Memory is about how much memory each rule's counters take in Redis.
	Memory []footprint.Footprint `json:"memory,omitempty"`

	// wrong has the mistakes, and odd the warnings, as they were found.
	wrong []config.Mistake
	odd   []lint.Warning
}

// finding is one mistake or warning. Line and column count from 1, and are 0 if the finding has no
// single place.
type finding struct {
	// File is the file with the finding, if it is not the policy file itself.
	File   string `json:"file,omitempty"`
	Line   int    `json:"line"`
	Column int    `json:"column"`
	Code   string `json:"code,omitempty"`
	Rule   string `json:"rule,omitempty"`
	Text   string `json:"text"`
	// URL is the documentation of the code.
	URL string `json:"url,omitempty"`
	// Ignored is the reason why a warning is silenced.
	Ignored string `json:"ignored,omitempty"`
}

// Run checks all files and prints the findings.
func (l *lintRequest) Run(c *call) error {
	if err := c.mistaken(); err != nil {
		return err
	}
	if l.JSON && c.flags["format"] && l.Format != "json" {
		return usage("--json and --format "+l.Format+" are both given", "give one of them")
	}
	if slices.Contains(l.Files, "") {
		return usage("the name of a file is empty", "see whether the variable is set that should have it")
	}
	// The sample has no mistakes. An error here is about the hash key, which belongs to no file.
	key, old, err := l.Keys.read()
	if err != nil {
		return err
	}
	if _, err := app.LoadPolicy("", key, old); err != nil {
		return err
	}
	var mistakes, warnings int
	files := make([]lintedFile, 0, len(l.Files))
	for _, name := range l.Files {
		f := lintFile(c, name, key, old)
		mistakes, warnings = mistakes+len(f.Mistakes), warnings+f.warnings()
		files = append(files, f)
	}
	if err := l.print(c, files); err != nil {
		return err
	}
	switch {
	case mistakes > 0:
		return &failure{code: CodeUsage}
	case warnings > 0 && l.Strict:
		return &failure{code: CodeNo}
	}
	return nil
}

// print writes the report in the requested format.
func (l *lintRequest) print(c *call, files []lintedFile) error {
	switch {
	case l.JSON || l.Format == "json":
		return printJSON(c.stdout, map[string]any{"files": files})
	case l.Format == "sarif":
		var wrong []config.Mistake
		var odd []lint.Warning
		for i := range files {
			wrong, odd = append(wrong, files[i].wrong...), append(odd, files[i].odd...)
		}
		report, err := config.SARIF(wrong, odd, buildOf(c.version).Version)
		if err != nil {
			return err
		}
		fmt.Fprintf(c.stdout, "%s\n", report)
		return nil
	}
	for i := range files {
		files[i].print(c)
		if l.Memory {
			files[i].printMemory(c.stdout)
		}
	}
	printCodes(c.stdout, files)
	return nil
}

// printCodes writes where to read about the warnings that were printed.
func printCodes(w io.Writer, files []lintedFile) {
	codes := make(map[string]bool)
	for i := range files {
		for _, f := range files[i].Warnings {
			if f.Ignored == "" {
				codes[f.Code] = true
			}
		}
	}
	for _, code := range slices.Sorted(maps.Keys(codes)) {
		fmt.Fprintf(w, "%s: %s\n", code, lint.URL(code))
	}
}

// stdin is the argument for the standard input, and stdinName is its name in findings.
const stdin, stdinName = "-", "<stdin>"

// read reads a policy, a gateway file, or a configuration of Envoy. Without an error, the set is nil
// for what is no policy.
func (f *lintedFile) read(c *call, hashKey, oldHashKey string) (*policy.Set, error) {
	if f.File == stdin {
		f.File = stdinName
		data, err := io.ReadAll(io.LimitReader(c.stdin, config.MaxBytes+1))
		switch {
		case err != nil:
			return nil, err
		case config.IsGateway(data):
			_, err = config.ParseGateway(f.File, data)
			return nil, err
		case f.envoy(data):
			return nil, nil
		}
		return app.ParsePolicy(f.File, data, hashKey, oldHashKey)
	}
	set, err := app.LoadPolicy(f.File, hashKey, oldHashKey)
	if err == nil {
		return set, nil
	}
	// A file that is no policy may be a gateway file. It is read again here, because that is rare.
	data, unread := os.ReadFile(f.File)
	switch {
	case unread != nil || len(data) > config.MaxBytes:
		return nil, err
	case config.IsGateway(data):
		_, err = config.ReadGateway(f.File)
		return nil, err
	case f.envoy(data):
		return nil, nil
	}
	return nil, err
}

// envoy reports whether a text is a configuration of Envoy, and finds what is odd in it.
func (f *lintedFile) envoy(data []byte) bool {
	f.odd, f.Envoy = config.EnvoyQuota(f.File, data)
	return f.Envoy
}

func lintFile(c *call, name, hashKey, oldHashKey string) lintedFile {
	f := lintedFile{File: name, Mistakes: []finding{}, Warnings: []finding{}}
	set, err := f.read(c, hashKey, oldHashKey)
	name = f.File
	var wrong *config.Error
	switch {
	case errors.As(err, &wrong):
		f.wrong = wrong.Mistakes
	case err != nil:
		f.wrong = []config.Mistake{{File: name, Text: fileError(err)}}
	}
	for _, m := range f.wrong {
		f.Mistakes = append(f.Mistakes, finding{File: f.other(m.File), Line: m.Line, Column: m.Column, Text: m.Text})
	}
	f.Gateway = err == nil && set == nil && !f.Envoy
	if err == nil && set != nil {
		f.Rules = len(set.Rules())
		f.Memory = footprint.Of(set)
		f.odd = lint.All(set)
	}
	for i := range f.odd {
		w := &f.odd[i]
		if w.Pos.File == "" {
			// The warning is about the policy as a whole.
			w.Pos.File = name
		}
		f.Warnings = append(f.Warnings, finding{f.other(w.Pos.File), w.Pos.Line, w.Pos.Column, w.Code, w.Rule, w.Text, lint.URL(w.Code), w.Ignored})
	}
	return f
}

// other returns the name if it is not that of the policy file itself, and "" otherwise.
func (f *lintedFile) other(name string) string {
	if name == f.File {
		return ""
	}
	return name
}

// warnings returns the number of warnings that are not silenced.
func (f *lintedFile) warnings() int {
	n := 0
	for i := range f.Warnings {
		if f.Warnings[i].Ignored == "" {
			n++
		}
	}
	return n
}

func (f *lintedFile) print(c *call) {
	for _, m := range f.Mistakes {
		fmt.Fprintf(c.stdout, "%s: mistake: %s\n", f.place(m), m.Text)
	}
	for _, w := range f.Warnings {
		rule := ""
		if w.Rule != "" {
			rule = fmt.Sprintf("rule %q: ", w.Rule)
		}
		if w.Ignored == "" {
			fmt.Fprintf(c.stdout, "%s: warning %s: %s%s\n", f.place(w), w.Code, rule, w.Text)
		}
	}
	warnings := f.warnings()
	silenced := ""
	if n := len(f.Warnings) - warnings; n > 0 {
		silenced = fmt.Sprintf(" (%d silenced)", n)
	}
	switch {
	case f.Envoy:
		fmt.Fprintf(c.stdout, "%s: a configuration of Envoy, %s\n", f.File, count(warnings, "warning"))
	case f.Gateway:
		fmt.Fprintf(c.stdout, "%s: a gateway file, no mistakes\n", f.File)
	case len(f.Mistakes) > 0:
		fmt.Fprintf(c.stdout, "%s: %s\n", f.File, count(len(f.Mistakes), "mistake"))
	case warnings > 0:
		fmt.Fprintf(c.stdout, "%s: %s, %s%s\n", f.File, count(f.Rules, "rule"), count(warnings, "warning"), silenced)
	default:
		fmt.Fprintf(c.stdout, "%s: %s, no mistakes, no warnings%s\n", f.File, count(f.Rules, "rule"), silenced)
	}
}

// printMemory writes how much memory the counters take, if the file has no mistakes.
func (f *lintedFile) printMemory(w io.Writer) {
	if len(f.Memory) == 0 {
		return
	}
	permits := slices.ContainsFunc(f.Memory, func(m footprint.Footprint) bool { return m.Permits > 0 })
	table := tabwriter.NewWriter(w, 0, 0, 2, ' ', 0)
	of := func(text string) string {
		if !permits {
			return ""
		}
		return "\t" + text
	}
	fmt.Fprintf(table, "RULE\tBYTES PER KEY%s\tMIB PER MILLION KEYS\n", of("OF PERMITS"))
	for i := range f.Memory {
		m := &f.Memory[i]
		million := fmt.Sprint((m.PerMillion() + 1<<20 - 1) >> 20)
		if m.One {
			million = "(one key for all)"
		}
		fmt.Fprintf(table, "%s\t%d%s\t%s\n", m.Rule, m.Bytes, of(fmt.Sprint(m.Permits)), million)
	}
	// Errors of w cannot be reported to anybody.
	_ = table.Flush()
}

func (f *lintedFile) place(at finding) string {
	file := f.File
	if at.File != "" {
		file = at.File
	}
	if at.Line == 0 {
		return file
	}
	return fmt.Sprintf("%s:%d:%d", file, at.Line, at.Column)
}

func count(n int, what string) string {
	if n == 1 {
		return "1 " + what
	}
	return fmt.Sprintf("%d %ss", n, what)
}

// isFileError reports whether err says that a file cannot be read.
func isFileError(err error) bool {
	var path *fs.PathError
	return errors.As(err, &path)
}

// fileError returns why a file cannot be read, without its name.
func fileError(err error) string {
	if path, ok := errors.AsType[*fs.PathError](err); ok {
		return path.Err.Error()
	}
	return err.Error()
}

func joinLines(lines []string) string { return strings.Join(lines, "\n") }
