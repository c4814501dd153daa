// Package consumerbench measures our Kafka consumer beside the loops that the examples of other
// clients show.
//
// # Basics
//
// [Run] runs the benchmark of test/kafka, which starts a broker of its own, once for each round,
// and reads what it reports.
//
// # Caveats
//
// The broker and the consumers share the processors. Joining a group counts.
package consumerbench

import (
	"context"
	"errors"
	"fmt"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"

	"github.com/headgate/headgate/bench/internal/measure"
	"github.com/headgate/headgate/bench/internal/report"
)

// What is read from the benchmark: its loads, its consumers, and its units.
var (
	loads     = []struct{ name, text string }{{"nothing", "handlers do nothing"}, {"1ms", "handlers take 1 ms"}}
	consumers = []string{"franz-go, a loop", "sarama, a group", "Headgate, by partition", "Headgate, by key", "Headgate, unordered"}
)

const (
	perSecond = "records/s"
	processor = "CPU-µs/record"
)

// figures are what was reported, by load, consumer and unit, round by round.
type figures map[string][]float64

func (f figures) of(load, consumer, unit string) []float64 {
	return f[load+"/"+consumer+" "+unit]
}

// over is the median of a consumer's throughput as a part of another one's in the same round.
func (f figures) over(load, consumer, base string) float64 {
	ours, theirs := f.of(load, consumer, perSecond), f.of(load, base, perSecond)
	ratios := make([]float64, min(len(ours), len(theirs)))
	for i := range ratios {
		ratios[i] = report.Ratio(ours[i], theirs[i])
	}
	return report.Median(ratios)
}

// Run measures all consumers.
func Run(ctx context.Context, w *measure.Work) (*report.Text, error) {
	rounds := measure.Choose(w, 5, 1)
	f := make(figures)
	for round := range rounds {
		w.Say("round %d of %d", round+1, rounds)
		args := []string{"test", "-vet=off", "-run", "^$", "-bench", "^BenchmarkConsumers$", "-benchtime", "1x"}
		if w.Short {
			args = append(args, "-short")
		}
		cmd := exec.CommandContext(ctx, "go", append(args, "./kafka")...)
		cmd.Dir = filepath.Join(w.Source, "..", "test")
		out, err := cmd.Output()
		if err != nil {
			if ended, ok := errors.AsType[*exec.ExitError](err); ok {
				return nil, fmt.Errorf("consumerbench: %w:\n%s%s", err, out, ended.Stderr)
			}
			return nil, fmt.Errorf("consumerbench: %w", err)
		}
		if err := f.read(string(out)); err != nil {
			return nil, err
		}
	}
	return f.text(rounds), nil
}

// read takes in what the benchmark has printed.
func (f figures) read(out string) error {
	found := 0
	for line := range strings.Lines(out) {
		name, rest, _ := strings.Cut(line, "\t")
		name, ok := strings.CutPrefix(name, "BenchmarkConsumers/")
		if !ok {
			continue
		}
		name = strings.TrimSpace(name)
		if i := strings.LastIndexByte(name, '-'); i > 0 { // followed by the number of processors
			name = name[:i]
		}
		name = strings.ReplaceAll(name, "_", " ")
		fields := strings.Fields(rest)
		for i := 2; i < len(fields); i += 2 { // after the number of runs
			n, err := strconv.ParseFloat(fields[i-1], 64)
			if err != nil {
				return fmt.Errorf("consumerbench: reading %q: %w", line, err)
			}
			f[name+" "+fields[i]] = append(f[name+" "+fields[i]], n)
		}
		found++
	}
	if want := len(loads) * len(consumers); found != want {
		return fmt.Errorf("consumerbench: %d figures in what the benchmark has printed, must be %d:\n%s", found, want, out)
	}
	return nil
}

func (f figures) text(rounds int) *report.Text {
	t := new(report.Text)
	t.Say("One process reads a topic of four partitions from its beginning, 200,000 records of 100 bytes where handlers do nothing and 4,000 where they take 1 ms; median of %d rounds. Ours has 64 workers.\n\n", rounds)
	table := report.Table{Columns: []string{"", "records/s", "÷ franz-go", "CPU a record, µs"}}
	for _, load := range loads {
		for _, c := range consumers {
			table.Add(load.text+": "+c, report.Number(report.Median(f.of(load.name, c, perSecond))),
				report.Times(f.over(load.name, c, consumers[0])), report.Number(report.Median(f.of(load.name, c, processor))))
		}
	}
	t.Say("%s", table.String())
	t.AtLeast(10, f.over("1ms", "Headgate, by key", consumers[0]), "handlers take 1 ms: throughput in order by key ÷ a loop of franz-go")
	t.AtLeast(0.5, f.over("nothing", "Headgate, by key", consumers[1]), "handlers do nothing: throughput in order by key ÷ sarama")
	return t
}
