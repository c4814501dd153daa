// Package document writes, from a policy, what the documentation of an API should say of its
// limits: to the clients of the API, and not to those who run it.
//
// Shown are rules that are enforced for everybody and that count each client by itself. Not
// shown is what clients should not know or cannot use: rules in shadow, limits that all clients
// share, overrides and lists, conditions that name single clients or addresses, and tiers that
// are told apart by a secret. [Document.LeftOut] says what was left out and why.
package document

import (
	"slices"
	"strings"
	"time"

	"github.com/headgate/headgate"
	"github.com/headgate/headgate/httplimit"
	"github.com/headgate/headgate/policy"
)

// Document is what clients are told. Everything in it may be published.
type Document struct {
	Title  string
	Limits []Limits
	// Headers are those of the dialect, and Example those of a denial.
	Headers []Header
	// Problem is the body of a denial: one for the limit that is shown first.
	Problem httplimit.Problem
	// LeftOut says which rules are not shown, and why. It is for those who run the API.
	LeftOut []LeftOut
}

// Limits are those of some operations.
type Limits struct {
	// Operations are the operations in words, such as "POST /v1/token" or "every request".
	Operations []string
	// Counted says what has a counter of its own, such as "API key".
	Counted string
	// Tiers has the limits by tariff, or one entry without a name.
	Tiers []Tier
	// Notes are further sentences: what costs more, what is not charged.
	Notes []string
}

// Tier is what clients of one tariff may do.
type Tier struct {
	Name   string
	Limits string
}

// Header is a header of answers.
type Header struct {
	Name, Meaning, Example string
}

// LeftOut is a rule that is not shown.
type LeftOut struct{ Rule, Why string }

// Options are what a policy does not say.
type Options struct {
	// Title is the heading. Empty means "Rate limits".
	Title string
	// Dialect names the headers that the doors write, as [httplimit.ParseDialect] reads it.
	Dialect string
}

// New reads the policy. The error says that there is no such dialect.
func New(set *policy.Set, o Options) (*Document, error) {
	dialect, err := httplimit.ParseDialect(o.Dialect)
	if err != nil {
		return nil, err
	}
	d := &Document{Title: o.Title}
	if d.Title == "" {
		d.Title = "Rate limits"
	}
	var first *headgate.Rule
	rules := set.Rules()
	for i := range rules {
		r := &rules[i]
		limits, why := read(set, r)
		if why != "" {
			d.LeftOut = append(d.LeftOut, LeftOut{r.Name, why})
			continue
		}
		if first == nil {
			first = r.Limits
		}
		d.Limits = append(d.Limits, limits)
	}
	if first == nil {
		first = headgate.MustRule("api", headgate.PerMinute(20))
	}
	example := denial(first)
	d.Headers = headers(dialect, &example)
	d.Problem = httplimit.QuotaExceeded(&example)
	return d, nil
}

// denial is a denial by the rule's first limit.
func denial(rule *headgate.Rule) headgate.Verdict {
	limit := &rule.Limits()[0]
	period := time.Duration(limit.Micros()) * time.Microsecond
	wait := period / 4
	if limit.Algorithm == headgate.TokenBucket || limit.Algorithm == headgate.LeakyBucket {
		wait = period / time.Duration(limit.Count)
	}
	return headgate.NewVerdict([]headgate.Decision{{Rule: rule, Limit: limit, RetryAfter: wait, ResetAfter: period}})
}

// public are the entries that clients know of their own requests.
var public = []string{"route", "method", "path", "host", "operation"}

// read returns what clients are told of the rule, or why they are told nothing.
func read(set *policy.Set, r *policy.Rule) (l Limits, why string) {
	switch {
	case r.Mode != policy.ModeEnforce || r.Enforce != 0 && r.Enforce != 100:
		return l, "it is not enforced for everybody"
	case r.Direct:
		return l, "no request matches it: callers name it"
	case r.Limits == nil:
		return l, "it bounds what is in progress, and not how often"
	case len(r.Per) == 0:
		return l, "all clients share it"
	}
	if l.Operations, why = operations(r); why != "" {
		return l, why
	}
	var counted []string
	for _, part := range r.Per {
		counted = append(counted, partWords(part))
	}
	l.Counted = strings.Join(counted, " and ")
	switch t := r.Tariff; {
	case t == nil:
		l.Tiers = []Tier{{Limits: limitsWords(r.Limits)}}
	case set.Secret(t.Entry):
		return l, "its tariff goes by a secret"
	default:
		for _, tier := range t.Tiers {
			l.Tiers = append(l.Tiers, Tier{tier.Value, limitsWords(tier.Limits)})
		}
		if t.Other != nil {
			l.Tiers = append(l.Tiers, Tier{"all others", limitsWords(t.Other)})
		}
	}
	l.Notes = notes(r)
	return l, ""
}

// operations returns what the rule is for, or why that is not for clients to know.
func operations(r *policy.Rule) (all []string, why string) {
	var who []string
	for i := range r.Match {
		c := &r.Match[i]
		valued := len(c.Equals)+len(c.Prefixes) > 0
		switch {
		case len(c.Networks)+len(c.Hashes) > 0:
			return nil, "it is for certain clients"
		case valued && (!slices.Contains(public, c.Entry) || c.Not):
			return nil, "it depends on " + c.Entry + ", which may be internal"
		case valued:
			all = append(all, c.Equals...)
			for _, v := range c.Prefixes {
				all = append(all, v+"*")
			}
		case c.Not && slices.Contains(r.Per, policy.Part{Entry: c.Entry}):
			return nil, "no request meets it"
		case c.Not:
			who = append(who, "without "+article(entryWords(c.Entry)))
		case !slices.ContainsFunc(r.Per, func(p policy.Part) bool { return p.Entry == c.Entry }):
			who = append(who, "with "+article(entryWords(c.Entry)))
		}
	}
	if len(all) == 0 {
		all = []string{"Every request"}
	}
	if len(who) > 0 {
		for i := range all {
			all[i] += " " + strings.Join(who, ", ")
		}
	}
	return all, ""
}
