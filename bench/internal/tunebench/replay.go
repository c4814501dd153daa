package tunebench

import (
	"bufio"
	"bytes"
	"compress/gzip"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strings"
	"time"

	"github.com/headgate/headgate/bench/internal/measure"
	"github.com/headgate/headgate/bench/internal/report"
	"github.com/headgate/headgate/bench/internal/servers"
)

// ReplayPlan is how the readers of logs are measured.
type ReplayPlan struct {
	// Copies is how often the log of 10,000 lines is repeated, four days later and with
	// other clients each time.
	Copies, Rounds int
}

// ReplayFull is the plan for the record, and ReplayShort one that shows that it works.
func ReplayFull() ReplayPlan { return ReplayPlan{Copies: 100, Rounds: 5} }

// ReplayShort is described at [ReplayFull].
func ReplayShort() ReplayPlan { return ReplayPlan{Copies: 10, Rounds: 1} }

// reader is a program that reads logs.
type reader struct {
	name, note string
	program    string // "" if it is not there
	args       []string
	fine       int
	samples    []used
}

// ReplayOutcome is what a run has measured.
type ReplayOutcome struct {
	Plan    ReplayPlan
	lines   int
	bytes   int64
	readers []*reader
}

// rules are what the replay decides by.
const rules = "rules:\n  - { name: client, per: [ip], limits: [30 per 1m burst 40] }\n  - { name: everyone, per: all, limits: [1000 per 1s] }\n"

// Replay measures headgate replay beside other readers of access logs.
func Replay(ctx context.Context, w *measure.Work) (*report.Text, error) {
	binary, err := w.Server(ctx)
	if err != nil {
		return nil, err
	}
	small := filepath.Join(w.Source, "..", "tune", "testdata", "access.log.gz")
	o, err := runReplay(ctx, w, measure.Choose(w, ReplayFull(), ReplayShort()), binary, small, w.Dir)
	if err != nil {
		return nil, err
	}
	text := new(report.Text)
	text.Say("%s", o.text())
	text.Bars = o.bars()
	return text, nil
}

// runReplay makes a large log of a small one in a directory, and has all readers that are
// there read it. Ours is the program of that name.
func runReplay(ctx context.Context, w *measure.Work, plan ReplayPlan, headgate, small, dir string) (*ReplayOutcome, error) {
	log, policy := filepath.Join(dir, "access.log"), filepath.Join(dir, "policy.yaml")
	o := &ReplayOutcome{Plan: plan}
	var err error
	if o.lines, o.bytes, err = enlarge(small, log, plan.Copies); err != nil {
		return nil, fmt.Errorf("tunebench: %w", err)
	}
	if err := os.WriteFile(policy, []byte(rules), 0o600); err != nil {
		return nil, fmt.Errorf("tunebench: %w", err)
	}
	ours := []string{"replay", "--quiet", "--json", "--config", policy, "--format", "combined"}
	o.readers = []*reader{
		{name: "headgate replay", note: "decisions by two rules, without the curve of other limits", program: headgate, args: append(ours, "--curve", "0", log)},
		{name: "headgate replay, with the curve", note: "as it is unless told otherwise: other limits are tried with the first 200,000 requests", program: headgate, args: append(ours, log)},
		{name: "goaccess", note: "`--log-format=COMBINED -o json`: its usual report", program: servers.Find("goaccess"), args: []string{log, "--log-format=COMBINED", "--no-global-config", "-o", filepath.Join(dir, "report.json")}},
		{name: "mawk", note: "`{n[$1]++}`: lines by client, and nothing else", program: servers.Find("mawk"), args: []string{"{n[$1]++} END {for (k in n) c++; print c}", log}},
	}
	for round := range plan.Rounds {
		for i := range o.readers {
			r := o.readers[(i+round)%len(o.readers)]
			if r.program == "" {
				continue
			}
			w.Say("round %d of %d, %s", round+1, plan.Rounds, r.name)
			u, err := timed(ctx, nil, r.fine, r.program, r.args...)
			if err != nil {
				return nil, err
			}
			r.samples = append(r.samples, u)
		}
	}
	return o, nil
}

// enlarge repeats a log: each copy is four days later than the one before, with the same
// number of other clients.
func enlarge(small, large string, copies int) (lines int, size int64, err error) {
	in, err := os.Open(small)
	if err != nil {
		return 0, 0, err
	}
	defer in.Close()
	z, err := gzip.NewReader(in)
	if err != nil {
		return 0, 0, err
	}
	text, err := io.ReadAll(z)
	if err != nil {
		return 0, 0, err
	}
	out, err := os.Create(large)
	if err != nil {
		return 0, 0, err
	}
	w := bufio.NewWriterSize(out, 1<<20)
	for n := range copies {
		for line := range bytes.Lines(text) {
			moved, err := move(line, n)
			if err != nil {
				return 0, 0, errors.Join(err, out.Close())
			}
			lines++
			size += int64(len(moved))
			// The error is Flush's.
			_, _ = w.Write(moved)
		}
	}
	return lines, size, errors.Join(w.Flush(), out.Close())
}

const stamp = "02/Jan/2006:15:04:05 -0700"

// move puts a line of a log into copy n: another client, four days later each.
func move(line []byte, n int) ([]byte, error) {
	ip, rest, _ := bytes.Cut(line, []byte(" "))
	from, to := bytes.IndexByte(rest, '['), bytes.IndexByte(rest, ']')
	if from < 0 || to < from {
		return nil, fmt.Errorf("the line %q has no time", line)
	}
	at, err := time.Parse(stamp, string(rest[from+1:to]))
	if err != nil {
		return nil, err
	}
	var out bytes.Buffer
	// The first two numbers of an address are moved along, which keeps it one.
	parts := strings.SplitN(string(ip), ".", 3)
	if len(parts) == 3 {
		fmt.Fprintf(&out, "%d.%s.%s ", 1+n%223, parts[1], parts[2])
		if n >= 223 {
			out.Reset()
			fmt.Fprintf(&out, "%d.%d.%s ", 1+n%223, n/223, parts[2])
		}
	} else {
		fmt.Fprintf(&out, "%s ", ip)
	}
	out.Write(rest[:from+1])
	out.WriteString(at.AddDate(0, 0, 4*n).Format(stamp))
	out.Write(rest[to:])
	return out.Bytes(), nil
}

// perCore is how many lines a second a reader reads with one core.
func (o *ReplayOutcome) perCore(name string) float64 {
	for _, r := range o.readers {
		if r.name == name {
			return report.MedianOf(r.samples, func(u used) float64 { return float64(o.lines) / u.cpu.Seconds() })
		}
	}
	panic("tunebench: there is no reader " + name)
}

// text is the table.
func (o *ReplayOutcome) text() string {
	var b strings.Builder
	fmt.Fprintf(&b, "The log of `tune/testdata` %d times, each time four days later and with other clients: %s lines, %s MB, not compressed; median of %d rounds.\n\n",
		o.Plan.Copies, report.Number(float64(o.lines)), report.Number(float64(o.bytes)/1e6), o.Plan.Rounds)
	t := report.Table{Columns: []string{"", "lines a CPU second", "lines a second", "memory, MB"}}
	for _, r := range o.readers {
		if r.program == "" {
			t.Add(r.name, "not installed")
			continue
		}
		t.Add(r.name, report.Number(o.perCore(r.name)), report.Number(report.MedianOf(r.samples, func(u used) float64 { return float64(o.lines) / u.wall.Seconds() })),
			report.Number(report.MedianOf(r.samples, func(u used) float64 { return float64(u.memory) / 1e6 })))
	}
	b.WriteString(t.String())
	b.WriteByte('\n')
	for _, r := range o.readers {
		fmt.Fprintf(&b, "- **%s**: %s.\n", r.name, r.note)
	}
	return b.String()
}

// bars holds ours against the bounds that the project has set itself.
func (o *ReplayOutcome) bars() []report.Bar {
	const ours, curve = "headgate replay", "headgate replay, with the curve"
	memory := report.MedianOf(o.readers[1].samples, func(u used) float64 { return float64(u.memory) / 1e6 })
	return []report.Bar{
		{What: "replay: million lines a CPU second", Bound: 1, Got: o.perCore(ours) / 1e6},
		{What: "replay with the curve: million lines a CPU second", Bound: 1, Got: o.perCore(curve) / 1e6},
		{What: "replay ÷ goaccess, lines a CPU second", Bound: 8, Got: report.Ratio(o.perCore(ours), o.perCore("goaccess"))},
		{What: "replay ÷ mawk, lines a CPU second", Bound: 0.6, Got: report.Ratio(o.perCore(ours), o.perCore("mawk"))},
		{What: "replay with the curve: memory, MB", Bound: 300, AtMost: true, Got: memory},
	}
}
