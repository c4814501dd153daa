package cli

import (
	"context"
	"fmt"
	"io"
	"strings"
	"text/tabwriter"
	"time"

	"github.com/headgate/headgate/server/app"
)

// doctor is the command that examines a store.
type doctor struct {
	Store   string        `help:"The store: redis://…, redis-sentinel://… or redis-cluster://…, as for serve." placeholder:"URL" required:"" env:"HEADGATE_STORE"`
	Timeout time.Duration `help:"How long the whole check may take." default:"30s"`
	JSON    bool          `help:"Print JSON." name:"json"`
}

// Help is the detailed help.
func (doctor) Help() string {
	return "Checks every server of the store, including replicas and Sentinels: versions, permissions, clocks, eviction, persistence, latency, scripts, and the memory of each rule's counters, estimated from a sample of keys. " +
		"It writes only one counter of its own, which expires. The URL's user needs INFO, SLOWLOG, LATENCY, SCAN and MEMORY; the report says what it was not permitted to check.\n\n" +
		"Exit codes: 0 no problems; 1 problems; 2 the URL is wrong; 3 the store does not answer."
}

// Run examines the store and prints what was found.
func (d *doctor) Run(c *call) error {
	c.inTime(d.Timeout)
	if err := c.mistaken(); err != nil {
		return err
	}
	ctx, cancel := context.WithTimeout(c.ctx, d.Timeout)
	defer cancel()
	found, err := app.Examine(ctx, d.Store)
	if err != nil {
		return err
	}
	if d.JSON {
		if err := printJSON(c.stdout, found); err != nil {
			return err
		}
	} else {
		writeExamination(c.stdout, found)
	}
	if found.Bad() {
		return &failure{code: CodeNo}
	}
	return nil
}

// shownRules is how many rules are shown as text, those that use the most memory.
const shownRules = 30

// writeExamination writes the results as text, problems first.
func writeExamination(w io.Writer, e *app.Examination) {
	fmt.Fprintf(w, "%s\n\n", e.Store)
	for _, level := range []string{"bad", "warning", "ok"} {
		for _, f := range e.Findings {
			if f.Level.String() != level {
				continue
			}
			where := ""
			if f.Node != "" {
				where = f.Node + ": "
			}
			fmt.Fprintf(w, "%-8s %s%s: %s\n", strings.ToUpper(level), where, f.What, f.Text)
			if f.Fix != "" {
				fmt.Fprintf(w, "         -> %s\n", f.Fix)
			}
		}
	}
	if len(e.Memory) == 0 {
		fmt.Fprintf(w, "\nno counters yet\n")
		return
	}
	fmt.Fprintf(w, "\nmemory, by a sample of %d keys\n", e.Sampled)
	t := tabwriter.NewWriter(w, 0, 0, 2, ' ', tabwriter.AlignRight)
	fmt.Fprintf(t, "keys\tbytes a key\tMB a million\t  rule\n")
	shown := e.Memory[:min(len(e.Memory), shownRules)]
	for _, m := range shown {
		fmt.Fprintf(t, "%d\t%d\t%.0f\t  %s\n", m.Keys, m.BytesPerKey, float64(m.BytesPerKey), m.Rule)
	}
	_ = t.Flush()
	if rest := e.Memory[len(shown):]; len(rest) > 0 {
		keys := int64(0)
		for _, m := range rest {
			keys += m.Keys
		}
		fmt.Fprintf(w, "%d rules more, with %d keys; --json has them all\n", len(rest), keys)
	}
}
