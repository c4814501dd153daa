package measure

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"time"

	"github.com/headgate/headgate/bench/internal/report"
	"github.com/headgate/headgate/bench/internal/servers"
)

// Part measures something and returns its section of the document.
type Part func(ctx context.Context, w *Work) (*report.Text, error)

// Work is what a part is run with.
type Work struct {
	// Short says that the run is only to show whether everything works.
	Short bool
	// Tell is told what is being measured; nil if nobody wants to know.
	Tell func(format string, args ...any)
	// Program is this program, whose command "echo" is a server to compare with.
	Program string
	// Source is the directory of the server's module.
	Source string
	// Dir is a directory that is removed after the run.
	Dir string
	// Redis is a server that nobody else uses, if the part asks for one.
	Redis *servers.Redis
}

// Choose returns the plan for a run for the record, or the one for a short run.
func Choose[P any](w *Work, full, short P) P {
	if w.Short {
		return short
	}
	return full
}

// Say tells what is being measured.
func (w *Work) Say(format string, args ...any) {
	if w.Tell != nil {
		w.Tell(format, args...)
	}
}

// Server builds Headgate's server.
func (w *Work) Server(ctx context.Context) (string, error) {
	w.Say("building the server")
	return servers.Build(ctx, w.Source, w.Dir)
}

// Write puts a file into the directory and returns its name.
func (w *Work) Write(name, text string) (string, error) {
	path := filepath.Join(w.Dir, name)
	if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
		return "", fmt.Errorf("measure: %w", err)
	}
	return path, nil
}

// Plan is how much a part measures. A part that has more to say embeds it.
type Plan struct {
	// Rounds is how often everything is measured, and Slice how long each measurement lasts.
	Rounds int
	Slice  time.Duration
	// Callers is how many ask at the same time, and Keys how many keys they ask for.
	Callers, Keys int
}

// Rows are measured side by side and shown in one table.
type Rows []Row

// Turns measures all rows in each round, under one condition after the other. It goes on with the
// next condition when all rows were measured, and each round begins with another row. Without
// conditions there is one, 0.
func (p *Plan) Turns(ctx context.Context, w *Work, rows Rows, conditions []int, measure func(round, condition, row int) (Sample, error)) error {
	if conditions == nil {
		conditions = []int{0}
	}
	for round := range p.Rounds {
		for _, condition := range conditions {
			for i := range rows {
				if err := ctx.Err(); err != nil {
					return err
				}
				r := &rows[(i+round)%len(rows)]
				w.Say("round %d of %d: %s", round+1, p.Rounds, r.Name)
				s, err := measure(round, condition, (i+round)%len(rows))
				if err != nil {
					return fmt.Errorf("%s: %w", r.Name, err)
				}
				r.Add(condition, s)
			}
		}
	}
	return nil
}
