package cli

import (
	"fmt"
	"io"
	"slices"
	"strings"
	"time"

	"github.com/alecthomas/kong"
)

// man is the command that prints the manual page.
type man struct {
	Format string `help:"What to print: roff, which man shows, or markdown." type:"choice" of:"roff markdown" default:"roff"`
}

// Run prints it.
func (m *man) Run(c *call) error {
	if err := c.mistaken("headgate man --help lists what there is"); err != nil {
		return err
	}
	if m.Format == "markdown" {
		markdown(c.stdout, c.model)
		return nil
	}
	manual(c.stdout, c.model)
	return nil
}

// manual writes the manual page for the program man.
func manual(w io.Writer, app *kong.Application) {
	description, codes, _ := strings.Cut(app.Help, "\n\n")
	fmt.Fprintf(w, ".TH %s 1 %q %q %q\n", strings.ToUpper(app.Name), built(), app.Name, "User Commands")
	fmt.Fprintf(w, ".SH NAME\n%s \\- %s\n", app.Name, roff(strings.TrimSuffix(description, ".")))
	fmt.Fprintf(w, ".SH SYNOPSIS\n.B %s\n.I command\n[\\fIargument\\fR ...] [\\fB\\-\\-flag\\fR=\\fIvalue\\fR ...]\n", app.Name)
	fmt.Fprintf(w, ".SH DESCRIPTION\n%s\n.SH COMMANDS\n", roff(codes))
	commandsOf(app.Node, "", func(_ string, n *kong.Node) {
		if len(names(n)) > 0 {
			return
		}
		fmt.Fprintf(w, ".SS %s\n%s\n", roff(n.Summary()), roff(n.Help))
		for paragraph := range strings.SplitSeq(n.Detail, "\n\n") {
			if paragraph != "" {
				fmt.Fprintf(w, ".PP\n%s\n", roff(paragraph))
			}
		}
		for _, p := range n.Positional {
			fmt.Fprintf(w, ".TP\n.B %s\n%s\n", roff(p.Summary()), roff(p.Help))
		}
		for _, f := range n.Flags {
			fmt.Fprintf(w, ".TP\n.B %s\n%s\n", roff(f.Summary()), roff(f.Help))
			if len(f.Envs) > 0 {
				fmt.Fprintf(w, "($%s)\n", strings.Join(f.Envs, ", $"))
			}
		}
	})
}

// roff returns a text as the source of a manual page. Indented lines, such as examples, stay
// separate lines.
func roff(text string) string {
	text = strings.NewReplacer(`\`, `\e`, "-", `\-`).Replace(text)
	lines := strings.Split(text, "\n")
	for i, line := range lines {
		if strings.HasPrefix(line, ".") || strings.HasPrefix(line, "'") {
			lines[i] = `\&` + line
		}
	}
	return strings.Join(slices.DeleteFunc(lines, func(line string) bool { return line == "" }), "\n")
}

// built returns when the source of this build was committed, or "" if the build does not know. So
// the page is the same whenever it is printed.
func built() string {
	at, err := time.Parse(time.RFC3339, buildOf("").Time)
	if err != nil {
		return ""
	}
	return at.Format(time.DateOnly)
}

// markdown writes the same contents as a page of Markdown: a section for each command, with a table
// of its flags.
func markdown(w io.Writer, app *kong.Application) {
	description, codes, _ := strings.Cut(app.Help, "\n\n")
	fmt.Fprintf(w, "# The command line\n\n<!-- Written by `make reference` from headgate man. -->\n\n%s\n", description)
	for paragraph := range strings.SplitSeq(codes, "\n\n") {
		fmt.Fprintf(w, "\n%s\n", paragraph)
	}
	fmt.Fprintf(w, "\nThe same is in `man headgate`, and each command says it with `--help`.\n\n| command | |\n|---|---|\n")
	commandsOf(app.Node, "", func(words string, n *kong.Node) {
		if len(names(n)) == 0 {
			anchor := app.Name + strings.ReplaceAll(words, " ", "-")
			fmt.Fprintf(w, "| [`%s%s`](#%s) | %s |\n", app.Name, words, anchor, cell(n.Help))
		}
	})
	commandsOf(app.Node, "", func(words string, n *kong.Node) {
		if len(names(n)) > 0 {
			return
		}
		fmt.Fprintf(w, "\n## %s%s\n\n%s\n\n```\n%s %s\n```\n", app.Name, words, n.Help, app.Name, n.Summary())
		detail(w, n.Detail)
		if len(n.Positional) > 0 {
			fmt.Fprint(w, "\n| argument | meaning |\n|---|---|\n")
			for _, p := range n.Positional {
				fmt.Fprintf(w, "| `%s` | %s |\n", cell(p.Summary()), cell(p.Help))
			}
		}
		flags := slices.DeleteFunc(flagsOf(n), func(f *kong.Flag) bool { return f.Name == "help" })
		if len(flags) > 0 {
			fmt.Fprint(w, "\n| flag | environment | default | meaning |\n|---|---|---|---|\n")
			for _, f := range flags {
				fmt.Fprintf(w, "| `%s` | %s | %s | %s |\n", cell(flagName(f)), marked(f.Envs...), marked(defaultOf(f)...), cell(f.Help))
			}
		}
	})
}

// detail writes a detailed help. Indented lines, such as examples, become a block of code.
func detail(w io.Writer, text string) {
	code := false
	turn := func(on bool) {
		if on != code {
			fmt.Fprintln(w, "```")
		}
		code = on
	}
	if text != "" {
		fmt.Fprintln(w)
	}
	for line := range strings.SplitSeq(strings.TrimSpace(text), "\n") {
		if line != "" {
			turn(strings.HasPrefix(line, "  "))
		}
		if text != "" {
			fmt.Fprintln(w, line)
		}
	}
	turn(false)
}

// flagName returns a flag with the name of its value.
func flagName(f *kong.Flag) string {
	name := "--" + f.Name
	if f.Short != 0 {
		name = fmt.Sprintf("-%c, %s", f.Short, name)
	}
	switch of := choices(f.Value); {
	case len(of) > 0:
		return name + "=" + strings.Join(of, "|")
	case f.IsBool():
		return name
	}
	return name + "=" + strings.TrimSuffix(f.FormatPlaceHolder(), ",...")
}

// defaultOf returns the default of a flag, if it has one.
func defaultOf(f *kong.Flag) []string {
	if f.Default == "" {
		return nil
	}
	return []string{f.Default}
}

// marked formats words as code.
func marked(words ...string) string {
	all := make([]string, len(words))
	for i, word := range words {
		all[i] = "`" + word + "`"
	}
	return strings.Join(all, ", ")
}

// cell formats a text for a table.
func cell(text string) string {
	return strings.ReplaceAll(strings.Join(strings.Fields(text), " "), "|", "\\|")
}
