package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"io"
	"os"
	"os/exec"
	"os/signal"
	"path/filepath"
	"strings"
)

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt)
	defer stop()
	if err := run(ctx, os.Args[1:], os.Stdout); err != nil {
		fmt.Fprintln(os.Stderr, "release:", err)
		os.Exit(1)
	}
}

var errUsage = errors.New("usage: release check | tidy [-write] | proxy DIR | tags | packages [-snapshot] [-nfpm PROGRAM] [-flit DIR] [-maven ARGUMENTS] [-into DIR] [OS/ARCH…]")

func run(ctx context.Context, args []string, out io.Writer) error {
	if len(args) == 0 {
		return errUsage
	}
	flags := flag.NewFlagSet("release "+args[0], flag.ContinueOnError)
	var write bool
	if args[0] == "tidy" {
		flags.BoolVar(&write, "write", false, "write the tidy files into the repository")
	}
	p := new(packaging)
	if args[0] == "packages" {
		flags.BoolVar(&p.snapshot, "snapshot", false, "take the tree as it is, without a tag")
		flags.StringVar(&p.nfpm, "nfpm", "nfpm", "the program that makes packages of Linux")
		flags.StringVar(&p.flit, "flit", "", "a directory with flit_core, which builds packages of Python (default: it is fetched)")
		flags.StringVar(&p.maven, "maven", "", "further arguments for Maven")
		flags.StringVar(&p.dir, "into", "", "the directory for what is made, which is emptied first (default: bin/packages)")
	}
	if err := flags.Parse(args[1:]); err != nil {
		return err
	}
	r, err := open(ctx)
	if err != nil {
		return err
	}
	switch {
	case args[0] == "tags" && flags.NArg() == 0:
		r.printTags(out)
		return nil
	case args[0] == "packages":
		p.r = r
		if p.dir == "" {
			p.dir = filepath.Join(r.Top, "bin", "packages")
		}
		return p.make(ctx, flags.Args(), out)
	case args[0] == "proxy" && flags.NArg() == 1:
		return r.proxy(flags.Arg(0), out)
	case args[0] == "check" && flags.NArg() == 0, args[0] == "tidy" && flags.NArg() == 0:
		return r.examine(ctx, args[0] == "check", write, out)
	}
	return errUsage
}

// Release is a version of all modules of a repository.
type Release struct {
	// Top is the repository's directory, Version the version of all modules.
	Top, Version string
	Modules      []*Module
}

// open reads the repository around the working directory.
func open(ctx context.Context) (*Release, error) {
	out, err := exec.CommandContext(ctx, "git", "rev-parse", "--show-toplevel").Output()
	if err != nil {
		return nil, fmt.Errorf("looking for the repository: %w", exitText(err))
	}
	r := &Release{Top: strings.TrimSpace(string(out))}
	if r.Version, err = workspaceVersion(filepath.Join(r.Top, "go.work")); err != nil {
		return nil, err
	}
	r.Modules, err = findModules(ctx, r.Top)
	return r, err
}

// Publish writes the release into the directory of a module proxy, unless a module could not be
// imported.
func (r *Release) Publish(proxy string) error {
	var problems []error
	for _, m := range r.Modules {
		problems = append(problems, m.check(r.Version))
	}
	if err := errors.Join(problems...); err != nil {
		return err
	}
	for _, m := range r.Modules {
		if err := m.pack(r.Top, proxy, r.Version); err != nil {
			return err
		}
	}
	return nil
}

// printTags prints what publishes the release. The order does not matter: all tags are pushed at
// once, so that no proxy is asked for a module whose sibling is not there yet.
func (r *Release) printTags(out io.Writer) {
	var all []string
	for _, m := range r.Modules {
		if !m.published {
			continue
		}
		fmt.Fprintf(out, "git tag -a -m 'Headgate %s' %s\n", r.Version, m.tag(r.Version))
		all = append(all, m.tag(r.Version))
	}
	fmt.Fprintln(out, "git push --atomic origin", strings.Join(all, " "))
}

func (r *Release) proxy(dir string, out io.Writer) error {
	dir, err := filepath.Abs(dir)
	if err != nil {
		return err
	}
	if err := r.Publish(dir); err != nil {
		return err
	}
	fmt.Fprintf(out, "export GOPROXY=%s,$(go env GOPROXY) GONOSUMDB=%s,%s/*\n", fileURL(dir), prefix, prefix)
	return nil
}

// examine looks at each module on its own: whether it is tidy, and with vet, whether it builds.
func (r *Release) examine(ctx context.Context, vet, write bool, out io.Writer) (err error) {
	scratch, err := os.MkdirTemp("", "headgate-release-")
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, os.RemoveAll(scratch)) }()
	proxy := filepath.Join(scratch, "proxy")
	if err := r.Publish(proxy); err != nil {
		return err
	}
	env, err := Environment(ctx, proxy, filepath.Join(scratch, "cache"))
	if err != nil {
		return err
	}
	var problems []error
	for i, m := range r.Modules {
		dir := filepath.Join(scratch, fmt.Sprint("module", i))
		err := m.examine(ctx, proxy, r.Version, dir, env, vet && m.published)
		var untidy *untidyError
		if write && errors.As(err, &untidy) {
			err = untidy.tidy.write(filepath.Join(r.Top, filepath.FromSlash(m.dir)))
		}
		if err != nil {
			problems = append(problems, err)
			continue
		}
		fmt.Fprintln(out, "ok", m.path, r.Version)
	}
	return errors.Join(problems...)
}
