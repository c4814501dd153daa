// Command chaos breaks Redis and Valkey servers under load, alone, under Sentinel and
// as a Cluster, and writes what that costs into docs/failures.md.
//
//	go run ./chaos/cmd/chaos [-out FILE] [-part faults|pauses|regions] [-of NAME]
//
// Then it stops each kind of store for a moment and for long, while requests come to the program
// by all doors, and writes that table, too. -part has it do one of both, and -of one topology or
// store of them; what the tables have of others stays. -part regions has three regions keep one limit instead, breaks what is between them, and writes the table of docs/regions.md.
//
// Run it in the directory test. It takes about fifteen minutes and needs redis-server,
// valkey-server, memcached, Go, and PostgreSQL's programs in the PATH; it starts its own servers, on loopback ports.
//
// It exits with 0 when everything was measured and held, 1 when something was not as
// promised, and then writes nothing, 2 when it was called wrongly.
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
	"runtime"
	"slices"
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
	out := flags.String("out", "", "the document whose table is replaced; empty: ../docs/failures.md, or ../docs/regions.md")
	part := flags.String("part", "", "what to measure: faults, pauses, both of these if empty, or regions")
	of := flags.String("of", "", "which topology or store to measure, by its name in the tables, or all if empty")
	err := flags.Parse(args)
	if errors.Is(err, flag.ErrHelp) {
		return 0
	}
	topologies, stores := chaos.Topologies(), chaos.OutsideStores()
	if *of != "" {
		topologies = slices.DeleteFunc(topologies, func(t chaos.Topology) bool { return string(t) != *of })
		stores = slices.DeleteFunc(stores, func(s string) bool { return s != *of })
	}
	switch *part {
	case "faults":
		stores = nil
	case "pauses":
		topologies = nil
	}
	if err != nil || flags.NArg() > 0 || !slices.Contains([]string{"", "faults", "pauses", "regions"}, *part) || len(topologies)+len(stores) == 0 {
		fmt.Fprintln(stderr, "usage: chaos [-out FILE] [-part faults|pauses|regions] [-of NAME]")
		return 2
	}
	if *part == "regions" {
		err = measureRegions(ctx, cmp.Or(*out, "../docs/regions.md"), stdout)
	} else {
		err = measure(ctx, cmp.Or(*out, "../docs/failures.md"), topologies, stores, stdout)
	}
	if err != nil {
		fmt.Fprintln(stderr, "chaos:", err)
		return 1
	}
	return 0
}

func measure(ctx context.Context, out string, topologies []chaos.Topology, stores []string, stdout io.Writer) error {
	// Before minutes are spent.
	document, err := os.ReadFile(out)
	if err != nil {
		return err
	}
	if _, err := chaos.WriteFaults(string(document), "", nil); err != nil {
		return fmt.Errorf("%s: %w", out, err)
	}
	if _, err := chaos.WritePauses(string(document), "", nil); err != nil {
		return fmt.Errorf("%s: %w", out, err)
	}
	text := string(document)
	if len(stores) > 0 {
		results, err := pauses(ctx, stores, stdout)
		if err != nil {
			return err
		}
		if text, err = chaos.WritePauses(text, machine()+", with the defaults and rules that say `deny`: 500 requests a second,\nwhich did not wait for one another.", results); err != nil {
			return err
		}
	}
	if len(topologies) > 0 {
		results, err := faults(ctx, topologies, stdout)
		if err != nil {
			return err
		}
		if text, err = chaos.WriteFaults(text, how(), results); err != nil {
			return err
		}
	}
	return replace(out, text)
}

func replace(out, text string) error {
	info, err := os.Stat(out)
	if err != nil {
		return err
	}
	return os.WriteFile(out, []byte(text), info.Mode().Perm())
}

func measureRegions(ctx context.Context, out string, stdout io.Writer) error {
	document, err := os.ReadFile(out)
	if err != nil {
		return err
	}
	if _, err := chaos.WriteRegions(string(document), "", new(chaos.Regions)); err != nil {
		return fmt.Errorf("%s: %w", out, err)
	}
	h := &host{ctx: ctx, out: stdout}
	var result chaos.Regions
	h.run(func() {
		result = chaos.RunRegions(h, chaos.RegionsPlan{Settle: 12 * time.Second, Measure: 10 * time.Second, Faults: 50 * time.Second})
	})
	if h.failed {
		return errors.New("regions: it was not as promised; nothing is written")
	}
	text, err := chaos.WriteRegions(string(document), machine()+":\nthree regions with a Redis and two servers each, and a home in another Redis, 2, 80 and 150 ms away.\nAt the end lines were cut and lost connections, servers were killed, clocks set back, the limit was\nchanged and the home failed over, at random.", &result)
	if err != nil {
		return err
	}
	return replace(out, text)
}

func pauses(ctx context.Context, stores []string, stdout io.Writer) (results []chaos.Outside, err error) {
	short := []time.Duration{30 * time.Millisecond, 80 * time.Millisecond, 300 * time.Millisecond}
	for _, store := range stores {
		h := &host{ctx: ctx, out: stdout}
		h.run(func() {
			result := chaos.RunOutside(h, store, short, 20*time.Second)
			fmt.Fprintf(stdout, "%+v\n", result)
			results = append(results, result)
		})
		if h.failed {
			return nil, fmt.Errorf("%s: it was not as promised; nothing is written", store)
		}
	}
	return results, nil
}

func faults(ctx context.Context, topologies []chaos.Topology, stdout io.Writer) (results []chaos.Result, err error) {
	for _, topology := range topologies {
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
				return nil, fmt.Errorf("%s, %s: it was not as promised; nothing is written", topology, kind)
			}
		}
	}
	return results, nil
}

func machine() string {
	return fmt.Sprintf("Measured on %s with %d processors that all servers and callers shared, on %s",
		runtime.GOOS+"/"+runtime.GOARCH, runtime.NumCPU(), time.Now().UTC().Format(time.DateOnly))
}

func how() string {
	return strings.Join([]string{
		machine() + ": 16 goroutines took single units of 24 limits,",
		fmt.Sprintf("a quarter of the requests under two of them, with a pause of 1 ms and a deadline of %v. Sentinels and nodes of the", plan.Timeout),
		"Cluster were told to miss a server after 0.5 s and 1 s; with their defaults, 30 s and 15 s, failovers take that much longer.",
	}, "\n")
}
