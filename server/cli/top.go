package cli

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"strconv"
	"strings"
	"text/tabwriter"
	"time"

	"github.com/headgate/headgate/server/insightapi"
	"github.com/headgate/headgate/telemetry/insight"
)

// admin has the flags of commands that show a server its admin token.
type admin struct {
	Remote         remote        `embed:"" group:"Server to ask"`
	AdminTokenFile string        `help:"File with the server's admin token; the token itself may be in HEADGATE_ADMIN_TOKEN instead." placeholder:"FILE" env:"HEADGATE_ADMIN_TOKEN_FILE"`
	Timeout        time.Duration `help:"How long to wait for the answer." default:"5s"`
}

// insightFlags are the flags of commands that show what a server knows about keys.
type insightFlags struct {
	admin `embed:""`
	JSON  bool `help:"Print the answer of the HTTP API, as JSON." name:"json"`
}

// asker sends requests that need the server's admin token.
type asker struct {
	remote  *remote
	timeout time.Duration
	url     *url.URL
	token   string
	unknown string // the hint for a 404
}

// asker checks the flags and returns the asker, with the hint for a 404.
func (a *admin) asker(c *call, unknown string) (*asker, error) {
	c.inTime(a.Timeout)
	token := c.token("admin token", "HEADGATE_ADMIN_TOKEN", a.AdminTokenFile)
	if err := c.mistaken(); err != nil {
		return nil, err
	}
	u, err := a.Remote.url(c)
	return &asker{&a.Remote, a.Timeout, u, token, unknown}, err
}

func (f *insightFlags) open(c *call) (*asker, error) {
	return f.asker(c, "headgate top lists the rules that were used lately; a server that was started with --no-insight knows of none")
}

// ask requests a path below /v1/insight/, and decodes the answer into to. It also returns the text
// of the answer.
func (a *asker) ask(ctx context.Context, path string, query url.Values, to any) ([]byte, error) {
	return a.send(ctx, http.MethodGet, insightapi.Prefix+path, query, nil, to)
}

// send sends a request with a JSON body, or without one if body is nil, and decodes the answer into
// to. It also returns the text of the answer.
func (a *asker) send(ctx context.Context, method, path string, query url.Values, body, to any) ([]byte, error) {
	ctx, cancel := context.WithTimeout(ctx, a.timeout)
	defer cancel()
	at := a.url.JoinPath(path)
	at.RawQuery = query.Encode()
	status, text, err := a.remote.send(ctx, method, at, body, a.token)
	if err != nil {
		return nil, err
	}
	if status == http.StatusOK {
		if err := json.Unmarshal(text, to); err != nil {
			return nil, notHeadgate(a.url, status)
		}
		return text, nil
	}
	problem, err := problemOf(a.url, status, text)
	if err != nil {
		return nil, err
	}
	detail := strings.Join(problem.lines(), "; ")
	switch status {
	case http.StatusForbidden:
		return nil, usage(detail, "start the server with --admin-token-file, or with HEADGATE_ADMIN_TOKEN, and give this command the same token")
	case http.StatusUnauthorized:
		return nil, usage(detail, "give the token that the server was started with to --admin-token-file, or in HEADGATE_ADMIN_TOKEN")
	case http.StatusBadRequest, http.StatusUnprocessableEntity:
		return nil, usage(detail, "")
	case http.StatusNotFound:
		return nil, &failure{code: CodeNo, text: detail, hint: a.unknown}
	}
	return nil, &failure{code: CodeUnavailable, text: fmt.Sprintf("the server at %s does not say: %s", a.url.Host, detail), hint: "its log says more"}
}

// topReport is the command that shows the keys with the most use.
type topReport struct {
	insightFlags `embed:""`

	Rule  string        `arg:"" optional:"" help:"Show the keys of this rule. Without it, rules are shown."`
	Range time.Duration `help:"How far to look back: 1m to 2h." default:"10m"`
	Limit int           `help:"How many rules or keys to show at most: 1 to 500. Default: ${default}" placeholder:"N" default:"20"`
	Watch time.Duration `help:"Refresh at this interval until interrupted. 0s prints once." default:"0s"`
}

// Help is the detailed help.
func (topReport) Help() string {
	return "Shows the rules that deny most or, for one rule, the keys that use it most and are denied most. A key's count is never too low; it may be too high by at most the number after ±.\n\n" +
		"Exit codes: 0 shown; 1 nothing is known; 2 a mistake, such as a wrong token; 3 the server does not answer.\n\n" +
		"Examples:\n" +
		"  headgate top\n" +
		"  headgate top login --range 1h\n" +
		"  headgate top --watch 2s"
}

// Run asks and prints the answer.
func (k *topReport) Run(c *call) error {
	c.within("range", k.Range >= time.Minute && k.Range <= insight.Kept, fmt.Sprintf("%v, must be 1m to 2h", k.Range))
	c.within("limit", k.Limit >= 1 && k.Limit <= 500, fmt.Sprintf("%d, must be 1 to 500", k.Limit))
	c.within("watch", k.Watch == 0 || k.Watch >= time.Second, fmt.Sprintf("%v, must be 1s or more", k.Watch))
	a, err := k.open(c)
	if err != nil {
		return err
	}
	for {
		var page strings.Builder
		if err := k.page(c.ctx, a, &page); err != nil {
			return err
		}
		if k.Watch > 0 && !k.JSON {
			fmt.Fprint(c.stdout, "\x1b[H\x1b[2J") // Clears the screen.
		}
		fmt.Fprint(c.stdout, page.String())
		if k.Watch == 0 {
			return nil
		}
		select {
		case <-time.After(k.Watch):
		case <-c.ctx.Done():
			return nil
		}
	}
}

func (k *topReport) page(ctx context.Context, a *asker, to io.Writer) error {
	query := url.Values{"range": {k.Range.String()}, "limit": {strconv.Itoa(k.Limit)}}
	if k.Rule == "" {
		var now insightapi.Now
		text, err := a.ask(ctx, "now", query, &now)
		switch {
		case err != nil:
		case k.JSON:
			_, err = to.Write(text)
		default:
			printNow(to, &now)
		}
		return err
	}
	query.Set("rule", k.Rule)
	var rule insightapi.RuleReport
	text, err := a.ask(ctx, "rule", query, &rule)
	switch {
	case err != nil:
	case k.JSON:
		_, err = to.Write(text)
	default:
		k.printRule(to, &rule)
	}
	return err
}

func printInstances(w io.Writer, list []insightapi.Instance) {
	for _, i := range list {
		if !i.OK {
			fmt.Fprintf(w, "missing: the instance %s: %s\n", shown(i.Name), plain(i.Error))
		}
	}
}

// plain returns a server's text without control sequences for terminals.
func plain(s string) string {
	if quoted := strconv.Quote(s); quoted[1:len(quoted)-1] != s {
		return strings.ReplaceAll(quoted[1:len(quoted)-1], `\"`, `"`)
	}
	return s
}

func printNow(w io.Writer, n *insightapi.Now) {
	printInstances(w, n.Instances)
	var sum insight.Counts
	for _, d := range n.Doors {
		sum.Add(d.Counts)
	}
	fmt.Fprintf(w, "last %s: %d requests admitted, %d denied (%s), %d denied in shadow\n", plain(n.Range), sum.Allowed, sum.Denied, orNone(share(sum.Denied, sum.Allowed+sum.Denied)), sum.Shadow)
	if n.Outage != nil {
		fmt.Fprintln(w, "the store does not answer:")
		for _, r := range n.Outage.Rules[:min(len(n.Outage.Rules), len(n.Rules))] {
			fmt.Fprintf(w, "  %s %s\n", shown(r.Rule), plain(r.Does))
		}
	}
	printAway(w, sum)
	table := tabwriter.NewWriter(w, 0, 0, 2, ' ', tabwriter.AlignRight)
	fmt.Fprintln(table, "\nDENIED\tBEFORE\tSHADOW\tALLOWED\t  RULE")
	for _, r := range n.Rules {
		fmt.Fprintf(table, "%d\t%d\t%d\t%d\t  %s\n", r.Denied, r.Before.Denied, r.Shadow, r.Allowed, shown(r.Rule))
	}
	_ = table.Flush() // What a table writes, it hands to w, whose errors nobody could be told.
	if more := n.All - len(n.Rules); more > 0 {
		fmt.Fprintf(w, "and %s more\n", count(more, "rule"))
	}
}

// printAway prints what the store did not decide, and what lists answered, if there is any.
func printAway(w io.Writer, c insight.Counts) {
	for _, one := range []struct {
		n    int64
		what string
	}{{c.Failed, "got no answer"}, {c.Open, "were let in uncounted"}, {c.Local, "were decided by shares"}, {c.Listed, "were turned away by the deny list"}, {c.Passed, "were let in by the allow list"}} {
		if one.n > 0 {
			fmt.Fprintf(w, "%d %s\n", one.n, one.what)
		}
	}
}

func orNone(text string) string {
	if text == "" {
		return "none"
	}
	return text
}

func (k *topReport) printRule(w io.Writer, r *insightapi.RuleReport) {
	printInstances(w, r.Instances)
	fmt.Fprintf(w, "%s, last %v: %d checks admitted, %d denied, %d denied in shadow\n", shown(r.Rule.Rule), k.Range, r.Allowed, r.Counts.Denied, r.Counts.Shadow)
	printAway(w, r.Counts)
	if r.Policy != nil {
		fmt.Fprintf(w, "limits: %s\n", plain(strings.Join(r.Policy.Limits, ", ")))
	}
	for _, t := range []struct {
		title string
		top   insight.Top
	}{{"DENIED", r.Rule.Denied}, {"USE", r.Use}, {"DENIED IN SHADOW", r.Rule.Shadow}, {"NEAR THE LIMIT", r.Near}, {"WITHOUT THE STORE", r.Away}} {
		if len(t.top.Keys) == 0 {
			continue
		}
		table := tabwriter.NewWriter(w, 0, 0, 2, ' ', 0)
		fmt.Fprintf(table, "\n%s\t±\tSHARE\tUSED\tTIER\tKEY\n", t.title)
		for _, key := range t.top.Keys[:min(len(t.top.Keys), k.Limit)] {
			fmt.Fprintf(table, "%d\t%d\t%s\t%d %%\t%s\t%s\n", key.Count, key.Error, share(key.Count, t.top.Total), (key.Used+5)/10, plain(key.Tier), key.Key.Text())
		}
		_ = table.Flush()
		switch {
		case t.top.Uniform():
			fmt.Fprintf(w, "there is no top: the keys are alike, and any other one may have up to %d as well\n", t.top.Absent)
		case t.top.Absent > 0:
			fmt.Fprintf(w, "any other key: at most %d\n", t.top.Absent)
		}
	}
}
