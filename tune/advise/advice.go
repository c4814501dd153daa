package advise

import (
	"fmt"
	"strconv"
	"strings"
	"time"

	"github.com/headgate/headgate/tune/replay"
)

// Advice is a policy, with the numbers on which it is based.
type Advice struct {
	// Per and Tariff are the entries that distinguish clients and tiers.
	Per, Tariff string
	// Percentile and Headroom are those of the [Options].
	Percentile, Headroom float64
	// Requests is how many requests there were, and Limited how many of them the server answered
	// with 429. PerDay is the number of people on a typical day.
	Requests, Limited int64
	PerDay            int
	From, To          time.Time
	// Limits are the limits for all requests, and those for routes and tiers.
	Limits []Limit

	outliers        map[string]bool
	outlierRequests int64
}

// Promise is the result of replaying the advice on its own log.
type Promise struct {
	Requests, Denied int64
	// People is how many requests came from clients that are neither robots nor outliers,
	// and PeopleDenied how many of them are denied.
	People, PeopleDenied int64
	// Clients are those with denied requests, the worst first.
	Clients []replay.Client
	// Outliers says which of Clients are outliers.
	Outliers []bool
}

// Promise compares the advice with the result of a replay. The result must contain all clients with
// denied requests, by their own names unless these are secrets. For secrets, shown returns the name
// that replaces one; it is nil if clients are not distinguished by secrets.
func (a *Advice) Promise(r *replay.Result, shown func(string) string) Promise {
	outliers := a.outliers
	if shown != nil {
		outliers = make(map[string]bool, len(a.outliers))
		for name := range a.outliers {
			outliers[shown(name)] = true
		}
	}
	p := Promise{Requests: r.Requests, Denied: r.Interval.Most(), People: max(0, r.Requests-r.Robots-a.outlierRequests)}
	for i := range r.Clients {
		c := &r.Clients[i]
		if c.Denied == 0 && c.Bunched == 0 {
			break
		}
		outlier := outliers[string(appendNetwork(nil, c.Client))]
		if !outlier && !c.Robot {
			p.PeopleDenied += max(c.Denied, c.Bunched)
		}
		p.Clients, p.Outliers = append(p.Clients, *c), append(p.Outliers, outlier)
	}
	return p
}

// MostDenied is the largest share of people's requests that advice may deny.
const MostDenied = 0.001

// Holds reports whether at most [MostDenied] of people's requests are denied.
func (p *Promise) Holds() bool {
	return float64(p.PeopleDenied) <= MostDenied*float64(p.People)
}

// longestHit is how many clients with denied requests the policy lists.
const longestHit = 10

// YAML returns the policy. With a promise, it also says which clients would have requests denied.
// name returns the name to show for a client; if it is nil, names are shown as they are.
func (a *Advice) YAML(p *Promise, name func(string) string) string {
	var b strings.Builder
	line := func(format string, args ...any) { fmt.Fprintf(&b, format+"\n", args...) }
	line("# Limits from %d requests, %s to %s, of about %d clients a day that are no robots.", a.Requests, a.From.Format("2006-01-02 15:04"), a.To.Format("2006-01-02 15:04"), a.PerDay)
	line("# They leave %g %% of these clients alone, with a headroom of ×%g.", a.Percentile, a.Headroom)
	if a.Limited > 0 {
		line("# %d of the requests were answered with 429 already. What these clients would have", a.Limited)
		line("# done without those limits is not in the log: these limits may be too low.")
	}
	if p != nil {
		line("#")
		line("# Replayed on the same log they deny %d of %d requests, and of those of people", p.Denied, p.Requests)
		hit := count(len(p.Clients), "client is hit", "clients are hit") + ":"
		if len(p.Clients) == 0 {
			hit = "No client is hit."
		}
		line("# %d of %d. %s", p.PeopleDenied, p.People, hit)
		for i := range p.Clients {
			if i == longestHit {
				line("#   … and %d more", len(p.Clients)-longestHit)
				break
			}
			c := &p.Clients[i]
			what := ""
			switch {
			case c.Robot:
				what = ", a robot"
			case p.Outliers[i]:
				what = ", an outlier"
			}
			client := c.Client
			if name != nil {
				client = name(client)
			}
			line("#   %s: %d of %d requests%s", quote(client), c.Denied, c.Requests, what)
		}
	}
	line("rules:")
	a.writeAll(&b)
	for i := range a.Limits[1:] {
		if l := &a.Limits[i+1]; l.Route != "" {
			line("")
			line("  # %s", quote(l.Route))
			if l.Skipped != "" {
				line("  # No limit: %s.", l.Skipped)
				continue
			}
			l.numbers(&b, "  ")
			line("  - name: route-%d", i+1)
			line("    match: { %s: present, route: %s }", a.Per, strconv.Quote(l.Route))
			line("    per: [%s]", a.part())
			line("    limits: [%s]", l)
		}
	}
	return b.String()
}

// writeAll writes the rule for all requests, with its tiers.
func (a *Advice) writeAll(b *strings.Builder) {
	all := &a.Limits[0]
	all.numbers(b, "  ")
	fmt.Fprintf(b, "  - name: per-%s\n    match: { %s: present }\n    per: [%s]\n", strings.NewReplacer("_", "-", ".", "-").Replace(a.Per), a.Per, a.part())
	if a.Tariff == "" {
		fmt.Fprintf(b, "    limits: [%s]\n", all)
		return
	}
	fmt.Fprintf(b, "    limits:\n      %s:\n", a.Tariff)
	for i := range a.Limits[1:] {
		l := &a.Limits[i+1]
		if l.Tier == "" {
			continue
		}
		if l.Skipped != "" {
			fmt.Fprintf(b, "        # %s: no limit of its own: %s.\n", quote(l.Tier), l.Skipped)
			continue
		}
		l.numbers(b, "        ")
		fmt.Fprintf(b, "        %s: [%s]\n", strconv.Quote(l.Tier), l)
	}
	fmt.Fprintf(b, "        \"*\": [%s]\n", all)
}

// part is the entry that the rules count by.
func (a *Advice) part() string {
	if a.Per == "ip" {
		return "ip/64"
	}
	return a.Per
}

// numbers writes the numbers on which a limit is based.
func (l *Limit) numbers(b *strings.Builder, indent string) {
	fmt.Fprintf(b, "%s# %d requests of %s; besides %s and %s.\n", indent, l.Requests, count(l.People, "client", "clients"), count(l.Robots, "robot", "robots"), count(l.Outliers, "outlier", "outliers"))
	fmt.Fprintf(b, "%s# At most in any    half of the clients   95 %%   99 %%   all   chosen\n", indent)
	for _, w := range l.Windows {
		fmt.Fprintf(b, "%s#   %-15s %20d %6d %6d %5d %8d\n", indent, span(w.Length), w.P50, w.P95, w.P99, w.Top, w.Chosen)
	}
}

func span(d time.Duration) string {
	switch {
	case d >= time.Hour:
		return count(int(d/time.Hour), "hour", "hours")
	case d >= time.Minute:
		return count(int(d/time.Minute), "minute", "minutes")
	}
	return count(int(d/time.Second), "second", "seconds")
}

func count(n int, one, many string) string {
	if n == 1 {
		return "1 " + one
	}
	return strconv.Itoa(n) + " " + many
}

// quote returns a text from strangers in a form that cannot end a comment.
func quote(s string) string {
	if quoted := strconv.QuoteToASCII(s); quoted != `"`+s+`"` {
		return quoted
	}
	return s
}
