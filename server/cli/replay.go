package cli

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net/netip"
	"os"
	"slices"
	"strings"
	"time"

	"github.com/headgate/headgate/internal/errtext"
	"github.com/headgate/headgate/policy"
	"github.com/headgate/headgate/server/app"
	"github.com/headgate/headgate/tune/accesslog"
	"github.com/headgate/headgate/tune/replay"
	replayreport "github.com/headgate/headgate/tune/report"
)

// logs has the flags of every command that reads access logs.
type logs struct {
	Files    []string      `arg:"" name:"log" help:"Access logs, plain or compressed with gzip or zstd, or - for standard input. Several are merged by time."`
	Format   string        `help:"Format of the logs: auto, common, combined, json, caddy, envoy, traefik, alb or csv; or a log format string of nginx, Apache or Envoy, as in the configuration." default:"auto" placeholder:"FORMAT"`
	Map      []string      `help:"Maps a log field to a name. NAME is time, ip, user, method, path, request, host, status, duration, agent, or an entry of the descriptor such as api_key. FIELD is the field's name in the log, with dots in nested JSON, or query:PARAMETER. May be repeated." placeholder:"NAME=FIELD" sep:"none"`
	Trust    []string      `help:"Proxy that is trusted to report the client's address, where a log has a list of addresses: a prefix or an address. May be repeated." placeholder:"PREFIX"`
	Slack    time.Duration `help:"How far out of order lines may be and still be sorted." default:"1m"`
	Quiet    bool          `help:"Print no progress."`
	progress *progress
}

// open opens the logs. The caller closes them.
func (l *logs) open(ctx context.Context, c *call) (*accesslog.Log, error) {
	o := accesslog.Options{Format: l.Format, Slack: l.Slack, Stdin: os.Stdin}
	if l.Slack == 0 {
		o.Slack = -1
	}
	var problems []string
	for _, text := range l.Trust {
		prefix, err := netip.ParsePrefix(text)
		if ip, single := netip.ParseAddr(text); single == nil {
			prefix, err = netip.PrefixFrom(ip, ip.BitLen()), nil
		}
		if err != nil {
			problems = append(problems, fmt.Sprintf("--trust is %q, must be an address or a prefix such as 10.0.0.0/8", text))
			continue
		}
		o.Trust = append(o.Trust, prefix)
	}
	for _, text := range l.Map {
		m, err := accesslog.ParseMap(text)
		if err != nil {
			problems = append(problems, "--map "+errtext.Text(err))
			continue
		}
		o.Maps = append(o.Maps, m)
	}
	if problems != nil {
		return nil, usage(joinLines(problems), "--map api_key=http_x_api_key says which field of the log holds what, and --trust 10.0.0.0/8 which proxies are believed")
	}
	log, err := accesslog.Open(ctx, l.Files, o)
	var format *accesslog.FormatError
	switch {
	case errors.As(err, &format):
		return nil, usage(errtext.Text(err), "--format takes the log_format of the server as it stands in its configuration; docs/replay.md has examples")
	case err != nil && isFileError(err):
		return nil, &failure{code: CodeUnavailable, text: errtext.Text(err), hint: "see whether the logs are there and can be read"}
	case err != nil:
		return nil, usage(errtext.Text(err), "give the paths of access logs, or - for the standard input")
	}
	l.progress = newProgress(c.stderr, l.Quiet)
	return log, nil
}

// each calls add with all requests of the log.
func (l *logs) each(log *accesslog.Log, add func(*accesslog.Stretch)) error {
	defer l.progress.end()
	for lines := int64(0); ; {
		stretch, err := log.Next()
		if errors.Is(err, io.EOF) {
			return nil
		}
		if err != nil {
			return &failure{code: CodeUnavailable, text: errtext.Text(err), hint: "what was read before is lost; see whether the log is whole"}
		}
		lines += int64(len(stretch.Requests))
		add(stretch)
		stretch.Release()
		l.progress.update(log, lines)
	}
}

// replayRequest is the command that decides the requests of logs.
type replayRequest struct {
	Logs        logs          `embed:""`
	Config      string        `help:"Policy file to try. Without one, the sample policy." placeholder:"FILE" env:"HEADGATE_CONFIG"`
	Against     string        `help:"Current policy file, to compare with." placeholder:"FILE"`
	Keys        hashKeys      `embed:"" group:"Hash keys"`
	Client      string        `help:"Entry that identifies a client in the report: ip, user or a mapped one. Default: the first of api_key, user and ip that a request has." placeholder:"ENTRY"`
	Warmup      time.Duration `help:"Requests in this time from the first one fill the counters, but are left out of the report." default:"0s"`
	Top         int64         `help:"How many clients to show." default:"20"`
	Curve       int64         `help:"How many requests to try with lower and higher limits; 0 for none." default:"200000"`
	Differences int64         `help:"With --against: how many of the requests decided differently to list." default:"100"`
	Expect      []string      `help:"Exit with 1 unless this holds: denied<0.1%, newly_denied=0, denied[RULE]<5. May be repeated; all must hold." placeholder:"WHAT" sep:"none"`
	Anonymize   bool          `help:"Replace clients by made-up names, and show no text from the log."`
	HTML        string        `help:"Write a self-contained HTML report to this file." name:"html" placeholder:"FILE"`
	JSON        bool          `help:"Print the result as JSON." name:"json"`
}

// Help is the detailed help.
func (replayRequest) Help() string {
	return "Decides every request in the logs by the rules, with the same code as a server and the log's clock, and reports who would have been denied, by which limit and when.\n\n" +
		"Exit codes: 0 replayed, and every --expect holds; 1 an --expect does not hold; 2 a mistake, such as a log that cannot be understood; 3 a log cannot be read.\n\n" +
		"Examples:\n" +
		"  headgate replay --config proposed.yaml access.log\n" +
		"  headgate replay --config proposed.yaml --against current.yaml --html report.html access.log access.log.*.gz\n" +
		"  headgate replay --config proposed.yaml --map api_key=http_x_api_key --format '$remote_addr [$time_local] \"$request\" $status \"$http_x_api_key\"' access.log\n" +
		"  headgate replay --config proposed.yaml --expect 'denied<0.1%' --json - <access.log"
}

// Run replays, prints, and compares with what is expected.
func (k *replayRequest) Run(c *call) error {
	c.within("warmup", k.Warmup >= 0, fmt.Sprintf("%v, must not be negative", k.Warmup))
	c.within("slack", k.Logs.Slack >= 0, fmt.Sprintf("%v, must not be negative", k.Logs.Slack))
	c.within("top", k.Top >= 1 && k.Top <= replay.MaxClients, fmt.Sprintf("%d, must be 1 to %d", k.Top, replay.MaxClients))
	c.within("curve", k.Curve >= 0, fmt.Sprintf("%d, must not be negative", k.Curve))
	c.within("differences", k.Differences >= 0 && k.Differences <= 1_000_000, fmt.Sprintf("%d, must be 0 to 1000000", k.Differences))
	expectations := k.expectations(c)
	if err := c.mistaken(); err != nil {
		return err
	}
	clock := new(replay.Clock)
	set, against, err := k.load(clock, expectations)
	if err != nil {
		return err
	}
	log, err := k.Logs.open(c.ctx, c)
	if err != nil {
		return err
	}
	defer func() { _ = log.Close() }() // everything was read, or there is an error already
	known := append(log.Entries(), "ip", "user")
	if k.Client != "" && !slices.Contains(known, k.Client) {
		return usage(fmt.Sprintf("--client is %q, must be one of %s", k.Client, strings.Join(known, ", ")), "--map says which field of the log holds another entry")
	}
	r := replay.New(replay.Options{
		Policy: set, Against: against, Clock: clock, Entries: log.Entries(), Client: k.Client, Warmup: k.Warmup, Top: int(k.Top), Curve: k.Curve,
		Differences: int(k.Differences), Anonymize: k.Anonymize,
	})
	if err := k.Logs.each(log, r.Add); err != nil {
		return err
	}
	result := r.Result(log.Stats())
	if err := k.print(c, result); err != nil {
		return err
	}
	if result.Requests+result.Warmup == 0 && result.Unreadable > 0 {
		return usage(fmt.Sprintf("none of the %d lines could be read", result.Unreadable), "--format takes the log_format of the server as it stands in its configuration")
	}
	var wrong []string
	for _, e := range expectations {
		if failed := e.Failed(result); failed != "" {
			wrong = append(wrong, failed)
		}
	}
	if len(expectations) > 0 {
		for _, w := range result.Warnings {
			wrong = append(wrong, "an --expect proves nothing: "+shown(w))
		}
	}
	if wrong != nil {
		return &failure{code: CodeNo, text: joinLines(wrong)}
	}
	return nil
}

// expectations parses the expectations.
func (k *replayRequest) expectations(c *call) (all []replay.Expectation) {
	for _, text := range k.Expect {
		e, err := replay.ParseExpectation(text)
		if err == nil && e.Compares() && k.Against == "" {
			err = fmt.Errorf("--expect %s: there is nothing to compare with; give --against FILE", text)
		}
		if err != nil {
			c.mistakes = append(c.mistakes, errtext.Text(err))
			continue
		}
		all = append(all, e)
	}
	return all
}

// load reads the policies.
func (k *replayRequest) load(clock *replay.Clock, expectations []replay.Expectation) (set, against *policy.Set, err error) {
	key, old, err := k.Keys.read()
	if err != nil {
		return nil, nil, err
	}
	if set, err = app.LoadPolicy(k.Config, key, old, policy.Clock(clock.Now)); err != nil {
		return nil, nil, err
	}
	if k.Against != "" {
		if against, err = app.LoadPolicy(k.Against, key, old, policy.Clock(clock.Now)); err != nil {
			return nil, nil, err
		}
	}
	for _, e := range expectations {
		if rule := e.Rule(); rule != "" && set.Rule(rule) == nil {
			return nil, nil, usage(fmt.Sprintf("an expectation is about the rule %q, which the policy does not have", rule), "names are those in the policy file")
		}
	}
	return set, against, nil
}

func (k *replayRequest) print(c *call, result *replay.Result) error {
	if k.HTML != "" {
		name := k.Config
		if name == "" {
			name = "the sample policy"
		}
		if err := writeFile(k.HTML, func(w io.Writer) error { return replayreport.HTML(w, result, name) }); err != nil {
			return &failure{code: CodeUnavailable, text: errtext.Text(err), hint: "see whether the directory is there and can be written to"}
		}
	}
	if k.JSON {
		return printJSON(c.stdout, result)
	}
	return replayreport.Text(c.stdout, result)
}

// writeFile creates a file with what write writes.
func writeFile(name string, write func(io.Writer) error) error {
	f, err := os.Create(name)
	if err != nil {
		return err
	}
	return errors.Join(write(f), f.Close())
}
