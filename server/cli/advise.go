package cli

import (
	"errors"
	"fmt"
	"os"
	"slices"
	"strings"
	"time"

	"github.com/headgate/headgate/config"
	"github.com/headgate/headgate/internal/errtext"
	"github.com/headgate/headgate/policy"
	"github.com/headgate/headgate/policy/models"
	"github.com/headgate/headgate/tune/advise"
	"github.com/headgate/headgate/tune/replay"
)

// adviseRequest is the command that writes limits.
type adviseRequest struct {
	Files      []string      `arg:"" name:"log" optional:"" help:"Access logs, plain or compressed. They are read twice: once for the advice, and once to test it."`
	Format     string        `help:"Format of the logs, as for headgate replay." default:"auto" placeholder:"FORMAT"`
	Map        []string      `help:"Which field holds what, as for headgate replay." placeholder:"NAME=FIELD" sep:"none"`
	Trust      []string      `help:"Proxy that is trusted to report the client's address, as for headgate replay." placeholder:"PREFIX"`
	Slack      time.Duration `help:"How far out of order lines may be and still be sorted." default:"1m"`
	Quiet      bool          `help:"Print no progress."`
	Per        string        `help:"Entry that identifies a client: ip, user or a mapped one." default:"ip" placeholder:"ENTRY"`
	Tariff     string        `help:"Mapped entry, such as tier; each of its values gets its own limits." placeholder:"ENTRY"`
	Route      []string      `help:"Route pattern that gets its own limits, such as 'GET /search'. May be repeated." placeholder:"PATTERN" sep:"none"`
	Counts     string        `help:"What the limits count: requests, or input_tokens, output_tokens or tokens of calls to language models." default:"requests" placeholder:"WHAT" enum:"requests,input_tokens,output_tokens,tokens"`
	Percentile float64       `help:"Percentage of clients that the limits must not affect." default:"99.9"`
	Headroom   float64       `help:"Factor by which limits exceed the clients' demand." default:"1.5"`
	Anonymize  bool          `help:"Do not name clients."`
	Capacity   string        `help:"Capacity of the service: requests a second, or a JSON file with the field sustainable_per_second, as headgate load --json writes it." placeholder:"RATE|FILE"`
	Use        float64       `help:"With --capacity: the fraction of it to admit, 0.6 to 0.8." default:"0.7"`
	Cheap      time.Duration `help:"With --operation: how long any other request takes." default:"0s"`
	Operation  []string      `help:"With --capacity: an expensive operation and how long it takes, such as 'GET /report=800ms'. May be repeated." placeholder:"PATTERN=TIME" sep:"none"`
}

// Help is the detailed help.
func (adviseRequest) Help() string {
	return "Prints a policy, with the numbers behind it in comments: limits per client from what clients did in the logs, and one limit for everyone from the service's capacity. It needs logs of at least one day, with at least 50 clients a day.\n\n" +
		"Exit codes: 0 advised; 1 not enough data; 2 a mistake; 3 a log cannot be read.\n\n" +
		"Examples:\n" +
		"  headgate advise access.log access.log.*.gz > proposed.yaml\n" +
		"  headgate advise --route 'GET /search' --capacity 200 access.log\n" +
		"  headgate advise --capacity 200 --cheap 20ms --operation 'GET /report=800ms'"
}

// Run advises.
func (k *adviseRequest) Run(c *call) error {
	capacity := k.capacity(c)
	switch {
	case len(k.Files) == 0 && k.Capacity == "":
		c.mistakes = append(c.mistakes, "there is neither a log nor --capacity to advise from")
	case slices.Contains(k.Files, "-"):
		c.mistakes = append(c.mistakes, "the standard input cannot be read twice; give the paths of logs")
	}
	if err := c.mistaken(); err != nil {
		return err
	}
	text := "rules:\n"
	if len(k.Files) > 0 {
		var err error
		if text, err = k.fromLogs(c); err != nil {
			return err
		}
	}
	if capacity != nil {
		if len(k.Files) > 0 {
			text += "\n"
		}
		text += capacity.Rules()
	}
	if _, err := config.Parse("advice", []byte(text)); err != nil {
		return fmt.Errorf("headgate: the advice is no policy: %w", err)
	}
	fmt.Fprint(c.stdout, text)
	return nil
}

// capacity returns the capacity that the flags describe, or nil if they describe none.
func (k *adviseRequest) capacity(c *call) *advise.Capacity {
	if k.Capacity == "" {
		if len(k.Operation) > 0 {
			c.mistakes = append(c.mistakes, "--operation goes with --capacity")
		}
		return nil
	}
	p := &advise.Capacity{Use: k.Use, Cheap: k.Cheap, Operations: make(map[string]time.Duration)}
	if _, err := fmt.Sscanf(k.Capacity, "%g", &p.Sustainable); err != nil || isFile(k.Capacity) {
		data, err := os.ReadFile(k.Capacity)
		if err == nil {
			p.Sustainable, err = advise.ReadLoad(data)
		}
		if err != nil {
			c.mistakes = append(c.mistakes, "--capacity: "+errtext.Text(err))
			return nil
		}
	}
	for _, text := range k.Operation {
		i := strings.LastIndexByte(text, '=')
		d, err := time.ParseDuration(text[i+1:])
		if i <= 0 || err != nil {
			c.mistakes = append(c.mistakes, fmt.Sprintf("--operation %q is not PATTERN=TIME, such as 'GET /report=800ms'", text))
			continue
		}
		p.Operations[text[:i]] = d
	}
	if err := p.Check(); err != nil {
		c.mistakes = append(c.mistakes, errtext.Text(err))
	}
	return p
}

func isFile(name string) bool {
	info, err := os.Stat(name)
	return err == nil && info.Mode().IsRegular()
}

// fromLogs writes the policy that the logs suggest, and replays the logs by it.
func (k *adviseRequest) fromLogs(c *call) (string, error) {
	read := logs{Files: k.Files, Format: k.Format, Map: k.Map, Trust: k.Trust, Slack: k.Slack, Quiet: k.Quiet}
	log, err := read.open(c.ctx, c)
	if err != nil {
		return "", err
	}
	defer func() { _ = log.Close() }() // everything was read, or there is an error already
	counts := models.Requests
	for counts.String() != k.Counts {
		counts++
	}
	o, err := advise.New(advise.Options{Counts: counts, Per: k.Per, Entries: log.Entries(), Tariff: k.Tariff, Routes: k.Route, Percentile: k.Percentile, Headroom: k.Headroom})
	if err != nil {
		return "", usage(errtext.Text(err), "")
	}
	if err := read.each(log, o.Add); err != nil {
		return "", err
	}
	a, err := o.Advise()
	if missing, ok := errors.AsType[*advise.MissingError](err); ok {
		return "", &failure{code: CodeNo, text: "the log is not enough to advise from:\n" + joinLines(missing.Missing), hint: "give more logs; --capacity advises from what the service bears"}
	}
	if err != nil {
		return "", err
	}
	p, err := k.try(c, &read, a)
	if err != nil {
		return "", err
	}
	var name func(string) string
	if k.Anonymize {
		name = func(string) string { return "a client" }
	}
	return a.YAML(p, name), nil
}

// maxHit is how many clients with denied requests are looked at.
const maxHit = 100_000

// try replays the advice on the logs on which it is based.
func (k *adviseRequest) try(c *call, read *logs, a *advise.Advice) (*advise.Promise, error) {
	clock := new(replay.Clock)
	set, err := config.Parse("advice", []byte(a.YAML(nil, nil)), policy.Clock(clock.Now))
	if err != nil {
		return nil, fmt.Errorf("headgate: the advice is no policy: %w", err)
	}
	log, err := read.open(c.ctx, c)
	if err != nil {
		return nil, err
	}
	defer func() { _ = log.Close() }()
	r := replay.New(replay.Options{Policy: set, Clock: clock, Entries: log.Entries(), Client: k.Per, Top: maxHit})
	if err := read.each(log, r.Add); err != nil {
		return nil, err
	}
	var shown func(string) string
	if set.Secret(k.Per) {
		shown = func(key string) string { return policy.HashMark + set.Hash(k.Per, key) }
	}
	p := a.Promise(r.Result(log.Stats()), shown)
	return &p, nil
}
