package cli

import (
	"fmt"
	"io"
	"net/http"
	"strconv"
	"text/tabwriter"
	"time"

	"github.com/headgate/headgate/server/candidate"
)

// candidateReport is the command that shows what a server has found out about its candidate policy.
type candidateReport struct {
	insightFlags `embed:""`
}

// Help is the detailed help.
func (candidateReport) Help() string {
	return "Shows how many requests a server's candidate policy (headgate serve --candidate FILE) decides differently, which rules and tiers cause it, and, with the admin token, which keys are affected most.\n\n" +
		"Exit codes: 0 shown; 1 the server has no candidate; 2 a mistake, such as a wrong token; 3 the server does not answer."
}

// Run asks and prints the answer.
func (k *candidateReport) Run(c *call) error {
	a, err := k.asker(c, "")
	if err != nil {
		return err
	}
	report := new(candidate.Report)
	if _, err := a.send(c.ctx, http.MethodGet, "/v1/candidate", nil, nil, report); err != nil {
		return err
	}
	if report.Live.Hash == "" {
		return notHeadgate(a.url, http.StatusOK)
	}
	if k.JSON {
		return printJSON(c.stdout, report)
	}
	printReport(c.stdout, report)
	return nil
}

// printReport writes the report as text.
func printReport(w io.Writer, r *candidate.Report) {
	if r.Failed != nil {
		fmt.Fprintf(w, "the candidate's file was not taken at %s: %s\n", stamp(r.Failed.At), r.Failed.Detail)
		for _, m := range r.Failed.Mistakes {
			fmt.Fprintf(w, "  %s\n", m)
		}
		fmt.Fprintln(w)
	}
	fmt.Fprintf(w, "in force   %s\n", describe(&r.Live))
	if r.Candidate == nil {
		fmt.Fprintln(w, "candidate  none: its file was never without mistakes")
		return
	}
	fmt.Fprintf(w, "candidate  %s\n", describe(r.Candidate))
	fmt.Fprintf(w, "figures    since %s, on one server\n", stamp(r.Since))
	fmt.Fprintf(w, "counters   since %s, empty then; in %s\n", stamp(r.CountingSince), r.Counters)
	if r.Crowded > 0 {
		fmt.Fprintf(w, "           %d decisions on counters that keys share for want of memory: stricter than the candidate is\n", r.Crowded)
	}
	table := tabwriter.NewWriter(w, 0, 0, 2, ' ', 0)
	fmt.Fprintln(table, "\nREQUESTS\t\t")
	for _, line := range []struct {
		name  string
		count int64
	}{
		{"compared", r.Compared},
		{"both admit", r.BothAdmitted},
		{"both deny", r.BothDenied},
		{"newly denied", r.NewlyDenied},
		{"newly admitted", r.NewlyAdmitted},
		{"undecidable", r.Undecidable},
	} {
		fmt.Fprintf(table, "%s\t%d\t%s\n", line.name, line.count, share(line.count, r.Compared))
	}
	n := &r.NotCompared
	fmt.Fprintf(table, "not compared\t%d\t\n", n.Dropped+n.Undecided+n.Unanswered)
	_ = table.Flush() // errors of w cannot be reported to anybody
	for _, why := range []struct {
		count int64
		text  string
	}{
		{n.Dropped, "were dropped: more came than could be compared"},
		{n.Undecided, "had no decision of the service itself"},
		{n.Unanswered, "had no answer of the candidate's store"},
	} {
		if why.count > 0 {
			fmt.Fprintf(w, "  %d %s\n", why.count, why.text)
		}
	}
	if r.WhyUndecidable != "" {
		fmt.Fprintf(w, "last undecidable: %s\n", r.WhyUndecidable)
	}
	printSplits(w, r)
	printBounds(w, r.InProgress)
	printKeys(w, "TOP NEWLY DENIED", r.TopNewlyDenied)
	printKeys(w, "TOP NEWLY ADMITTED", r.TopNewlyAdmitted)
	if r.KeysHidden && r.NewlyDenied+r.NewlyAdmitted > 0 {
		fmt.Fprintln(w, "\nkeys are shown to those with the admin token")
	}
}

func describe(v *candidate.Version) string {
	return fmt.Sprintf("version %d, hash %.12s, %s", v.Version, v.Hash, count(v.Rules, "rule"))
}

func stamp(t time.Time) string { return t.UTC().Format("2006-01-02 15:04:05 MST") }

// share formats a part in percent, such as "0.3 %".
func share(part, whole int64) string {
	switch percent := float64(part) * 100 / float64(whole); {
	case whole == 0:
		return ""
	case part > 0 && percent < 0.1:
		return "< 0.1 %"
	}
	return strconv.FormatFloat(float64(part)*100/float64(whole), 'f', 1, 64) + " %"
}

// printSplits writes which rules and tiers decide the differences.
func printSplits(w io.Writer, r *candidate.Report) {
	if len(r.Rules) == 0 {
		return
	}
	table := tabwriter.NewWriter(w, 0, 0, 2, ' ', 0)
	fmt.Fprintln(table, "\nDECIDED BY\tTIER\tNEWLY DENIED\tNEWLY ADMITTED\tUNDECIDABLE")
	for _, s := range r.Rules {
		fmt.Fprintf(table, "%s\t\t%d\t%d\t%d\n", denier(s.Denier), s.NewlyDenied, s.NewlyAdmitted, s.Undecidable)
		for _, t := range s.Tiers {
			fmt.Fprintf(table, "\t%s\t%d\t%d\t\n", shown(t.Tier), t.NewlyDenied, t.NewlyAdmitted)
		}
	}
	_ = table.Flush()
	if r.OtherRules > 0 {
		fmt.Fprintf(w, "and %d of others\n", r.OtherRules)
	}
}

// printBounds writes which rules allow more or fewer requests in progress.
func printBounds(w io.Writer, changed []candidate.Rebound) {
	if len(changed) == 0 {
		return
	}
	table := tabwriter.NewWriter(w, 0, 0, 2, ' ', 0)
	fmt.Fprintln(table, "\nIN PROGRESS\tIN FORCE\tCANDIDATE")
	for _, c := range changed {
		fmt.Fprintf(table, "%s\t%s\t%s\n", c.Rule, bound(c.Live), bound(c.Candidate))
	}
	_ = table.Flush()
	fmt.Fprintln(w, "these bounds were not tried: nobody knows how long a request is in progress that was only asked about")
}

// bound formats a bound as text.
func bound(b *candidate.Bound) string {
	if b == nil {
		return "no bound"
	}
	text := strconv.FormatInt(b.Limit, 10)
	switch {
	case b.Limit == 0:
		text = fmt.Sprintf("up to %d for some", b.Most)
	case b.Most > b.Limit:
		text += fmt.Sprintf(", up to %d for some", b.Most)
	}
	if b.Shared {
		text += fmt.Sprintf(", shared for %v", time.Duration(b.TTLMS)*time.Millisecond)
	}
	if b.WaitMS > 0 {
		text += fmt.Sprintf(", %d wait for %v", b.Queue, time.Duration(b.WaitMS)*time.Millisecond)
	}
	return text
}

func printKeys(w io.Writer, title string, keys []candidate.Key) {
	if len(keys) == 0 {
		return
	}
	table := tabwriter.NewWriter(w, 0, 0, 2, ' ', 0)
	fmt.Fprintf(table, "\n%s\tDECIDED BY\tREQUESTS\n", title)
	for _, k := range keys {
		n := strconv.FormatInt(k.Count, 10)
		if k.Over > 0 {
			n = fmt.Sprintf("%d to %d", k.Count-k.Over, k.Count)
		}
		fmt.Fprintf(table, "%s\t%s\t%s\n", shown(k.Key), denier(k.Denier), n)
	}
	_ = table.Flush()
}

func denier(d candidate.Denier) string {
	if d.List != "" {
		return "deny list: " + shown(d.List)
	}
	return shown(d.Rule)
}

// shown returns a text that clients may have chosen in a form that is safe for a terminal.
func shown(s string) string {
	if s == "" {
		return `""`
	}
	if quoted := strconv.Quote(s); quoted[1:len(quoted)-1] != s {
		return quoted
	}
	return s
}
