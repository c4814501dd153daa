package cli

import (
	"encoding/json"
	"fmt"
	"io"
	"text/tabwriter"
	"time"

	"github.com/headgate/headgate"
	"github.com/headgate/headgate/server/decide"
)

// answer is a verdict in the format of the HTTP API, so that --json prints the same for servers and
// stores.
type answer struct {
	Allowed      bool       `json:"allowed"`
	DeniedBy     *deniedBy  `json:"denied_by,omitempty"`
	RetryAfterMS int64      `json:"retry_after_ms"`
	DelayMS      int64      `json:"delay_ms"`
	Decisions    []decision `json:"decisions"`
	// Reset are the rules whose counters were reset.
	Reset []string `json:"reset,omitempty"`
}

type deniedBy struct {
	Rule  string `json:"rule"`
	Limit string `json:"limit"`
}

type decision struct {
	Rule         string `json:"rule"`
	Limit        string `json:"limit"`
	Algorithm    string `json:"algorithm"`
	Allowed      bool   `json:"allowed"`
	Capacity     int64  `json:"capacity"`
	PeriodMS     int64  `json:"period_ms"`
	Remaining    int64  `json:"remaining"`
	RetryAfterMS int64  `json:"retry_after_ms"`
	ResetAfterMS int64  `json:"reset_after_ms"`
}

// answerOf turns a verdict into an answer.
func answerOf(v *headgate.Verdict) *answer {
	a := &answer{Allowed: v.Allowed, RetryAfterMS: decide.Millis(v.RetryAfter), DelayMS: decide.Millis(v.Delay), Decisions: []decision{}}
	if d := v.Deciding(); d != nil && !v.Allowed {
		a.DeniedBy = &deniedBy{d.Rule.Name(), d.Limit.String()}
	}
	for i := range v.Decisions {
		d := &v.Decisions[i]
		a.Decisions = append(a.Decisions, decision{
			d.Rule.Name(), d.Limit.String(), d.Limit.Algorithm.String(), d.Allowed, d.Limit.Capacity(),
			decide.Millis(time.Duration(d.Limit.Micros()) * time.Microsecond), d.Remaining, decide.Millis(d.RetryAfter), decide.Millis(d.ResetAfter),
		})
	}
	return a
}

// print writes the answer as text.
func (a *answer) print(w io.Writer, peeked bool) {
	verb := "allowed"
	switch {
	case a.Allowed && peeked:
		verb = "would be allowed"
	case peeked:
		verb = "would be denied"
	case !a.Allowed:
		verb = "denied"
	}
	fmt.Fprint(w, verb)
	if a.DeniedBy != nil {
		fmt.Fprintf(w, " by %s, %s: %s", a.DeniedBy.Rule, a.DeniedBy.Limit, fits(a.RetryAfterMS))
	}
	if a.DelayMS > 0 {
		fmt.Fprintf(w, ", to be held for %v", millis(a.DelayMS))
	}
	fmt.Fprintln(w)
	a.printLimits(w)
}

// printLimits writes the state of the limits as text.
func (a *answer) printLimits(w io.Writer) {
	if len(a.Decisions) == 0 {
		return
	}
	table := tabwriter.NewWriter(w, 0, 0, 2, ' ', 0)
	fmt.Fprintln(table, "LIMIT\tALGORITHM\tLEFT\tTHIS COST\tALL FREE")
	for _, d := range a.Decisions {
		free := "now"
		if d.ResetAfterMS > 0 {
			free = "in " + millis(d.ResetAfterMS).String()
		}
		fmt.Fprintf(table, "%s\t%s\t%d of %d\t%s\t%s\n", d.Limit, d.Algorithm, d.Remaining, d.Capacity, fits(d.RetryAfterMS), free)
	}
	// Errors of w cannot be reported to anybody.
	_ = table.Flush()
}

func fits(retryAfterMS int64) string {
	switch {
	case retryAfterMS < 0:
		return "never fits"
	case retryAfterMS == 0:
		return "fits"
	}
	return "fits in " + millis(retryAfterMS).String()
}

func millis(ms int64) time.Duration { return time.Duration(ms) * time.Millisecond }

// printJSON writes v as indented JSON.
func printJSON(w io.Writer, v any) error {
	e := json.NewEncoder(w)
	e.SetEscapeHTML(false)
	e.SetIndent("", "  ")
	return e.Encode(v)
}
