package routes

import (
	"fmt"
	"net/http"
	"slices"
	"strings"

	"github.com/headgate/headgate/internal/spelling"
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
	prefixes   []string
	more       bool
	methods    bool
	undeclared bool
}

// New returns the names for a policy with the patterns in others besides its own. Declared are
// the forms of paths that are known of the servers behind, besides what is known of those that
// the policy names. The problems are those of routes that are no patterns or cannot be told from
// each other, and of routes and paths that no request is read as; rules that name them do not
// bind.
func New(set *policy.Set, declared spelling.Forms, others ...string) (n *Names, problems []string) {
	known, _ := spelling.Behind(set.Behind()...)
	forms := declared.Or(known)
	n = &Names{table: Table{Forms: forms}}
	have := make(map[string]bool)
	add := func(pattern, who string) {
		if have[pattern] {
			return
		}
		if problem := n.table.Add(pattern); problem != "" {
			problems = append(problems, fmt.Sprintf("%s: the route %s", who, problem))
			return
		}
		have[pattern], n.more, n.methods = true, true, n.methods || namesMethod(pattern)
	}
	for _, pattern := range others {
		add(pattern, "the server")
	}
	n.more = false
	named := routesOf(set)
	problems = append(problems, unread(named.paths, forms)...)
	if !slices.Contains(set.Entries(), entry) {
		return n, problems
	}
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
		slash := max(0, strings.IndexByte(pattern, '/'))
		switch read := forms.Prefix(pattern[slash:]); {
		case read != pattern[slash:]:
			problems = append(problems, fmt.Sprintf("%s: the route %s", v.who, sameTo(pattern+"*", pattern[:slash]+read+"*")))
			continue
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
		n.more, n.methods = true, n.methods || namesMethod(v.text)
	}
	slices.SortFunc(n.prefixes, func(a, b string) int { return len(b) - len(a) })
	n.undeclared = n.more && declared == 0 && len(set.Behind()) == 0
	return n, problems
}

// Forms are what the servers behind do with paths.
func (n *Names) Forms() spelling.Forms { return n.table.Forms }

// More reports whether the policy names routes besides those in others.
func (n *Names) More() bool { return n.more }

// UnsaidText is what the log is told if [Names.Unsaid].
const UnsaidText = "the policy has rules for routes, and nothing says which server is behind: paths that differ in case, or in a slash at the end, count as different routes, and some servers serve them as one; write behind in the policy, such as behind: express, or behind: any"

// Unsaid reports whether the policy names routes and nothing says what is behind.
func (n *Names) Unsaid() bool { return n.undeclared }

// Methods reports whether some route is of one method only.
func (n *Names) Methods() bool { return n.methods }

// namesMethod reports whether a pattern, or a beginning of one, names a method.
func namesMethod(pattern string) bool {
	end := strings.IndexAny(pattern, " \t/")
	return end < 0 || pattern[end] != '/' // "PO" may be the beginning of POST
}

// Of returns the entry of a request whose path was read as p. It looks at its Method
// and Host.
func (n *Names) Of(r *http.Request, p *spelling.Path) string {
	if pattern := n.table.Find(r, p); pattern != "" {
		return pattern
	}
	if len(n.prefixes) > 0 {
		// What begins like this satisfies the rules that ask for the beginning, and
		// there are as many of them as the policy has.
		text := r.Method + " " + p.Text
		if n.table.Forms&spelling.IgnoreSlash != 0 {
			text = strings.TrimSuffix(text, "/") + "/"
		}
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

// routesIn are the routes that a policy names, and its conditions on paths.
type routesIn struct {
	values, prefixes []named
	paths            []paths
}

// paths is a condition on the path, and whose it is.
type paths struct {
	*policy.Condition
	who string
}

// unread returns the problems of conditions on paths that no request is read as.
func unread(conditions []paths, forms spelling.Forms) (problems []string) {
	for _, c := range conditions {
		add := func(text string) { problems = append(problems, fmt.Sprintf("%s: the path %s", c.who, text)) }
		for _, path := range c.Equals {
			if read := forms.Pattern(path); read != path {
				add(sameTo(path, read))
			} else if read := forms.Same(path); read != path {
				add(sameTo(path, read))
			}
		}
		for _, path := range c.Prefixes {
			short := strings.TrimSuffix(path, "/")
			if read := forms.Prefix(path); read != path {
				add(sameTo(path+"*", read+"*"))
			} else if forms&spelling.IgnoreSlash != 0 && short != path && short != "" && !slices.Contains(c.Equals, short) {
				add(fmt.Sprintf("%q is without %q, for which the servers behind take %q; write [%s, %s*]", path+"*", short, path, short, path))
			}
		}
	}
	return problems
}

// routesOf returns the routes that the policy's rules, lists and table name.
func routesOf(set *policy.Set) (in routesIn) {
	conditions := func(all []policy.Condition, who string) {
		for i := range all {
			if all[i].Entry == "path" {
				in.paths = append(in.paths, paths{&all[i], who})
			}
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

// Find returns the entry of a request whose path was read as p. Where that has two
// readings it is the one that a pattern matches; the error says that two patterns do.
func (n *Names) Find(r *http.Request, p *spelling.Path) (string, *spelling.Error) {
	return spelling.Of(p, func(p *spelling.Path) (string, bool) {
		route := n.Of(r, p)
		return route, route != Unmatched
	})
}
