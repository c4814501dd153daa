package replay

import (
	"net/http"
	"slices"
	"strings"

	"github.com/headgate/headgate/internal/identity"
	"github.com/headgate/headgate/internal/routes"
	"github.com/headgate/headgate/internal/spelling"
	"github.com/headgate/headgate/policy"
	"github.com/headgate/headgate/tune/accesslog"
)

// facts makes descriptors from the requests of a log, for one policy.
type facts struct {
	names   *routes.Names
	entries []string // of the log, beyond the usual ones
	apiKey  int      // the place of api_key among them, or -1
	needs   struct{ ip, user, route, method, host, path bool }
	hosts   bool // some route has a host

	paths  map[target]where
	hosted map[string]string
	found  policy.Descriptor
}

// target is what determines the route and the path of a request.
type target struct{ method, host, path string }

// where is the route and the path of a target.
type where struct {
	route, path string
	unclear     bool
}

// maxTargets bounds the remembered targets, so that clients with made-up paths cannot fill the
// memory.
const maxTargets = 1 << 15

func newFacts(set *policy.Set, entries []string) (*facts, []string) {
	f := &facts{entries: entries, apiKey: slices.Index(entries, "api_key"), paths: make(map[target]where), hosted: make(map[string]string)}
	var problems []string
	f.names, problems = routes.New(set, 0)
	for _, name := range set.Entries() {
		switch name {
		case "ip":
			f.needs.ip = true
		case "user":
			f.needs.user = true
		case "route":
			f.needs.route, f.hosts = true, true
		case "method":
			f.needs.method = true
		case "host":
			f.needs.host = true
		case "path":
			f.needs.path = true
		}
	}
	return f, problems
}

// of returns the descriptor of the request, which is valid until the next call, and
// whether servers read its host or its path in different ways.
func (f *facts) of(r *accesslog.Request) (d policy.Descriptor, unclear bool) {
	d = f.found[:0]
	for i, name := range f.entries {
		d = add(d, name, r.Entry(i))
	}
	if f.needs.ip {
		d = add(d, "ip", r.Text(r.IP))
	}
	if f.needs.user {
		d = add(d, "user", r.Text(r.User))
	}
	if f.needs.method {
		d = add(d, "method", r.Text(r.Method))
	}
	if f.needs.host || f.needs.route || f.needs.path {
		host, path := split(r)
		host, unclear = f.host(host)
		if f.needs.host {
			d = add(d, "host", host)
		}
		if f.needs.route || f.needs.path {
			w := f.where(target{r.Text(r.Method), host, path})
			if unclear = unclear || w.unclear; f.needs.route {
				d = add(d, "route", w.route)
			}
			if f.needs.path {
				d = add(d, "path", w.path)
			}
		}
	}
	f.found = d
	return d, unclear
}

// add adds an entry, unless its value is absent or longer than any door accepts.
func add(d policy.Descriptor, name, value string) policy.Descriptor {
	if value == "" || len(value) > policy.MaxValue {
		return d
	}
	return append(d, policy.Entry{Name: name, Value: value})
}

// split returns the host and the path of a request, whose target may be a whole URL.
func split(r *accesslog.Request) (host, path string) {
	host, path = r.Text(r.Host), r.Text(r.Target)
	if path != "" && path[0] != '/' {
		if _, rest, ok := strings.Cut(path, "://"); ok {
			i := strings.IndexAny(rest, "/?#")
			if i < 0 {
				i = len(rest)
			}
			host, path = rest[:i], rest[i:]
		}
	}
	if i := strings.IndexByte(path, '?'); i >= 0 {
		path = path[:i]
	}
	return host, path
}

// host returns a host in its canonical form, and whether it can be read in different ways.
func (f *facts) host(text string) (host string, unclear bool) {
	if text == "" {
		return "", false
	}
	host, known := f.hosted[text]
	if !known {
		if len(f.hosted) == maxTargets {
			clear(f.hosted)
		}
		host, _ = identity.Hostname(text)
		host = strings.Clone(host)
		f.hosted[strings.Clone(text)] = host
	}
	return host, host == ""
}

// where returns the route and the path of a target, as the doors determine them.
func (f *facts) where(t target) where {
	w, known := f.paths[t]
	if known {
		return w
	}
	t = target{strings.Clone(t.method), strings.Clone(t.host), strings.Clone(t.path)}
	if len(f.paths) == maxTargets {
		clear(f.paths)
	}
	w.route = routes.Unmatched
	p, wrong := spelling.Read(t.path, f.names.Forms())
	if wrong == nil && f.needs.path && p.Kept != nil {
		wrong = &spelling.Error{Reason: spelling.Parameters, At: p.At}
	}
	if wrong == nil {
		w.path = p.Text
		if f.needs.route {
			var route string
			if route, wrong = f.names.Find(&http.Request{Method: t.method, Host: t.host, URL: p.URL()}, &p); wrong == nil {
				w.route = route
			}
		}
	}
	if t.path == "*" {
		wrong, w.path = nil, "*"
	}
	w.unclear = wrong != nil
	f.paths[t] = w
	return w
}
