package gateway

import (
	"fmt"
	"net/http"
	"net/url"
	"path"
	"slices"
	"strings"

	"github.com/headgate/headgate/policy"
)

// table finds the pattern of a request. It is immutable and safe for concurrent
// use.
type table struct {
	mux      *http.ServeMux
	patterns []string
}

// add adds a pattern, or says what is wrong with it.
func (t *table) add(pattern string) (problem string) {
	if t.mux == nil {
		t.mux = http.NewServeMux()
	}
	if problem = register(t.mux, pattern); problem == "" {
		t.patterns = append(t.patterns, pattern)
		return ""
	}
	if register(http.NewServeMux(), pattern) != "" {
		return fmt.Sprintf("%q is no pattern such as GET /items/{id}: %s", pattern, problem)
	}
	for _, other := range t.patterns {
		pair := http.NewServeMux()
		_ = register(pair, other)
		if register(pair, pattern) == "" {
			continue
		}
		return fmt.Sprintf("%q conflicts with %q: some requests match both, and neither of them is the more specific one", pattern, other)
	}
	return fmt.Sprintf("%q conflicts with another pattern: %s", pattern, problem)
}

// register registers a pattern for nothing but being found.
func register(mux *http.ServeMux, pattern string) (problem string) {
	defer func() {
		if p := recover(); p != nil {
			// ServeMux takes a wrong pattern for a defect. Behind the colon is what it
			// has to say.
			_, problem, _ = strings.Cut(fmt.Sprint(p), "parsing ")
			if _, rest, ok := strings.Cut(problem, `": `); ok {
				problem = rest
			}
			if problem == "" {
				problem = "it cannot be told from another one"
			}
		}
	}()
	mux.Handle(pattern, http.NotFoundHandler())
	return ""
}

// find returns the pattern that matches a request, or "". ServeMux would redirect
// some requests to another spelling of their path; here they belong to the pattern
// of that.
func (t *table) find(r *http.Request) string {
	if t.mux == nil {
		return ""
	}
	_, pattern := t.mux.Handler(r)
	return pattern
}

// names finds the entry "route" of requests by the patterns that a policy's rules
// name, and those of the routes: what rules say of requests is found without
// being said twice, and no path of a client's choosing gets into a key.
type names struct {
	table
	// prefixes are the beginnings of routes that rules name and that are no patterns
	// themselves, the longest first.
	prefixes []string
	// more says that the policy names routes besides those that the gateway has.
	more bool
}

// Unmatched is the entry "route" of a request that no pattern matches.
const Unmatched = "unmatched"

// newNames returns the names for a policy, and what it cannot do.
func newNames(routes []Route, set *policy.Set) (n *names, problems []string) {
	n = new(names)
	have := make(map[string]bool)
	add := func(pattern, who string) {
		if have[pattern] {
			return
		}
		if problem := n.add(pattern); problem != "" {
			problems = append(problems, fmt.Sprintf("%s: the route %s", who, problem))
			return
		}
		have[pattern], n.more = true, true
	}
	for i := range routes {
		if routes[i].Name == "" {
			// Mistakes in it were told when the gateway was made.
			add(routes[i].Pattern, "the gateway")
		}
	}
	n.more = false
	if !slices.Contains(set.Entries(), "route") {
		return n, nil
	}
	named := routesOf(set)
	for _, v := range named.values {
		if strings.Contains(v.text, "/") {
			add(v.text, v.who)
		}
	}
	for _, v := range named.prefixes {
		// "GET /v1/*" is the pattern "GET /v1/", and "GET *" is "GET /".
		if strings.HasSuffix(v.text, "/") {
			add(v.text, v.who)
		} else if method, ok := strings.CutSuffix(v.text, " "); ok && isHeaderName(method) {
			add(v.text+"/", v.who)
		} else if !slices.Contains(n.prefixes, v.text) {
			n.prefixes, n.more = append(n.prefixes, v.text), true
		}
	}
	slices.SortFunc(n.prefixes, func(a, b string) int { return len(b) - len(a) })
	return n, problems
}

// of returns the entry of a request.
func (n *names) of(r *http.Request) string {
	if pattern := n.find(r); pattern != "" {
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
	const entry = "route"
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

// otherwise returns a request for the same as r, as a server would read its path
// that decodes it more than once, takes a backslash for a slash, or leaves
// parameters out; nil if r cannot be read in another way. Where the two are of
// different routes, a client could pass for the one and be served by the other.
func otherwise(r *http.Request) *http.Request {
	escaped := r.URL.EscapedPath()
	if !strings.ContainsAny(escaped, `%\;`) {
		return nil
	}
	text := r.URL.Path
	if again, err := url.PathUnescape(text); err == nil {
		text = again
	}
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
	if u.EscapedPath() == escaped {
		return nil
	}
	return &http.Request{Method: r.Method, Host: r.Host, URL: &u}
}
