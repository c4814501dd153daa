// Command bench measures Headgate and its peers side by side and writes the
// tables into docs/benchmarks.md, and draws the charts in docs/benchmarks.
//
//	go run ./cmd/bench [-only PART] [-short] [-out FILE]
//	go run ./cmd/bench limiter [NUMBER]
//
// The second form starts a limiter of the part truth and prints the command that audits it, or lists
// them.
//
// Run it in the directory bench; -h names the parts. A run for the record takes 85 minutes, in
// which the machine should do nothing else. A short run takes about a minute: it shows that
// everything works, and prints its tables without writing them, unless -out names a file.
//
// Parts that need a Redis start the redis-server or valkey-server in the PATH. Parts that measure
// a server need the go command and Linux.
//
// It exits with 0 when everything was measured, with 1 when something failed, and with 2 when
// it was called wrongly. A bar that is not met is a row in a table, not a failure.
package main

import (
	"cmp"
	"context"
	"errors"
	"flag"
	"fmt"
	"io"
	"os"
	"os/signal"
	"slices"
	"strings"
	"syscall"

	"github.com/headgate/headgate/bench/internal/chart"
	"github.com/headgate/headgate/bench/internal/report"
	"github.com/headgate/headgate/bench/internal/serverbench"
	"github.com/headgate/headgate/bench/internal/truthbench"
)

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	os.Exit(run(ctx, os.Args[1:], os.Stdout, os.Stderr))
}

// charts is what -only says to draw the charts and measure nothing.
const charts = "charts"

// options are the command line.
type options struct {
	only  string
	short bool
	out   string
}

// names are those of all parts.
func names() []string {
	var all []string
	for _, p := range parts() {
		all = append(all, p.name)
	}
	return all
}

func run(ctx context.Context, args []string, stdout, stderr io.Writer) int {
	if len(args) > 0 && args[0] == "echo" {
		return echo(ctx, args[1:], stderr)
	}
	if len(args) > 0 && args[0] == "limiter" {
		return hold(ctx, strings.Join(args[1:], " "), stdout, stderr)
	}
	o, err := parse(args, stderr)
	if errors.Is(err, flag.ErrHelp) {
		return 0
	}
	if err != nil {
		return 2 // parse has said why.
	}
	if err := o.run(ctx, stdout, stderr); err != nil {
		fmt.Fprintln(stderr, "bench:", err)
		return 1
	}
	return 0
}

func parse(args []string, stderr io.Writer) (options, error) {
	var o options
	flags := flag.NewFlagSet("bench", flag.ContinueOnError)
	flags.SetOutput(stderr)
	flags.StringVar(&o.only, "only", "", "measure one part only: "+strings.Join(names(), ", ")+"; or "+charts+", to draw the charts of the tables anew")
	flags.BoolVar(&o.short, "short", false, "a run of about a minute, to see that everything works")
	flags.StringVar(&o.out, "out", "", "the document whose marked sections are replaced; \"-\" for none (default: docs/benchmarks.md; with -short none)")
	if err := flags.Parse(args); err != nil {
		return o, err
	}
	err := func() error {
		if flags.NArg() > 0 {
			return fmt.Errorf("there is an argument too many: %q", flags.Arg(0))
		}
		if o.only != "" && o.only != charts && !slices.Contains(names(), o.only) {
			return fmt.Errorf("-only is %q, must be one of %s", o.only, strings.Join(append(names(), charts), ", "))
		}
		return nil
	}()
	if err != nil {
		fmt.Fprintln(stderr, "bench:", err)
	}
	if o.out == "" && o.short {
		o.out = "-"
	}
	return o, err
}

// run measures the parts asked for, prints their tables, and writes them.
func (o *options) run(ctx context.Context, stdout, stderr io.Writer) error {
	progress := func(format string, args ...any) { fmt.Fprintf(stderr, format+"\n", args...) }
	var sections []report.Section
	for _, p := range parts() {
		if o.only != "" && o.only != p.name {
			continue
		}
		section, err := p.section(ctx, o.short, progress)
		if err != nil {
			return err
		}
		if section == nil {
			continue
		}
		fmt.Fprintf(stdout, "\n## %s\n\n%s\n", section.Name, section.Body)
		sections = append(sections, *section)
	}
	if o.out == "-" {
		return nil
	}
	page := cmp.Or(o.out, benchmarks)
	if sections != nil {
		if err := report.ReplaceFile(page, sections...); err != nil {
			return err
		}
		progress("written to %s", page)
	}
	if page != benchmarks {
		return nil
	}
	return chart.WriteBeside(page)
}

// hold starts one of the limiters of the part truth, or names them all.
func hold(ctx context.Context, number string, stdout, stderr io.Writer) int {
	w := work(false, func(format string, args ...any) { fmt.Fprintf(stderr, format+"\n", args...) })
	if err := within(w, func() error { return truthbench.Hold(ctx, w, number, stdout) }); err != nil {
		fmt.Fprintln(stderr, "bench:", err)
		return 1
	}
	return 0
}

// echo runs one of the servers that the service is held against.
func echo(ctx context.Context, args []string, stderr io.Writer) int {
	flags := flag.NewFlagSet("bench echo", flag.ContinueOnError)
	flags.SetOutput(stderr)
	listen := flags.String("listen", "127.0.0.1:0", "the address to listen on")
	handler := flags.String("handler", "json", "what to answer with: json or bytes over HTTP, or grpc; proxy, to have the upstream server answer; or limited or scarce, behind the middleware")
	upstream := flags.String("upstream", "", "the URL of that; or of the store with the counters, memory or none")
	if err := flags.Parse(args); err != nil {
		return 2
	}
	if err := serverbench.Echo(ctx, *listen, *handler, *upstream); err != nil {
		fmt.Fprintln(stderr, "bench:", err)
		return 1
	}
	return 0
}
