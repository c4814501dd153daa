package cli

import (
	"encoding/json"
	"fmt"
	"io"
	"net/url"
	"strconv"
	"time"

	"github.com/headgate/headgate/server/insightapi"
	"github.com/headgate/headgate/telemetry/insight"
)

// tailReport is the command that shows denials as they happen.
type tailReport struct {
	insightFlags `embed:""`

	Rule   string `help:"Only denials by this rule." placeholder:"NAME"`
	Last   int    `help:"How many recent denials to show first: 1 to 500. Default: ${default}" placeholder:"N" default:"10"`
	Follow bool   `help:"Keep printing new denials until interrupted. On by default." default:"true" negatable:""`
}

// Help is the detailed help.
func (tailReport) Help() string {
	return "Shows each denial as it happens: the key, the rule and limit that denied, what was left, and when the request would fit. If a rule denies a key many times a second, it is shown once a second, with a count.\n\n" +
		"With --json, each denial is one line.\n\n" +
		"Exit codes: 0 after an interrupt; 1 nothing is known; 2 a mistake, such as a wrong token; 3 the server does not answer.\n\n" +
		"Examples:\n" +
		"  headgate tail\n" +
		"  headgate tail --rule login --json"
}

// tailEvery is how often the server is asked.
const tailEvery = time.Second

// Run asks until the call's context ends.
func (k *tailReport) Run(c *call) error {
	c.within("last", k.Last >= 1 && k.Last <= 500, fmt.Sprintf("%d, must be 1 to 500", k.Last))
	a, err := k.open(c)
	if err != nil {
		return err
	}
	query := url.Values{"limit": {strconv.Itoa(k.Last)}}
	if k.Rule != "" {
		query.Set("rule", k.Rule)
	}
	missing := make(map[string]bool)
	for {
		var page insightapi.Denials
		_, err := a.ask(c.ctx, "denials", query, &page)
		switch {
		case c.ctx.Err() != nil:
			return nil //nolint:nilerr // the command was interrupted during a request
		case err != nil:
			return err
		}
		for _, i := range page.Instances {
			if !i.OK && !missing[i.Name] {
				fmt.Fprintf(c.stderr, "missing: the instance %s: %s\n", shown(i.Name), plain(i.Error))
			}
			missing[i.Name] = !i.OK
		}
		if page.Lost > 0 {
			fmt.Fprintf(c.stderr, "%d denials are not shown: they came too fast\n", page.Lost)
		}
		for i := range page.Denials {
			if err := k.print(c.stdout, &page.Denials[i]); err != nil {
				return err
			}
		}
		if !k.Follow {
			return nil
		}
		query.Set("after", page.Next)
		query.Set("limit", "500")
		select {
		case <-time.After(tailEvery):
		case <-c.ctx.Done():
			return nil
		}
	}
}

func (k *tailReport) print(w io.Writer, d *insight.Denial) error {
	if k.JSON {
		line, err := json.Marshal(d)
		if err == nil {
			_, err = w.Write(append(line, '\n'))
		}
		return err
	}
	what := "denied"
	if d.Shadow {
		what = "shadow"
	}
	_, err := fmt.Fprintf(w, "%s  %s  %s  %s  by %s", time.UnixMilli(d.At).Format("15:04:05.000"), what, shown(d.Rule), keyText(d.Key), plain(d.Limit))
	if err != nil {
		return err
	}
	if d.Cost > 1 {
		fmt.Fprintf(w, ", cost %d", d.Cost)
	}
	fmt.Fprintf(w, ", %d of %d left", d.Remaining, d.Capacity)
	if d.RetryAfterMS < 0 {
		fmt.Fprint(w, ", never fits")
	} else {
		fmt.Fprintf(w, ", retry after %v", time.Duration(d.RetryAfterMS)*time.Millisecond)
	}
	if d.Times > 1 {
		fmt.Fprintf(w, ", %d times", d.Times)
	}
	if d.Door != "" {
		fmt.Fprintf(w, ", through %s", plain(d.Door))
	}
	_, err = fmt.Fprintln(w)
	return err
}

// keyText returns a key as one word.
func keyText(n insight.Name) string {
	if n.Raw == "" {
		return "(all)"
	}
	return n.Text()
}
