package cli

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"reflect"
	"slices"
	"strings"
	"time"

	"github.com/alecthomas/kong"

	"github.com/headgate/headgate"
	"github.com/headgate/headgate/config"
	"github.com/headgate/headgate/internal/errtext"
	"github.com/headgate/headgate/policy"
	"github.com/headgate/headgate/server/app"
)

// The exit codes of all commands.
const (
	// CodeOK: it worked; the request is allowed; the files are clean.
	CodeOK = 0
	// CodeNo: the request is denied; there are warnings, with lint --strict;
	// requests were cut off, when serve ended.
	CodeNo = 1
	// CodeUsage: the command line, a file or a request has a mistake.
	CodeUsage = 2
	// CodeUnavailable: a server, a store or an address is not there.
	CodeUnavailable = 3
)

// root is the whole command line.
type root struct {
	Serve     serve           `cmd:"" help:"Serve decisions over HTTP, gRPC and the Redis protocol."`
	Gateway   gatewayCommand  `cmd:"" help:"Run a reverse proxy that forwards the requests the rules admit."`
	Ratelimit ratelimit       `cmd:"" help:"Replace envoyproxy/ratelimit, configured by its environment variables."`
	Check     check           `cmd:"" help:"Take units from a rule, or check whether they would fit."`
	Refund    refund          `cmd:"" help:"Give units back to a rule."`
	Reset     reset           `cmd:"" help:"Clear what a key has used under a rule."`
	Permit    permit          `cmd:"" help:"Run a command while holding a shared permit, and list or revoke permits."`
	Explain   explainRequest  `cmd:"" help:"Show which rules apply to a request, and why."`
	Doctor    doctor          `cmd:"" help:"Check a store for operational problems."`
	Lint      lintRequest     `cmd:"" help:"Find mistakes and traps in policy files."`
	Document  documentRequest `cmd:"" help:"Generate the rate limit section of an API's documentation."`
	Top       topReport       `cmd:"" help:"Show the heaviest users of each rule, and who is denied."`
	Tail      tailReport      `cmd:"" help:"Show denials as they happen, with their reasons."`
	Load      loadRequest     `cmd:"" help:"Load-test a service: measure its latency, find its capacity, or audit its limits."`
	Candidate candidateReport `cmd:"" help:"Show where a candidate policy decides differently from the current one."`
	Replay    replayRequest   `cmd:"" help:"Show what rules would have done to the requests in access logs."`
	Advise    adviseRequest   `cmd:"" help:"Suggest limits from access logs, or from the capacity of a service."`
	Convert   convert         `cmd:"" help:"Convert another program's configuration to a policy file."`
	Health    health          `cmd:"" help:"Ask a server whether it is ready."`
	Version   version         `cmd:"" help:"Print the version of this build."`

	Reference reference `cmd:"" hidden:""`
}

// grammar returns what the parser reads the command line into: the command that args begin with,
// or all of them if args begin with no command, or with one that describes the others. The parser
// looks through every flag that it is given, which takes longer than most commands do.
func grammar(args []string) any {
	if len(args) == 0 || args[0] == "reference" {
		return &root{}
	}
	for field := range reflect.TypeFor[root]().Fields() {
		if strings.ToLower(field.Name) == args[0] {
			return reflect.New(reflect.StructOf([]reflect.StructField{field})).Interface()
		}
	}
	return &root{}
}

// call has what a command needs from the process.
type call struct {
	ctx            context.Context
	stdin          io.Reader
	stdout, stderr io.Writer
	version        string
	// model is the command line that the call was parsed with.
	model *kong.Application
	// flags are those given on the command line rather than in the environment.
	flags map[string]bool
	// mistakes are the errors of single flags. Every command that has flags with times, numbers or
	// choices begins with mistaken, or passes the mistakes on.
	mistakes []string
}

// mistaken returns an error with all mistakes in flags, or nil if there are none.
func (c *call) mistaken() error {
	if c.mistakes == nil {
		return nil
	}
	return usage(joinLines(c.mistakes), "")
}

// within adds a mistake if the value of a flag is not ok, unless the flag has no value.
func (c *call) within(flag string, ok bool, text string) {
	is := "--" + flag + " is "
	if !ok && !slices.ContainsFunc(c.mistakes, func(m string) bool { return strings.HasPrefix(m, is) }) {
		c.mistakes = append(c.mistakes, is+text)
	}
}

// mistake adds a mistake, with a hint about what to do.
func (c *call) mistake(err error) {
	var f *failure
	switch {
	case errors.As(err, &f):
		c.mistakes = append(c.mistakes, f.text+"; "+f.hint)
	case err != nil:
		c.mistakes = append(c.mistakes, errtext.Text(err))
	}
}

// token calls readToken, and adds its error as a mistake.
func (c *call) token(what, variable, file string) string {
	token, err := readToken(what, variable, file)
	c.mistake(err)
	return token
}

// inTime is within for a flag that says how long to wait.
func (c *call) inTime(timeout time.Duration) {
	c.within("timeout", timeout > 0, fmt.Sprintf("%v, must be more than 0s", timeout))
}

// atCost is within for the cost of a request.
func (c *call) atCost(cost int64) {
	c.within("cost", cost >= 1 && cost <= headgate.MaxCount, fmt.Sprintf("%d, must be 1 to %d", cost, headgate.MaxCount))
}

// exit carries an exit code out of the parser, which exits in the middle of its work when it has
// printed the help.
type exit int

// Run runs the command that args name and returns its exit code. version is that of the build, or
// "" if it is not known. Commands end early when ctx does.
func Run(ctx context.Context, args []string, stdout, stderr io.Writer, version string) (code int) {
	defer func() {
		switch e := recover().(type) {
		case nil:
		case exit:
			code = int(e)
		default:
			panic(e)
		}
	}()
	// Other programs use these names for the two commands.
	switch {
	case slices.Equal(args, []string{"--version"}):
		args = []string{"version"}
	case len(args) > 0 && args[0] == "help":
		args = append(slices.Clone(args[1:]), "--help")
	}
	read := make(values)
	parser, err := kong.New(grammar(args), append(read.options(),
		kong.Name("headgate"),
		kong.Description("Headgate decides how much work may enter a system.\n\n"+
			"Exit codes: 0 yes; 1 no (denied, or warnings that count); 2 a mistake in the command, a file or a request; 3 a server, a store or an address cannot be used."),
		kong.Vars{"default_server": defaultServer},
		kong.Writers(stdout, stderr),
		kong.Exit(func(code int) { panic(exit(code)) }),
		kong.ConfigureHelp(kong.HelpOptions{Compact: true}),
	)...)
	if err != nil {
		// The tags of the commands are wrong. That is a defect, not a mistake of the user.
		panic(err)
	}
	own := args
	if i := slices.Index(args, "--"); i >= 0 {
		own = args[:i] // the rest belongs to the program that permit run starts
	}
	asJSON := slices.Contains(own, "--json")
	parsed, err := parser.Parse(args)
	if err != nil {
		var problems []string
		command := "headgate"
		if parse, ok := errors.AsType[*kong.ParseError](err); ok {
			problems = read.wrong(parse.Context)
			if selected := parse.Context.Selected(); selected != nil {
				command = selected.FullPath()
			}
		}
		return report(stderr, usage(joinLines(append(problems, err.Error())), ""), command, asJSON)
	}
	c := &call{ctx: ctx, stdin: os.Stdin, stdout: stdout, stderr: stderr, version: version, model: parser.Model, flags: make(map[string]bool), mistakes: read.wrong(parsed)}
	for _, element := range parsed.Path {
		if element.Flag != nil {
			c.flags[element.Flag.Name] = true
		}
	}
	return report(stderr, parsed.Run(c), parsed.Selected().FullPath(), asJSON)
}

// failure is an error with its exit code and a hint about what to do.
type failure struct {
	code   int
	places string // lines that begin with file:line:column
	text   string // may have several lines
	hint   string
}

func (f *failure) Error() string { return f.text }

// usage returns the error for a mistake of the user. If the hint is empty, it names the command whose
// help to read.
func usage(text, hint string) *failure { return &failure{code: CodeUsage, text: text, hint: hint} }

// shownFailure is an error in the format that commands with --json print.
type shownFailure struct {
	ExitCode int      `json:"exit_code"`
	Errors   []string `json:"errors"`
	Hint     string   `json:"hint,omitempty"`
}

// report prints the error of a command, if there is one, and returns its exit code.
func report(stderr io.Writer, err error, command string, asJSON bool) int {
	if err == nil {
		return CodeOK
	}
	f := failureOf(err)
	if f.code == CodeUsage && f.text != "" && f.hint == "" {
		f.hint = command + " --help lists what there is"
	}
	if asJSON {
		shown := shownFailure{f.code, nil, f.hint}
		for _, text := range []string{f.places, f.text} {
			if text != "" {
				shown.Errors = append(shown.Errors, strings.Split(text, "\n")...)
			}
		}
		if shown.Errors != nil {
			// Errors of stderr cannot be reported to anybody.
			_ = printJSON(stderr, shown)
		}
		return f.code
	}
	if f.places != "" {
		fmt.Fprintln(stderr, f.places)
	}
	if f.text != "" {
		for line := range strings.SplitSeq(f.text, "\n") {
			fmt.Fprintf(stderr, "headgate: %s\n", line)
		}
	}
	if f.hint != "" {
		fmt.Fprintf(stderr, "  hint: %s\n", f.hint)
	}
	return f.code
}

// failureOf returns the exit code and the hint for an error of another package.
func failureOf(err error) *failure {
	var (
		f        *failure
		settings *app.SettingsError
		file     *config.Error
		invalid  *headgate.InvalidError
		address  *net.OpError
	)
	switch {
	case errors.As(err, &f):
		return f
	case errors.As(err, &settings):
		return usage(settings.Error(), "the command's --help describes each flag; one that is not on the command line comes from the environment, as --store does from HEADGATE_STORE")
	case errors.As(err, &file):
		// This is the usual format of tools, so that editors find the places.
		return &failure{code: CodeUsage, places: file.Error(), text: "the policy has " + count(len(file.Mistakes), "mistake"), hint: "docs/rules.md describes the file"}
	case errors.Is(err, policy.ErrUnknownRule):
		return usage(errtext.Text(err), "names are those in the policy file; GET /v1/rules of a server lists them")
	case errors.As(err, &invalid):
		return usage(joinLines(invalid.Problems.Texts()), "")
	case errors.Is(err, headgate.ErrUnavailable):
		return &failure{code: CodeUnavailable, text: errtext.Text(err), hint: "see whether it runs, and whether address, user, password and database are right"}
	case errors.Is(err, app.ErrUnavailable):
		hint := "see whether it is there and can be read"
		if errors.As(err, &address) && address.Op == "listen" {
			hint = "see which process has it, or give another one to the flag that names it"
		}
		return &failure{code: CodeUnavailable, text: errtext.Text(err), hint: hint}
	case isFileError(err):
		return usage(errtext.Text(err), "give the path of a policy file, or leave --config out for the sample policy")
	}
	return &failure{code: CodeNo, text: errtext.Text(err)}
}
