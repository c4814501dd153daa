package cli

import (
	"fmt"
	"io"
	"slices"
	"strings"

	"github.com/alecthomas/kong"
)

// reference is the hidden command that prints docs/reference/commands.md.
type reference struct{}

// Run prints a section for each command with its arguments and flags, and then one for each group of
// flags that commands have in common.
func (reference) Run(c *call) error {
	w, app := c.stdout, c.model
	description, codes, _ := strings.Cut(app.Help, "\n\n")
	fmt.Fprintf(w, "# The command line\n\n<!-- Written by `make reference` from the program's help. -->\n\n%s\n", description)
	for paragraph := range strings.SplitSeq(codes, "\n\n") {
		fmt.Fprintf(w, "\n%s\n", paragraph)
	}
	fmt.Fprintf(w, "\n`headgate COMMAND --help` prints the same for one command. A flag with a $ may come\nfrom the environment: `--store-timeout` is `HEADGATE_STORE_TIMEOUT`.\n\n| command | |\n|---|---|\n")
	commandsOf(app.Node, "", func(words string, n *kong.Node) {
		fmt.Fprintf(w, "| [`%s%s`](%s) | %s |\n", app.Name, words, anchor(app.Name+words), cell(n.Help))
	})
	var groups []string
	shared := make(map[string][]*kong.Flag)
	commandsOf(app.Node, "", func(words string, n *kong.Node) {
		fmt.Fprintf(w, "\n## %s%s\n", app.Name, words)
		if len(n.Positional) > 0 {
			fmt.Fprintf(w, "\n```\n%s %s\n```\n", app.Name, n.Summary())
		}
		detail(w, n.Detail)
		if len(n.Positional) > 0 {
			fmt.Fprintln(w)
			for _, p := range n.Positional {
				fmt.Fprintf(w, "- `%s`: %s\n", p.Summary(), p.Help)
			}
		}
		own, also := []*kong.Flag{}, []string{}
		for _, f := range slices.Concat(n.AllFlags(true)...) {
			switch {
			case f.Name == "help":
			case f.Group == nil:
				own = append(own, f)
			default:
				key := f.Group.Key
				if link := "[" + key + "](" + anchor("flags: "+key) + ")"; !slices.Contains(also, link) {
					also = append(also, link)
				}
				if !slices.Contains(groups, key) {
					groups = append(groups, key)
				}
				if !slices.ContainsFunc(shared[key], func(other *kong.Flag) bool { return other.Name == f.Name }) {
					shared[key] = append(shared[key], f)
				}
			}
		}
		listFlags(w, own)
		if len(also) > 0 {
			fmt.Fprintf(w, "\nFurther flags: %s.\n", strings.Join(also, ", "))
		}
	})
	for _, key := range groups {
		fmt.Fprintf(w, "\n## Flags: %s\n", key)
		listFlags(w, shared[key])
	}
	return nil
}

// commandsOf calls visit for each command below the node that can be run. words are the words that a
// user types to get there, each after a space.
func commandsOf(n *kong.Node, words string, visit func(words string, n *kong.Node)) {
	for _, child := range n.Children {
		switch {
		case child.Hidden:
		case len(child.Children) > 0:
			commandsOf(child, words+" "+child.Name, visit)
		default:
			visit(words+" "+child.Name, child)
		}
	}
}

// anchor returns the link to a heading of the page.
func anchor(heading string) string {
	return "#" + strings.NewReplacer(" ", "-", ":", "").Replace(strings.ToLower(heading))
}

// listFlags lists flags, if there are any.
func listFlags(w io.Writer, flags []*kong.Flag) {
	if len(flags) > 0 {
		fmt.Fprintln(w)
	}
	for _, f := range flags {
		fmt.Fprintln(w, flagItem(f))
	}
}

// flagItem is the line of a flag: with its default, and with a mark if it may come from a variable of
// the environment, or with the variable if that is not named like the flag.
func flagItem(f *kong.Flag) string {
	name, text := code(flagName(f)), f.Help
	switch usual := "HEADGATE_" + strings.ToUpper(strings.ReplaceAll(f.Name, "-", "_")); {
	case slices.Equal(f.Envs, []string{usual}):
		name += " $"
	case len(f.Envs) > 0:
		name += " " + code("$"+strings.Join(f.Envs, ", $"))
	}
	if f.Default != "" && f.Default != "0s" && !strings.Contains(text, "Default: ") && !strings.HasSuffix(flagName(f), "="+f.Default) {
		text += " Default: " + f.Default
	}
	return "- " + name + ": " + text
}

// detail writes a detailed help. Indented lines, such as examples, become a block of code.
func detail(w io.Writer, text string) {
	block := false
	turn := func(on bool) {
		if on != block {
			fmt.Fprintln(w, "```")
		}
		block = on
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

// choices returns the allowed values of a flag or an argument, or nil if all are allowed.
func choices(v *kong.Value) []string { return strings.Fields(v.Tag.Get("of")) }

// code formats words as code.
func code(words ...string) string {
	var all []string
	for _, word := range words {
		if word != "" {
			all = append(all, "`"+word+"`")
		}
	}
	return strings.Join(all, ", ")
}

// cell formats a text for a table.
func cell(text string) string {
	return strings.ReplaceAll(strings.Join(strings.Fields(text), " "), "|", "\\|")
}
