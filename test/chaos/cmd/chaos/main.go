// Command chaos breaks Redis and Valkey servers under load, alone, under Sentinel and
// as a Cluster, and writes what that costs into docs/failures.md.
//
//	go run ./chaos/cmd/chaos [-out FILE]
//
// Run it in the directory test. It takes about six minutes and needs redis-server and
// valkey-server in the PATH; it starts its own servers, on loopback ports.
//
// It exits with 0 when everything was measured and held, 1 when something was not as
// promised, and then writes nothing, 2 when it was called wrongly.
package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"io"
	"os"
	"os/signal"
	"runtime"
	"strings"
	"syscall"
	"time"

	"github.com/headgate/headgate/store/redis"
	"github.com/headgate/headgate/test/chaos"
	"github.com/headgate/headgate/test/servers"
)

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	os.Exit(run(ctx, os.Args[1:], os.Stdout, os.Stderr))
}

var plan = chaos.Plan{Timeout: redis.DefaultTimeout, Before: time.Second, Hold: 2 * time.Second, After: time.Second, Row: 20}

func run(ctx context.Context, args []string, stdout, stderr io.Writer) int {
	flags := flag.NewFlagSet("chaos", flag.ContinueOnError)
	flags.SetOutput(stderr)
	out := flags.String("out", "../docs/failures.md", "the document whose table is replaced")
	if err := flags.Parse(args); err != nil || flags.NArg() > 0 {
		if errors.Is(err, flag.ErrHelp) {
			return 0
		}
		fmt.Fprintln(stderr, "usage: chaos [-out FILE]")
		return 2
	}
	if err := measure(ctx, *out, stdout); err != nil {
		fmt.Fprintln(stderr, "chaos:", err)
		return 1
	}
	return 0
}

func measure(ctx context.Context, out string, stdout io.Writer) error {
	// Before six minutes are spent.
	if err := write(out, nil); err != nil {
		return err
	}
	var results []chaos.Result
	for _, topology := range chaos.Topologies() {
		for _, kind := range servers.Kinds() {
			h := &host{ctx: ctx, out: stdout}
			h.run(func() {
				place := chaos.NewPlace(h, kind, topology)
				for _, fault := range chaos.Faults(topology) {
					result := chaos.Run(h, place, fault, plan)
					fmt.Fprintf(stdout, "%+v\n", result)
					results = append(results, result)
				}
			})
			if h.failed {
				return fmt.Errorf("%s, %s: it was not as promised; nothing is written", topology, kind)
			}
		}
	}
	return write(out, results)
}

// write puts the results into the document, or only tries whether there is a place
// for them.
func write(out string, results []chaos.Result) error {
	old, err := os.ReadFile(out)
	if err != nil {
		return err
	}
	text, err := chaos.Write(string(old), how(), results)
	if err != nil {
		return fmt.Errorf("%s: %w", out, err)
	}
	if results == nil {
		return nil
	}
	info, err := os.Stat(out)
	if err != nil {
		return err
	}
	return os.WriteFile(out, []byte(text), info.Mode().Perm())
}

func how() string {
	return strings.Join([]string{
		fmt.Sprintf("Measured on %s with %d processors that all servers and callers shared, on %s: 16 goroutines took single units of 24 limits,",
			runtime.GOOS+"/"+runtime.GOARCH, runtime.NumCPU(), time.Now().UTC().Format(time.DateOnly)),
		fmt.Sprintf("a quarter of the requests under two of them, with a pause of 1 ms and a deadline of %v. Sentinels and nodes of the", plan.Timeout),
		"Cluster were told to miss a server after 0.5 s and 1 s; with their defaults, 30 s and 15 s, failovers take that much longer.",
	}, "\n")
}
