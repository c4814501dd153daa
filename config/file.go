package config

import (
	"fmt"
	"slices"
	"time"

	"github.com/headgate/headgate"
	"github.com/headgate/headgate/internal/spelling"
	"github.com/headgate/headgate/policy"
	"github.com/headgate/headgate/policy/lint"
)

// fileText is a file as it was read, before its rules are compiled.
type fileText struct {
	places   places
	rules    []entry[ruleText]
	short    []entry[shortText]
	subjects *subjectsText
	allow    []entry[listText]
	deny     []entry[listText]
	ignore   []policy.Ignore
	entries  []string // nil if the file does not say
	behind   []string
}

// shortText is one entry of the field limits, the short form.
type shortText struct {
	places places
	name   string
	config []entry[windowText]
}

// windowText is one window of the short form; the period is in seconds.
type windowText struct{ limit, period int64 }

// places says where the fields of a rule stand, by the words of policy.Mistake.
type places map[string]place

func (p *places) keep(at place, field string) {
	if *p == nil {
		*p = make(places)
	}
	(*p)[field] = at
}

// policyFile has the fields of a policy file. The loader reads by it and the
// schema is made of it, so that the two cannot differ.
func policyFile() value[fileText] {
	v := object("a policy", []field[fileText]{
		to("rules", "the rules. Every rule that matches a request applies to it", listOf(ruleMapping(), 1, policy.MaxRules),
			func(into *fileText, _ *node, v []entry[ruleText]) { into.rules = v }),
		to("limits", "rules in the short form: exact sliding windows, counted under the key that the caller gives", listOf(shortMapping(), 1, policy.MaxRules),
			func(into *fileText, _ *node, v []entry[shortText]) { into.short = v }),
		to("subjects", "entries to add for known clients, such as { k1: { tier: pro } }, by API key; or { by, table, file }", subjectsValue(),
			func(into *fileText, n *node, v subjectsText) {
				into.subjects = &v
				into.places.keep(n.at, "subjects")
			}),
		to("allow", "requests that no rule applies to, such as [{name: monitoring, match: { ip: 192.0.2.0/24 }}]", listOf(listMapping("an entry of allow"), 1, policy.MaxListed),
			func(into *fileText, n *node, v []entry[listText]) {
				into.allow = v
				into.places.keep(n.at, "allow")
			}),
		to("deny", "requests that are denied without asking the store. It takes precedence over allow", listOf(listMapping("an entry of deny"), 1, policy.MaxListed),
			func(into *fileText, n *node, v []entry[listText]) {
				into.deny = v
				into.places.keep(n.at, "deny")
			}),
		to("entries", "names of your own descriptor entries, such as [tenant, plan], or [] for none. If set, any other name in match, per and elsewhere is a mistake, unless Headgate itself provides the entry", listOf(entryName(), 0, policy.MaxDeclared),
			func(into *fileText, _ *node, v []entry[string]) {
				if into.entries = keepGood(&into.places, "entries", v); len(v) == 0 {
					into.entries = []string{}
				}
			}),
		to("behind", "the servers that read the paths of requests, such as [nginx, express], or any: what is known of them decides which paths are the same, and which are refused because they can be read in different ways", oneOrMore(spelling.Names()...),
			func(into *fileText, n *node, v []entry[string]) {
				into.places.keep(n.at, "behind")
				into.behind = keepGood(&into.places, "behind", v)
			}),
		to("ignore", "lint warnings to silence in the whole file, such as [{code: HG004, reason: internal network}]", listOf(ignoreMapping(), 1, maxIgnored),
			func(into *fileText, _ *node, v []entry[policy.Ignore]) { into.ignore = keepIgnored(&into.places, v) }),
	})
	v.schema["minProperties"] = 1
	return v
}

func shortMapping() value[shortText] {
	window := object("a window", []field[windowText]{
		required(to("limit", "how many units are admitted in any window", wholeNumber(1, headgate.MaxLog),
			func(into *windowText, _ *node, v int64) { into.limit = v })),
		required(to("period", "the length of the window, in seconds", wholeNumber(1, int64(headgate.MaxPeriod/time.Second)),
			func(into *windowText, _ *node, v int64) { into.period = v })),
	})
	return object("an entry of limits", []field[shortText]{
		required(to("name", "the name for callers and counters: 1 to 128 bytes without spaces and braces", nameText(),
			func(into *shortText, n *node, v string) {
				into.name = v
				into.places.keep(n.at, "name")
			})),
		required(to("config", "the windows, checked and charged together, such as [{limit: 20, period: 60}]", listOf(window, 1, headgate.MaxLimits),
			func(into *shortText, n *node, v []entry[windowText]) {
				into.config = v
				into.places.keep(n.at, "limits")
			})),
	})
}

// listText is one entry of allow or deny.
type listText struct {
	places places
	entry  policy.ListEntry
}

func listMapping(title string) value[listText] {
	return object(title, []field[listText]{
		required(to("name", "the name in answers, logs and metrics: 1 to 128 bytes without spaces and braces", nameText(),
			func(into *listText, n *node, v string) {
				into.entry.Name = v
				into.places.keep(n.at, "name")
			})),
		required(to("match", "conditions on the request's entries, such as { ip: [192.0.2.0/24, 2001:db8::/32] }", matchMapping("say which requests are meant"),
			func(into *listText, n *node, v []entry[policy.Condition]) {
				into.entry.Match = keepMatch(&into.places, n, v, "match")
			})),
		to("until", "the last day (UTC) or the exact time at which the entry expires, such as 2026-12-31", untilText(),
			func(into *listText, _ *node, v time.Time) { into.entry.Until = v }),
		to("replaces", "for Envoy requests with several descriptors: names of rules and deny entries that no longer apply when this entry matches one of the descriptors", listOf(someText(), 1, policy.MaxReplaces),
			func(into *listText, n *node, v []entry[string]) {
				into.places.keep(n.at, "replaces")
				into.entry.Replaces = keepGood(&into.places, "replaces", v)
			}),
	})
}

// keepGood returns the entries of a list that could be read, and keeps their places under
// the field.
func keepGood[T any](p *places, field string, v []entry[T]) []T {
	var all []T
	for i := range v {
		if v[i].good {
			p.keep(v[i].at, fmt.Sprintf("%s.%d", field, len(all)))
			all = append(all, v[i].value)
		}
	}
	return all
}

// maxIgnored is how many warnings one rule or file can silence.
const maxIgnored = 100

func ignoreMapping() value[policy.Ignore] {
	return object("an entry of ignore", []field[policy.Ignore]{
		required(to("code", "the code of the warning, such as HG004", plainText(schema{"pattern": "^HG[0-9]{3}$"}, warningCode),
			func(into *policy.Ignore, _ *node, v string) { into.Code = v })),
		required(to("reason", "why the warning does not apply", plainText(schema{"minLength": 1}, asWritten),
			func(into *policy.Ignore, _ *node, v string) { into.Reason = v })),
	})
}

// warningCode reads the code of a warning that there is.
func warningCode(text string) (string, error) {
	codes := lint.Codes()
	if slices.ContainsFunc(codes, func(c lint.Code) bool { return c.Code == text }) {
		return text, nil
	}
	return "", fmt.Errorf("there is no warning %s; there are %s to %s", policy.Quote(text), codes[0].Code, codes[len(codes)-1].Code)
}

// keepIgnored gives the entries that are complete, and keeps their places.
func keepIgnored(p *places, v []entry[policy.Ignore]) []policy.Ignore {
	var all []policy.Ignore
	for _, e := range v {
		// A field that is missing was told already.
		if e.good && e.value.Code != "" && e.value.Reason != "" {
			p.keep(e.at, fmt.Sprintf("ignore.%d", len(all)))
			all = append(all, e.value)
		}
	}
	return all
}

// entryName is the name of an entry, whose bytes policy.New looks at.
func entryName() value[string] { return plainText(schema{"pattern": entryPattern}, asWritten) }

func asWritten(text string) (string, error) { return text, nil }

// nameText leaves the check to headgate.NewRule, whose words name the byte.
func nameText() value[string] {
	s := schema{"minLength": 1, "maxLength": headgate.MaxName, "pattern": `^[^\x00-\x20\x7f{}]+$`}
	return plainText(s, asWritten)
}

// tagText leaves the check to headgate.Rule.WithTag, likewise.
func tagText() value[string] {
	s := schema{"minLength": 1, "maxLength": headgate.MaxTag, "pattern": `^[^\x00-\x20\x7f{}]+$`}
	return plainText(s, asWritten)
}
