package cli

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"os"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/headgate/headgate/internal/errtext"
	"github.com/headgate/headgate/tune/load"
	tunereport "github.com/headgate/headgate/tune/report"
)

// loadRequest is the command that sends requests and measures.
type loadRequest struct {
	URL string `arg:"" name:"url" help:"URL to request, such as http://127.0.0.1:8080/, or redis://127.0.0.1:6379 for a server that speaks Redis's protocol. With --mix and --arrivals, the server that gets the log's paths."`

	Rate     string        `help:"Requests a second. Default: 10" placeholder:"N"`
	RampTo   string        `help:"Requests a second at the end; the rate changes linearly to it." placeholder:"N"`
	Steps    []string      `help:"Rates to hold one after the other, each for --duration, such as 100,200,400." placeholder:"N,..."`
	Duration time.Duration `help:"How long to send requests; with --steps and --search, at each rate." default:"10s"`

	Search    bool    `help:"Find the highest rate at which every --expect holds."`
	From      float64 `help:"With --search: the first rate." default:"10" placeholder:"N"`
	To        float64 `help:"With --search: the highest rate to try." default:"100000" placeholder:"N"`
	Precision float64 `help:"With --search: stop when the highest good rate and the lowest bad rate are this close, in percent." default:"2" placeholder:"PERCENT"`

	Mix      []string `help:"Access log whose GET and HEAD requests are sent, in the same proportions. May be repeated." placeholder:"LOG" sep:"none"`
	Arrivals []string `help:"Access log whose GET and HEAD requests are sent at their logged times, for --duration. May be repeated." placeholder:"LOG" sep:"none"`
	Speed    float64  `help:"With --arrivals: speed relative to the log." default:"1" placeholder:"X"`
	Forward  string   `help:"With --mix and --arrivals: header that carries the client's address from the log, such as X-Forwarded-For." placeholder:"HEADER"`
	Format   string   `help:"Format of the logs, as for headgate replay." default:"auto" placeholder:"FORMAT"`
	Map      []string `help:"Maps a log field to a name, as for headgate replay." placeholder:"NAME=FIELD" sep:"none"`
	Route    []string `help:"Request to send, with its weight: 'GET /report=3' is sent three times as often as one without a weight. May be repeated." placeholder:"'METHOD /PATH=WEIGHT'" sep:"none"`

	Method string   `help:"Method of the request. Default: GET, or POST with --data" placeholder:"METHOD"`
	Header []string `help:"Request header, such as 'Authorization: Bearer TOKEN'. May be repeated." placeholder:"'NAME: VALUE'" sep:"none"`
	Data   string   `help:"Request body, or @FILE to read it from a file. To redis://, the words of the command." placeholder:"TEXT|@FILE"`
	HTTP2  bool     `help:"Use HTTP/2, also without TLS." name:"http2"`
	GRPC   bool     `help:"Call the unary gRPC method that the URL's path names. --data is the message as JSON, or with @FILE as protobuf." name:"grpc"`

	Descriptors string `help:"With --grpc and JSON: file with the service's descriptors, written by protoc --include_imports --descriptor_set_out. Not needed for Headgate's own services and Envoy's." placeholder:"FILE"`

	Connections int64         `help:"Most requests in flight at once: 1 to 20000." default:"256" placeholder:"N"`
	Timeout     time.Duration `help:"How long a request may take, from its scheduled instant." default:"10s"`
	MaxLag      time.Duration `help:"How late the sender's p99 may be; beyond that, the measurement is invalid." default:"10ms"`
	Remote      bool          `help:"Allow a target that is not on this machine. Ask its owners first."`
	Insecure    bool          `help:"Do not verify the target's TLS certificate."`
	PID         int64         `help:"Process id of the service on this machine, for --expect 'cpu<1.5'." name:"pid" placeholder:"PID" default:"0"`

	Expect    []string      `help:"Exit with 1 unless this holds: p95<200ms, max<1s, errors<1%, limited<5%, cpu<1.5. May be repeated; all must hold." placeholder:"WHAT" sep:"none"`
	Audit     bool          `help:"Check that the limiter tells the truth in Retry-After, remaining and reset. Takes as long as the limiter says to wait."`
	Limit     string        `help:"With --audit: what the limiter should hold, such as 10/1s, or 10/1s/20 for a burst of 20. Then it is kept busy, and each decision is compared with the algorithms." placeholder:"COUNT/PERIOD[/BURST]"`
	Cost      int64         `help:"With --audit --limit: how many units a request takes." default:"1" placeholder:"N"`
	Watch     time.Duration `help:"With --audit: how long the limiter is kept busy at least, for instance while the store under it is restarted. Default: until it was seen to become free several times" placeholder:"DURATION"`
	Denied    []string      `help:"With --audit: an answer that is a denial, besides 429 and 503, such as 403, or PERMISSION_DENIED of gRPC. May be repeated." placeholder:"STATUS"`
	Undecided []string      `help:"With --audit: an answer that says nothing of the limiter, such as 401 if what checks it stands in front. Without it, the limiter has admitted what gets any other 4xx. May be repeated." placeholder:"STATUS"`
	Fresh     bool          `help:"Open a new connection for each request, so that all processes behind one address are reached."`
	HTML      string        `help:"Write a self-contained HTML report to this file." name:"html" placeholder:"FILE"`
	JSON      bool          `help:"Print the result as JSON." name:"json"`
	Quiet     bool          `help:"Print no progress."`
}

// Help is the detailed help.
func (loadRequest) Help() string {
	return "Sends requests on a fixed schedule, whether or not earlier ones were answered (open loop), and measures each latency from the scheduled instant. If it falls behind its schedule, it says so, and the measurement is invalid.\n\n" +
		"Exit codes: 0 measured, and every --expect holds; 1 an --expect does not hold, the audit found a fault, the measurement is invalid, or it was interrupted; 2 a mistake; 3 the target cannot be reached.\n\n" +
		"Examples:\n" +
		"  headgate load --rate 200 --duration 30s http://127.0.0.1:8080/\n" +
		"  headgate load --search --expect 'p95<200ms' --json http://127.0.0.1:8080/ > capacity.json\n" +
		"  headgate load --steps 100,200,400 --html report.html http://127.0.0.1:8080/\n" +
		"  headgate load --rate 100 --mix access.log http://127.0.0.1:8080\n" +
		"  headgate load --audit --header 'X-API-Key: test' http://127.0.0.1:8080/\n" +
		"  headgate load --audit --limit 10/1s --fresh --watch 1m http://127.0.0.1:8080/\n" +
		"  headgate load --audit --limit 30/1m/16 --data 'CL.THROTTLE user42 15 30 60' redis://127.0.0.1:6379\n" +
		"  headgate load --audit --grpc --data '{\"domain\": \"api\", \"descriptors\": [{\"entries\": [{\"key\": \"user\", \"value\": \"anna\"}]}]}' http://127.0.0.1:8081/envoy.service.ratelimit.v3.RateLimitService/ShouldRateLimit"
}

// Run measures and prints.
func (k *loadRequest) Run(c *call) error {
	shapes := k.shapes(c)
	expect := k.expectations(c)
	k.check(c)
	body, err := k.body()
	c.mistake(err)
	header := k.header(c)
	if err := c.mistaken(); err != nil {
		return err
	}
	targets, recorded, err := k.targets(c, header, body)
	if err != nil {
		return err
	}
	if recorded != nil {
		shapes = []load.Shape{{Recorded: recorded}}
	}
	o := load.Options{
		Targets: targets, Connections: int(k.Connections), Timeout: k.Timeout, MaxLag: k.MaxLag, HTTP2: k.HTTP2,
		Fresh: k.Fresh, Remote: k.Remote, Insecure: k.Insecure, PID: int(k.PID),
	}
	view := newLoadView(c.stderr, k.Quiet)
	o.Progress, o.Every = view.show, view.every
	client, err := load.New(c.ctx, o)
	if err != nil {
		return k.failure(err)
	}
	defer client.Close()
	r := &load.Report{Target: k.URL}
	ended := k.measure(c.ctx, client, view, shapes, expect, r)
	view.end()
	if ended != nil && !errors.Is(ended, context.Canceled) && !errors.Is(ended, load.ErrSender) {
		return k.failure(ended)
	}
	if err := k.print(c, r); err != nil {
		return err
	}
	return k.judge(r, expect, ended)
}

// measure carries out the measurements. The report has what was measured even if there is an error.
func (k *loadRequest) measure(ctx context.Context, client *load.Client, view *loadView, shapes []load.Shape, expect []load.Expectation, r *load.Report) (err error) {
	switch {
	case k.Audit:
		promise, _ := load.ParsePromise(k.Limit) // It was checked.
		r.Audit, err = client.Audit(ctx, load.AuditOptions{Limit: promise, Cost: k.Cost, Watch: k.Watch, Denied: k.Denied, Undecided: k.Undecided, Progress: view.say})
		return err
	case k.Search:
		r.Found, err = client.Search(ctx, load.Search{
			From: k.From, To: k.To, Step: k.Duration, Rest: time.Second, Precision: k.Precision / 100, Expect: expect, Progress: view.step,
		})
		if r.Found != nil && len(r.Steps) > 0 {
			r.Measurement = best(r.Found)
		}
		return err
	}
	var all []*load.Measurement
	for i := range shapes {
		m, err := client.Run(ctx, shapes[i], nil)
		if err != nil {
			return err
		}
		all = append(all, m)
		if len(shapes) > 1 {
			view.step(m, nil)
		}
		if ctx.Err() != nil {
			break
		}
	}
	if r.Measurement = all[0]; len(all) > 1 {
		r.Measurement, r.Each = load.Merge(all), all
	}
	return nil
}

// best returns the last measurement at the sustainable rate, or the last one if there is no such
// rate.
func best(f *load.Found) *load.Measurement {
	m := f.Steps[len(f.Steps)-1]
	for _, step := range f.Steps {
		if step.Rate == f.Sustainable {
			m = step
		}
	}
	return m
}

func (k *loadRequest) print(c *call, r *load.Report) error {
	if k.HTML != "" {
		if err := writeFile(k.HTML, func(w io.Writer) error { return tunereport.LoadHTML(w, r) }); err != nil {
			return &failure{code: CodeUnavailable, text: errtext.Text(err), hint: "see whether the directory is there and can be written to"}
		}
	}
	if k.JSON {
		return printJSON(c.stdout, r)
	}
	return tunereport.LoadText(c.stdout, r)
}

// judge returns an error with the exit code, or nil.
func (k *loadRequest) judge(r *load.Report, expect []load.Expectation, ended error) error {
	var wrong []string
	switch {
	case errors.Is(ended, context.Canceled):
		wrong = append(wrong, "interrupted")
	case ended != nil:
		wrong = append(wrong, errtext.Text(ended))
	}
	switch {
	case r.Audit == nil:
	case !r.Audit.Honest:
		wrong = append(wrong, "what the limiter says is not true")
	case ended == nil && (r.Audit.Held == nil || r.Audit.Held.Denied == 0) && !slices.ContainsFunc(r.Audit.Rounds, func(r load.AuditRound) bool { return r.Denied != "" }):
		wrong = append(wrong, "no request was denied: there is no limiter, or it admits more than the audit sends, so nothing was audited")
	}
	if r.Found != nil && ended == nil && r.Sustainable == 0 {
		wrong = append(wrong, "no rate is borne at which "+strings.Join(k.Expect, " and ")+" holds")
	}
	m := r.Measurement
	if m != nil && r.Found == nil {
		if len(m.Status) == 0 && !m.Interrupted {
			return &failure{code: CodeUnavailable, text: "no request was answered", hint: "see whether the target runs, and whether --timeout is long enough"}
		}
		for _, e := range expect {
			if failed := e.Failed(m); failed != "" {
				wrong = append(wrong, failed)
			}
		}
		if m.Interrupted {
			wrong = append(wrong, "interrupted")
		}
		if !m.Valid {
			wrong = append(wrong, "the measurement is invalid: "+strings.Join(m.Invalid, "; "))
		}
	}
	if wrong != nil {
		return &failure{code: CodeNo, text: joinLines(wrong)}
	}
	return nil
}

// failure adds a hint to an error of the client.
func (k *loadRequest) failure(err error) error {
	switch {
	case errors.Is(err, load.ErrRemote):
		return usage(errtext.Text(err), "give --remote if those who run it know of this")
	case errors.Is(err, load.ErrUnreachable):
		return &failure{code: CodeUnavailable, text: errtext.Text(err), hint: "see whether the target runs"}
	}
	return usage(errtext.Text(err), "")
}

// shapes parses the flags that say when requests are sent.
func (k *loadRequest) shapes(c *call) (all []load.Shape) {
	number := func(flag, text string) float64 {
		n, err := strconv.ParseFloat(strings.TrimSpace(text), 64)
		if err != nil {
			c.mistakes = append(c.mistakes, fmt.Sprintf("--%s is %q, must be a number of requests a second", flag, text))
		}
		return n
	}
	rates := []float64{10}
	switch {
	case len(k.Steps) > 0:
		rates = nil
		for _, text := range k.Steps {
			rates = append(rates, number("steps", text))
		}
	case k.Rate != "":
		rates[0] = number("rate", k.Rate)
	}
	if k.Search || k.Audit || len(k.Arrivals) > 0 || len(c.mistakes) > 0 {
		return nil // They are not used.
	}
	if k.Duration <= 0 || k.Duration > load.MaxFor {
		return nil // What is wrong with it was said already.
	}
	for _, r := range rates {
		s := load.Shape{Rate: r, For: k.Duration}
		if k.RampTo != "" {
			s.To = number("ramp-to", k.RampTo)
			c.within("ramp-to", s.To >= load.MinRate, fmt.Sprintf("%g, must be %g to %d", s.To, load.MinRate, load.MaxRate))
		}
		c.mistake(s.Check())
		all = append(all, s)
	}
	return all
}

// check adds mistakes for flags that are invalid or do not go together.
func (k *loadRequest) check(c *call) {
	ways := map[string]bool{"--rate": k.Rate != "", "--steps": len(k.Steps) > 0, "--search": k.Search, "--arrivals": len(k.Arrivals) > 0, "--audit": k.Audit}
	var given []string
	for _, way := range []string{"--rate", "--steps", "--search", "--arrivals", "--audit"} {
		if ways[way] {
			given = append(given, way)
		}
	}
	if len(given) > 1 {
		c.mistakes = append(c.mistakes, "there are "+strings.Join(given, " and ")+", must be one of them")
	}
	if k.RampTo != "" && (len(k.Steps) > 0 || k.Search || len(k.Arrivals) > 0 || k.Audit) {
		c.mistakes = append(c.mistakes, "--ramp-to goes with --rate only")
	}
	if len(k.Mix) > 0 && len(k.Arrivals) > 0 {
		c.mistakes = append(c.mistakes, "there are --mix and --arrivals, must be one of them")
	}
	if k.GRPC && len(k.Mix)+len(k.Arrivals)+len(k.Route) > 0 {
		c.mistakes = append(c.mistakes, "--grpc goes with one method only, without --mix, --arrivals and --route")
	}
	if k.Forward != "" && len(k.Mix)+len(k.Arrivals) == 0 {
		c.mistakes = append(c.mistakes, "--forward goes with --mix and --arrivals, whose logs have the addresses")
	}
	if !k.Audit && (k.Limit != "" || k.Cost != 1 || k.Watch != 0 || len(k.Denied)+len(k.Undecided) > 0) {
		c.mistakes = append(c.mistakes, "--limit, --cost, --watch, --denied and --undecided go with --audit only")
	}
	for _, status := range k.Denied {
		if slices.Contains(k.Undecided, status) {
			c.mistakes = append(c.mistakes, fmt.Sprintf("--denied and --undecided are both %s, must be one of them", status))
		}
	}
	if _, err := load.ParsePromise(k.Limit); err != nil {
		c.mistake(err)
	}
	c.within("cost", k.Cost >= 1, fmt.Sprintf("%d, must be at least 1", k.Cost))
	c.within("watch", k.Watch >= 0 && k.Watch <= load.MaxFor, fmt.Sprintf("%v, must be 0s to %v", k.Watch, load.MaxFor))
	c.within("speed", k.Speed > 0 && k.Speed <= 1e6, fmt.Sprintf("%g, must be more than 0 and at most 1000000", k.Speed))
	c.within("duration", k.Duration > 0 && k.Duration <= load.MaxFor, fmt.Sprintf("%v, must be more than 0s and at most %v", k.Duration, load.MaxFor))
	c.within("connections", k.Connections >= 1 && k.Connections <= load.MaxConnections, fmt.Sprintf("%d, must be 1 to %d", k.Connections, load.MaxConnections))
	c.within("max-lag", k.MaxLag > 0, fmt.Sprintf("%v, must be more than 0s", k.MaxLag))
	c.within("pid", k.PID >= 0, fmt.Sprintf("%d, must be that of a process", k.PID))
	c.inTime(k.Timeout)
}

// expectations parses the expectations.
func (k *loadRequest) expectations(c *call) (all []load.Expectation) {
	errors := false
	for _, text := range k.Expect {
		e, err := load.ParseExpectation(text)
		switch {
		case err != nil:
			c.mistake(err)
			continue
		case e.CPU() && k.PID == 0:
			c.mistakes = append(c.mistakes, fmt.Sprintf("--expect %s needs --pid, the process of the service", text))
		}
		errors = errors || e.Errors()
		all = append(all, e)
	}
	if !k.Search {
		return all
	}
	if !errors {
		e, _ := load.ParseExpectation("errors<1%") // this is a valid expectation
		all = append(all, e)
	}
	s := load.Search{From: k.From, To: k.To, Step: k.Duration, Precision: k.Precision / 100, Expect: all}
	if err := s.Check(); err != nil {
		c.mistakes = append(c.mistakes, strings.Split(errtext.Text(err), "\n")...)
	}
	return all
}

// header reads the fields of the header.
func (k *loadRequest) header(c *call) http.Header {
	h := make(http.Header)
	for _, text := range k.Header {
		name, value, ok := strings.Cut(text, ":")
		if name = strings.TrimSpace(name); !ok || name == "" {
			// The value may be a secret, so the text is not shown.
			c.mistakes = append(c.mistakes, "--header is not of the form 'NAME: VALUE'")
			continue
		}
		h.Add(name, strings.TrimSpace(value))
	}
	return h
}

// body returns the body of all requests.
func (k *loadRequest) body() ([]byte, error) {
	name, isFile := strings.CutPrefix(k.Data, "@")
	if !isFile {
		if k.GRPC {
			return k.message()
		}
		return []byte(k.Data), nil
	}
	f, err := os.Open(name)
	if err != nil {
		return nil, fmt.Errorf("--data: %w", err)
	}
	defer f.Close()
	data, err := io.ReadAll(io.LimitReader(f, load.MaxBody+1))
	if err != nil {
		return nil, fmt.Errorf("--data: %w", err)
	}
	return data, nil
}
