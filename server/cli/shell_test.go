package cli

import (
	"bytes"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/alecthomas/kong"
)

func output(t *testing.T, args ...string) string {
	t.Helper()
	var stdout, stderr bytes.Buffer
	if code := Run(t.Context(), args, &stdout, &stderr, "v1"); code != CodeOK {
		t.Fatalf("%q: exit code %d, %s", args, code, stderr.String())
	}
	return stdout.String()
}

// The script is run by bash itself, on words with the cursor behind the last one.
func TestBashCompletion(t *testing.T) {
	script := filepath.Join(t.TempDir(), "headgate.bash")
	if err := os.WriteFile(script, []byte(output(t, "completion", "bash")), 0o644); err != nil {
		t.Fatal(err)
	}
	for line, want := range map[string]string{
		"headgate ser":                      "serve",
		"headgate c":                        "check candidate convert completion",
		"headgate convert ":                 "envoy",
		"headgate lint --form":              "--format",
		"headgate lint --format ":           "text json sarif",
		"headgate lint --format j":          "json",
		"headgate lint rules.y":             "",
		"headgate completion ":              "bash zsh fish",
		"headgate serve --config x --log-f": "--log-format",
	} {
		words := strings.Split(line, " ")
		ask := exec.CommandContext(t.Context(), "bash", append([]string{
			"-c",
			`source "$1"; shift; COMP_WORDS=("$@"); COMP_CWORD=$(($# - 1)); _headgate; echo "${COMPREPLY[*]}"`,
			"bash", script,
		}, words...)...)
		out, err := ask.CombinedOutput()
		got := strings.Fields(string(out))
		if err != nil || len(got) != len(strings.Fields(want)) {
			t.Errorf("%q: %q, %v, want %q", line, got, err, want)
		}
		for _, word := range strings.Fields(want) {
			if !strings.Contains(" "+strings.Join(got, " ")+" ", " "+word+" ") {
				t.Errorf("%q: %q lacks %q", line, got, word)
			}
		}
	}
}

// Every command and flag stands in the manual, in both of its forms.
func TestManualIsComplete(t *testing.T) {
	parser, err := kong.New(&root{}, append(make(values).options(), kong.Name("headgate"), kong.Vars{"default_server": defaultServer})...)
	if err != nil {
		t.Fatal(err)
	}
	for _, format := range []string{"roff", "markdown"} {
		text := strings.ReplaceAll(output(t, "man", "--format", format), `\-`, "-")
		commandsOf(parser.Model.Node, "", func(words string, n *kong.Node) {
			if len(names(n)) > 0 {
				return
			}
			_, section, found := strings.Cut(text, map[string]string{"roff": ".SS", "markdown": "\n## headgate"}[format]+words)
			if section, _, _ = strings.Cut(section, map[string]string{"roff": ".SS ", "markdown": "\n## "}[format]); !found {
				t.Errorf("%s: headgate%s is missing", format, words)
			}
			for _, f := range flagsOf(n) {
				if f.Name != "help" && !strings.Contains(section, "--"+f.Name) {
					t.Errorf("%s: headgate%s: --%s is missing", format, words, f.Name)
				}
			}
		})
	}
}

// What a user may look for stands in the scripts and in the manual page.
func TestShellFilesAreComplete(t *testing.T) {
	files := map[string]string{"man": strings.ReplaceAll(output(t, "man"), `\-`, "-")}
	for _, shell := range []string{"bash", "zsh", "fish"} {
		files[shell] = output(t, "completion", shell)
	}
	for name, text := range files {
		for _, want := range []string{"serve", "gateway", "envoy", "doctor", "access-log", "on-store-error", "strict"} {
			if !strings.Contains(text, want) {
				t.Errorf("%s: %q is missing", name, want)
			}
		}
	}
	if want := "($HEADGATE_LISTEN)\n"; !strings.Contains(files["man"], want) {
		t.Errorf("man: %q is missing", want)
	}
	// The program of a test, like one that "go install" made, does not know when it was built.
	if title, _, _ := strings.Cut(files["man"], "\n"); title != `.TH HEADGATE 1 "" "headgate" "User Commands"` {
		t.Errorf("man begins with %q", title)
	}
	for line := range strings.Lines(files["man"]) {
		if strings.HasPrefix(line, ".") && !strings.HasPrefix(line, ".S") && !strings.HasPrefix(line, ".T") &&
			!strings.HasPrefix(line, ".PP") && !strings.HasPrefix(line, ".B ") && !strings.HasPrefix(line, ".I ") {
			t.Errorf("man: roff reads this line as a macro: %q", line)
		}
	}
}

func TestCompletionOfAnotherShell(t *testing.T) {
	var stdout, stderr bytes.Buffer
	code := Run(t.Context(), []string{"completion", "ksh"}, &stdout, &stderr, "v1")
	if want := `headgate: the shell is "ksh", must be bash, zsh or fish`; code != CodeUsage || !strings.HasPrefix(stderr.String(), want) {
		t.Errorf("exit code %d, %q, want %q", code, stderr.String(), want)
	}
}
