package cli

import (
	"fmt"
	"io"
	"slices"
	"strings"

	"github.com/alecthomas/kong"
)

// completion is the command that prints a script by which a shell completes commands and flags.
type completion struct {
	Shell string `arg:"" help:"The shell: bash, zsh or fish." of:"bash zsh fish"`
}

// Help says where each shell looks for its script.
func (*completion) Help() string {
	return `The packages install these files. Without a package, write the script into a directory
that the shell reads, and start a new shell:

Examples:
  mkdir -p ~/.local/share/bash-completion/completions
  headgate completion bash > ~/.local/share/bash-completion/completions/headgate
  headgate completion zsh > "${fpath[1]}/_headgate"
  headgate completion fish > ~/.config/fish/completions/headgate.fish`
}

// Run prints the script of the shell.
func (s *completion) Run(c *call) error {
	switch s.Shell {
	case "bash":
		bash(c.stdout, c.model)
	case "zsh":
		zsh(c.stdout, c.model)
	case "fish":
		fish(c.stdout, c.model)
	default:
		return usage(fmt.Sprintf("the shell is %q, must be bash, zsh or fish", s.Shell), "headgate completion --help says where each shell looks for it")
	}
	return nil
}

// flagsOf returns the flags of a command, including those of the commands above it.
func flagsOf(n *kong.Node) (flags []*kong.Flag) {
	for _, group := range n.AllFlags(true) {
		flags = append(flags, group...)
	}
	return flags
}

// choices returns the allowed values of a flag or an argument, or nil if all are allowed.
func choices(v *kong.Value) []string { return strings.Fields(v.Tag.Get("of")) }

// commandsOf calls visit for the node and all commands below it. words are the words that a user
// types to get there, each after a space.
func commandsOf(n *kong.Node, words string, visit func(words string, n *kong.Node)) {
	visit(words, n)
	for _, child := range n.Children {
		if !child.Hidden {
			commandsOf(child, words+" "+child.Name, visit)
		}
	}
}

// names returns the names of the commands below the node.
func names(n *kong.Node) (names []string) {
	for _, child := range n.Children {
		if !child.Hidden {
			names = append(names, child.Name)
		}
	}
	return names
}

// summary returns the first sentence of a help text, without characters that are syntax for shells.
func summary(help string) string {
	help, _, _ = strings.Cut(help, ". ")
	return strings.NewReplacer("'", "’", "\\", "", "[", "(", "]", ")", ":", "", "`", "", "$", "", "\"", "").
		Replace(strings.TrimSuffix(help, "."))
}

// bash prints a function that finds the command among the words before the cursor.
func bash(w io.Writer, app *kong.Application) {
	var paths, values, flags, below []string
	commandsOf(app.Node, "", func(words string, n *kong.Node) {
		if words != "" {
			paths = append(paths, fmt.Sprintf("%q", words))
		}
		var all []string
		for _, f := range flagsOf(n) {
			all = append(all, "--"+f.Name)
			if of := choices(f.Value); len(of) > 0 {
				values = append(values, fmt.Sprintf("\t%q) words=%q ;;", words+":--"+f.Name, strings.Join(of, " ")))
			}
		}
		flags = append(flags, fmt.Sprintf("\t%q) words=%q ;;", words+":-", strings.Join(all, " ")))
		next := names(n)
		for _, p := range n.Positional {
			next = append(next, choices(p)...)
		}
		if next != nil {
			below = append(below, fmt.Sprintf("\t%q) words=%q ;;", words+":", strings.Join(next, " ")))
		}
	})
	fmt.Fprintf(w, `# Completion of %[1]s for bash.
_%[1]s() {
	local current=${COMP_WORDS[COMP_CWORD]} before=${COMP_WORDS[COMP_CWORD-1]} command= words= dash= i
	[[ $current = -* ]] && dash=-
	for ((i = 1; i < COMP_CWORD; i++)); do
		case "$command ${COMP_WORDS[i]}" in
		%[2]s) command="$command ${COMP_WORDS[i]}" ;;
		esac
	done
	case "$command:$before" in
%[3]s
	*) case "$command:$dash" in
%[4]s
%[5]s
	esac ;;
	esac
	COMPREPLY=($(compgen -W "$words" -- "$current"))
}
complete -o default -F _%[1]s %[1]s
`, app.Name, strings.Join(paths, "|"), strings.Join(values, "\n"), strings.Join(flags, "\n"), strings.Join(below, "\n"))
}

// zsh prints a function for each command.
func zsh(w io.Writer, app *kong.Application) {
	fmt.Fprintf(w, "#compdef %s\n# Completion of %[1]s for zsh.\n", app.Name)
	commandsOf(app.Node, "", func(words string, n *kong.Node) {
		fmt.Fprintf(w, "%s() {\n\tlocal -a line\n\tlocal state\n\t_arguments -C", function(app, words))
		for _, f := range flagsOf(n) {
			value := ""
			switch of := choices(f.Value); {
			case len(of) > 0:
				value = ":" + f.Name + ":(" + strings.Join(of, " ") + ")"
			case !f.IsBool():
				value = ":" + f.Name + ":_files"
			}
			fmt.Fprintf(w, " \\\n\t\t'--%s[%s]%s'", f.Name, summary(f.Help), value)
		}
		if next := names(n); next != nil {
			fmt.Fprintf(w, " \\\n\t\t'1:command:(%s)' '*:: :->command'\n", strings.Join(next, " "))
			fmt.Fprint(w, "\t[[ $state = command ]] && case $line[1] in\n")
			for _, name := range next {
				fmt.Fprintf(w, "\t%s) %s ;;\n", name, function(app, words+" "+name))
			}
			fmt.Fprint(w, "\tesac\n}\n")
			return
		}
		for i, p := range n.Positional {
			value := "_files"
			if of := choices(p); len(of) > 0 {
				value = "(" + strings.Join(of, " ") + ")"
			}
			position := fmt.Sprint(i + 1)
			if p.IsCumulative() {
				position = "*"
			}
			fmt.Fprintf(w, " \\\n\t\t'%s:%s:%s'", position, summary(p.Name), value)
		}
		fmt.Fprint(w, "\n}\n")
	})
	fmt.Fprintf(w, "compdef _%s %[1]s\n", app.Name)
}

// function returns the name of a command's function.
func function(app *kong.Application, words string) string {
	return "_" + app.Name + strings.ReplaceAll(strings.ReplaceAll(words, " ", "_"), "-", "_")
}

// fish prints a line for each command and flag.
func fish(w io.Writer, app *kong.Application) {
	fmt.Fprintf(w, "# Completion of %s for fish.\n", app.Name)
	commandsOf(app.Node, "", func(words string, n *kong.Node) {
		var seen []string
		for word := range strings.FieldsSeq(words) {
			seen = append(seen, "__fish_seen_subcommand_from "+word)
		}
		when := strings.Join(seen, "; and ")
		if below := names(n); below != nil {
			not := "not __fish_seen_subcommand_from " + strings.Join(below, " ")
			for _, child := range n.Children {
				if !child.Hidden {
					fmt.Fprintf(w, "complete -c %s -f -n '%s' -a %s -d '%s'\n", app.Name,
						strings.Join(slices.Concat(seen, []string{not}), "; and "), child.Name, summary(child.Help))
				}
			}
			return
		}
		for _, f := range flagsOf(n) {
			value := ""
			switch of := choices(f.Value); {
			case len(of) > 0:
				value = " -x -a '" + strings.Join(of, " ") + "'"
			case !f.IsBool():
				value = " -r"
			}
			fmt.Fprintf(w, "complete -c %s -n '%s' -l %s%s -d '%s'\n", app.Name, when, f.Name, value, summary(f.Help))
		}
		for _, p := range n.Positional {
			if of := choices(p); len(of) > 0 {
				fmt.Fprintf(w, "complete -c %s -f -n '%s' -a '%s'\n", app.Name, when, strings.Join(of, " "))
			}
		}
	})
}
