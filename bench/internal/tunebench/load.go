package tunebench

import (
	"context"
	"fmt"
	"math"
	"net"
	"net/http"
	"strings"
	"sync"
	"time"

	"github.com/headgate/headgate/bench/internal/measure"
	"github.com/headgate/headgate/bench/internal/report"
	"github.com/headgate/headgate/bench/internal/servers"
)

// LoadPlan is how the generators are measured.
type LoadPlan struct {
	// Rate is asked for where the rate is measured, and Modest where the tail is.
	Rate, Modest int
	// For is how long each of both takes, and Stall for how long the server stalls then.
	For, Stall time.Duration
	Rounds     int
}

// LoadFull is the plan for the record, and LoadShort one that shows that it works.
func LoadFull() LoadPlan {
	return LoadPlan{Rate: 10_000, Modest: 400, For: 10 * time.Second, Stall: time.Second, Rounds: 3}
}

// LoadShort is described at [LoadFull].
func LoadShort() LoadPlan {
	return LoadPlan{Rate: 1000, Modest: 200, For: 3 * time.Second, Stall: 300 * time.Millisecond, Rounds: 1}
}

// Generated is what one generator has shown.
type Generated struct {
	generator
	missing bool
	// Held is the rate sent over the rate asked for, CPU the time that it used for a
	// request, in microseconds, and Tail the p99 told, in milliseconds, when the server
	// had stalled. Lag is the p99 that it says it was late itself.
	Held, CPU, Tail, Lag []float64
}

// LoadOutcome is what a run has measured.
type LoadOutcome struct {
	Plan LoadPlan
	All  []*Generated
}

// Load measures headgate load beside other generators of load.
func Load(ctx context.Context, w *measure.Work) (*report.Text, error) {
	binary, err := w.Server(ctx)
	if err != nil {
		return nil, err
	}
	o, err := runLoad(ctx, w, measure.Choose(w, LoadFull(), LoadShort()), binary)
	if err != nil {
		return nil, err
	}
	text := new(report.Text)
	text.Say("%s", o.text())
	text.Bars = o.bars()
	return text, nil
}

// runLoad measures all generators that are there. Ours is the program of that name.
func runLoad(ctx context.Context, w *measure.Work, plan LoadPlan, headgate string) (*LoadOutcome, error) {
	s, err := serve(ctx)
	if err != nil {
		return nil, err
	}
	defer s.close()
	o := &LoadOutcome{Plan: plan}
	var programs []string
	for _, g := range generators() {
		name, _, _ := strings.Cut(g.name, ",")
		program := headgate
		if name != "headgate" {
			program = servers.Find(name)
		}
		programs = append(programs, program)
		o.All = append(o.All, &Generated{generator: g, missing: program == ""})
	}
	for round := range plan.Rounds {
		for i := range o.All {
			// Each round begins with another one.
			n := (i + round) % len(o.All)
			if o.All[n].missing {
				continue
			}
			w.Say("round %d of %d, %s", round+1, plan.Rounds, o.All[n].name)
			if err := o.All[n].measure(ctx, &plan, s, programs[n]); err != nil {
				return nil, err
			}
		}
	}
	return o, nil
}

// measure runs a generator twice: at the full rate, and at a modest one against a server
// that stalls in the middle.
func (g *Generated) measure(ctx context.Context, plan *LoadPlan, s *server, program string) error {
	// Ours exits with 1 if it was late itself.
	s.stall(0, 0)
	u, t, err := g.run(ctx, program, plan.Rate, connections, plan.For, s.url)
	if err != nil {
		return err
	}
	g.CPU = append(g.CPU, float64(u.cpu.Microseconds())/float64(max(t.sent, 1)))
	if !g.closed {
		g.Held = append(g.Held, float64(t.sent)/(float64(plan.Rate)*plan.For.Seconds()))
	}
	if t.lag >= 0 {
		g.Lag = append(g.Lag, t.lag.Seconds()*1000)
	}
	s.stall(plan.For/2, plan.Stall)
	_, t, err = g.run(ctx, program, plan.Modest, few, plan.For, s.url)
	g.Tail = append(g.Tail, t.p99.Seconds()*1000)
	return err
}

func (g *generator) run(ctx context.Context, program string, rate, n int, d time.Duration, url string) (used, reported, error) {
	u, err := timed(ctx, nil, 1, program, g.args(rate, n, d, url)...)
	if err != nil {
		return u, reported{}, err
	}
	t, err := g.read(u.out)
	if err != nil {
		return u, t, fmt.Errorf("tunebench: what %s says cannot be read: %w", g.name, err)
	}
	return u, t, nil
}

// server answers at once, but for when it stalls.
type server struct {
	url   string
	close func()

	mu         sync.Mutex
	first      time.Time // when the first request came since stall was called
	after, dur time.Duration
}

func serve(ctx context.Context) (*server, error) {
	var lc net.ListenConfig
	l, err := lc.Listen(ctx, "tcp", "127.0.0.1:0")
	if err != nil {
		return nil, fmt.Errorf("tunebench: %w", err)
	}
	s := &server{url: "http://" + l.Addr().String() + "/"}
	h := &http.Server{Handler: s, ReadHeaderTimeout: 10 * time.Second}
	var ended sync.WaitGroup
	ended.Go(func() { _ = h.Serve(l) }) // It ends with close.
	s.close = func() {
		_ = h.Close() // Nothing is measured any more.
		ended.Wait()
	}
	return s, nil
}

// stall has the server stall for a while, a time after its next request.
func (s *server) stall(after, d time.Duration) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.first, s.after, s.dur = time.Time{}, after, d
}

func (s *server) ServeHTTP(w http.ResponseWriter, _ *http.Request) {
	s.mu.Lock()
	if s.first.IsZero() {
		s.first = time.Now()
	}
	from := s.first.Add(s.after)
	end := from.Add(s.dur)
	s.mu.Unlock()
	if now := time.Now(); now.After(from) && now.Before(end) {
		time.Sleep(end.Sub(now))
	}
	_, _ = w.Write([]byte("ok"))
}

// tail is the p99 that is true, in milliseconds: a server that stalls for S once in T keeps
// the part S/T of its clients waiting, evenly for 0 to S.
func (p *LoadPlan) tail() float64 { return (p.Stall - p.For/100).Seconds() * 1000 }

// text is the table.
func (o *LoadOutcome) text() string {
	p := &o.Plan
	var b strings.Builder
	fmt.Fprintf(&b, "Median of %d rounds of %v. The rate is measured at %s requests a second over %d connections. The tail is measured at %d a second over %d, "+
		"with a server that stalls once for %v: 99 %% of the requests took %s ms or less, counted from when they were due.\n\n",
		p.Rounds, p.For, report.Number(float64(p.Rate)), connections, p.Modest, few, p.Stall, report.Number(p.tail()))
	t := report.Table{Columns: []string{"", "rate sent ÷ asked for", "p99 told ÷ true", "sender's delay told, p99, ms", "CPU a request, µs"}}
	for _, g := range o.All {
		if g.missing {
			t.Add(g.name, "not installed")
			continue
		}
		held := "no rate"
		if !g.closed {
			held = fmt.Sprintf("%.4f", report.Median(g.Held))
		}
		t.Add(g.name, held, fmt.Sprintf("%.3f", report.Median(g.Tail)/p.tail()), report.Number(report.Median(g.Lag)), report.Number(report.Median(g.CPU)))
	}
	b.WriteString(t.String())
	b.WriteByte('\n')
	for _, g := range o.All {
		fmt.Fprintf(&b, "- **%s**: %s.\n", g.name, g.note)
	}
	return b.String()
}

// bars holds ours against the bounds that the project has set itself.
func (o *LoadOutcome) bars() []report.Bar {
	ours, hey := o.of("headgate"), o.of("hey")
	return []report.Bar{
		{What: "headgate: rate off by, %", Bound: 0.1, AtMost: true, Got: 100 * math.Abs(report.Median(ours.Held)-1)},
		{What: "headgate: sender's delay, p99, ms", Bound: 1, AtMost: true, Got: report.Median(ours.Lag)},
		{What: "headgate: p99 off by, %", Bound: 2, AtMost: true, Got: 100 * math.Abs(report.Median(ours.Tail)/o.Plan.tail()-1)},
		{What: "headgate: CPU a request ÷ hey's", Bound: 1, AtMost: true, Got: report.Ratio(report.Median(ours.CPU), report.Median(hey.CPU))},
	}
}

func (o *LoadOutcome) of(name string) *Generated {
	for _, g := range o.All {
		if g.name == name {
			return g
		}
	}
	return new(Generated)
}
