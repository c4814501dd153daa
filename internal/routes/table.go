package routes

import (
	"fmt"
	"net/http"
	"strings"

	"github.com/headgate/headgate/internal/spelling"
)

// Table finds the pattern of a request among those that were added. The zero Table
// has none. It is safe for concurrent use once no more are added.
type Table struct {
	mux      *http.ServeMux
	patterns []string
	// written has those whose host is not in small letters, by how they were registered.
	written map[string]string
}

// Add adds a pattern such as "GET /items/{id}", [METHOD ][HOST]/[PATH] as
// http.ServeMux has it. It returns what is wrong with it, or "".
func (t *Table) Add(pattern string) (problem string) {
	if t.mux == nil {
		t.mux = http.NewServeMux()
	}
	plain := smallHost(pattern)
	if problem = register(t.mux, plain); problem == "" {
		t.patterns = append(t.patterns, pattern)
		if plain != pattern {
			if t.written == nil {
				t.written = make(map[string]string)
			}
			t.written[plain] = pattern
		}
		return ""
	}
	if register(http.NewServeMux(), pattern) != "" {
		return fmt.Sprintf("%q is no pattern such as GET /items/{id}: %s", pattern, problem)
	}
	for _, other := range t.patterns {
		pair := http.NewServeMux()
		_ = register(pair, smallHost(other))
		if register(pair, plain) == "" {
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

// Find returns the pattern that matches a request whose path was read as p, or "".
// ServeMux would redirect some requests to another spelling of their path; here they
// belong to the pattern of that. Hosts are the same in capital letters and with a dot at
// the end.
func (t *Table) Find(r *http.Request, p *spelling.Path) string {
	if t.mux == nil {
		return ""
	}
	if host := plainHost(r.Host); host != r.Host || !p.Is(r.URL) {
		r = &http.Request{Method: r.Method, Host: host, URL: p.URL()}
	}
	_, pattern := t.mux.Handler(r)
	if written, ok := t.written[pattern]; ok {
		return written
	}
	return pattern
}

// plainHost is a host as ServeMux looks for it: in small letters, and without the dot
// at its end that a port may follow.
func plainHost(host string) string {
	if i := strings.LastIndex(host, ".:"); i >= 0 {
		host = host[:i] + host[i+1:]
	}
	return strings.ToLower(strings.TrimSuffix(host, "."))
}

// smallHost is a pattern with its host in small letters.
func smallHost(pattern string) string {
	host := strings.IndexAny(pattern, " \t") + 1 // behind the method, if there is one
	slash := strings.IndexByte(pattern[host:], '/')
	if slash < 0 {
		return pattern
	}
	slash += host
	return pattern[:host] + strings.ToLower(pattern[host:slash]) + pattern[slash:]
}
