package routes

import (
	"fmt"
	"net/http"
	"net/url"
	"path"
	"slices"
	"strings"

	"github.com/headgate/headgate/policy"
)

// Unmatched is the entry "route" of a request that no pattern matches.
const Unmatched = "unmatched"

// entry is the name of the entry that this package is about.
const entry = "route"

// Names finds the entry "route" of requests by the patterns that a policy names,
// and others that were given. It is immutable and safe for concurrent use.
type Names struct {
	table Table
	// prefixes are the beginnings of routes that rules name and that cannot stand
	// as patterns among the others, the longest first.
	prefixes []string
	more     bool
}

// New returns the names for a policy with the patterns in others besides its own.
// The problems are those of routes that are no patterns or cannot be told from
// each other; rules that name them do not bind.
func New(set *policy.Set, others ...string) (n *Names, problems []string) {
	n = new(Names)
	have := make(map[string]bool)
	add := func(pattern, who string) {
		if have[pattern] {
			return
		}
		if problem := n.table.Add(pattern); problem != "" {
			problems = append(problems, fmt.Sprintf("%s: the route %s", who, problem))
			return
		}
		have[pattern], n.more = true, true
	}
	for _, pattern := range others {
		add(pattern, "the server")
	}
	n.more = false
	if !slices.Contains(set.Entries(), entry) {
		return n, problems
	}
	named := routesOf(set)
	for _, v := range named.values {
		if strings.Contains(v.text, "/") {
			add(v.text, v.who)
		}
	}
	for _, v := range named.prefixes {
		// "GET /v1/*" is the pattern "GET /v1/", and "GET *" is "GET /".
		pattern := v.text
		if method, ok := strings.CutSuffix(pattern, " "); ok && method != "" && !strings.ContainsAny(method, " /") {
			pattern += "/"
		}
		switch {
		case have[pattern] || slices.Contains(n.prefixes, v.text):
			continue
		case strings.Contains(pattern, "{") && strings.HasSuffix(pattern, "/"):
			add(pattern, v.who)
			continue
		case strings.HasSuffix(pattern, "/") && n.table.Add(pattern) == "":
			have[pattern] = true
		default:
			// It is none, or not beside the others, and still is a beginning.
			n.prefixes = append(n.prefixes, v.text)
		}
		n.more = true
	}
	slices.SortFunc(n.prefixes, func(a, b string) int { return len(b) - len(a) })
	return n, problems
}

// More reports whether the policy names routes besides those in others.
func (n *Names) More() bool { return n.more }

// Of returns the entry of a request. It looks at its Method, Host and URL.
func (n *Names) Of(r *http.Request) string {
	if pattern := n.table.Find(r); pattern != "" {
		return pattern
	}
	if len(n.prefixes) > 0 {
		// What begins like this satisfies the rules that ask for the beginning, and
		// there are as many of them as the policy has.
		text := r.Method + " " + path.Clean("/"+r.URL.Path)
		for _, p := range n.prefixes {
			if strings.HasPrefix(text, p) {
				return p + "*"
			}
		}
	}
	return Unmatched
}

// named is a route in a policy, and whose it is.
type named struct{ text, who string }

// routesIn are the routes that a policy names.
type routesIn struct{ values, prefixes []named }

// routesOf returns the routes that the policy's rules, lists and table name.
func routesOf(set *policy.Set) (in routesIn) {
	conditions := func(all []policy.Condition, who string) {
		for i := range all {
			if all[i].Entry != entry {
				continue
			}
			for _, v := range all[i].Equals {
				in.values = append(in.values, named{v, who})
			}
			for _, v := range all[i].Prefixes {
				in.prefixes = append(in.prefixes, named{v, who})
			}
		}
	}
	rules := set.Rules()
	for i := range rules {
		r := &rules[i]
		who := fmt.Sprintf("rule %q", r.Name)
		conditions(r.Match, who)
		for j := range r.Overrides {
			conditions(r.Overrides[j].Match, who)
		}
		if r.Tariff != nil && r.Tariff.Entry == entry {
			for _, t := range r.Tariff.Tiers {
				in.values = append(in.values, named{t.Value, who})
			}
		}
		if r.Costs != nil && r.Costs.Entry == entry {
			for v := range r.Costs.Values {
				in.values = append(in.values, named{v, who})
			}
		}
	}
	for _, list := range [][]policy.ListEntry{set.Denied(), set.Allowed()} {
		for i := range list {
			conditions(list[i].Match, fmt.Sprintf("list entry %q", list[i].Name))
		}
	}
	if table := set.Subjects(); table != nil && table.By == entry {
		for i := range table.Table {
			in.values = append(in.values, named{table.Table[i].Key, "the table of subjects"})
		}
	}
	// The costs come from a map.
	slices.SortFunc(in.values, func(a, b named) int { return strings.Compare(a.text, b.text) })
	return in
}

// Otherwise returns a request for the same as r, as a server would read it that
// decodes its path more than once, ends it at a zero byte, takes a backslash for a
// slash, or leaves parameters out, and to which methods are the same in small letters;
// nil if r cannot be read in another way. Where the two are of different routes, a
// client could pass for the one and be served by the other.
func Otherwise(r *http.Request) *http.Request {
	method, escaped := strings.ToUpper(r.Method), r.URL.EscapedPath()
	if method == r.Method && !strings.ContainsAny(escaped, `%\;`) {
		return nil
	}
	text := r.URL.Path
	if again, err := url.PathUnescape(text); err == nil {
		text = again
	}
	text, _, _ = strings.Cut(text, "\x00") // to what is written in C it ends there
	text = strings.ReplaceAll(text, `\`, "/")
	segments := strings.Split(text, "/")
	for i, s := range segments {
		segments[i], _, _ = strings.Cut(s, ";")
	}
	clean := path.Clean("/" + strings.Join(segments, "/"))
	if strings.HasSuffix(text, "/") && clean != "/" {
		clean += "/"
	}
	u := url.URL{Path: clean}
	if method == r.Method && u.EscapedPath() == escaped {
		return nil
	}
	return &http.Request{Method: method, Host: r.Host, URL: &u}
}

// CleanPath is the path that a request leads to, as for its route: without empty
// segments, "." and "..", whose other spellings a rule would not know.
func CleanPath(p string) string {
	if !strings.Contains(p, "//") && !strings.Contains(p, "/.") {
		return p
	}
	clean := path.Clean(p)
	if strings.HasSuffix(p, "/") && clean != "/" {
		clean += "/"
	}
	return clean
}
