package routes

import (
	"fmt"
	"net/http"
	"strings"

	"github.com/headgate/headgate/internal/identity"
	"github.com/headgate/headgate/internal/spelling"
)

// Table finds the pattern of a request among those that were added. The zero Table
// has none. It is safe for concurrent use once no more are added.
type Table struct {
	// Forms are what the servers behind do with paths. It must not change once a pattern was
	// added.
	Forms spelling.Forms

	mux      *http.ServeMux
	patterns []string
	// written has those whose host is written in another way, by how they were registered.
	written map[string]string
}

// Add adds a pattern such as "GET /items/{id}", [METHOD ][HOST]/[PATH] as
// http.ServeMux has it. It returns what is wrong with it, or "".
func (t *Table) Add(pattern string) (problem string) {
	if t.mux == nil {
		t.mux = http.NewServeMux()
	}
	if slash := strings.IndexByte(pattern, '/'); slash >= 0 {
		if read := t.Forms.Pattern(pattern[slash:]); read != pattern[slash:] {
			return sameTo(pattern, pattern[:slash]+read)
		}
	}
	plain := plainHost(pattern)
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
		_ = register(pair, plainHost(other))
		if register(pair, plain) == "" {
			continue
		}
		return fmt.Sprintf("%q conflicts with %q: some requests match both, and neither of them is the more specific one", pattern, other)
	}
	return fmt.Sprintf("%q conflicts with another pattern: %s", pattern, problem)
}

// sameTo is the problem of a path that the servers behind take for another one.
func sameTo(written, read string) string {
	return fmt.Sprintf("%q is the same as %q to the servers behind, and requests are read as that; write that, once", written, read)
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
// belong to the pattern of that. Hosts are the same however identity.Hostname reads them; what
// it does not read is of no pattern with a host.
func (t *Table) Find(r *http.Request, p *spelling.Path) string {
	if t.mux == nil {
		return ""
	}
	host, _ := identity.Hostname(r.Host)
	if rest, same := strings.CutPrefix(r.Host, host); !same || rest != "" && (rest[0] != ':' || host == "" || host[0] == '[') || !p.Is(r.URL) {
		// ServeMux cuts off the port of a name, but not that of an address in brackets.
		r = &http.Request{Method: r.Method, Host: host, URL: p.URL()}
	}
	_, pattern := t.mux.Handler(r)
	if written, ok := t.written[pattern]; ok {
		return written
	}
	return pattern
}

// plainHost is a pattern with its host as requests are found by it: in small letters and without a
// port.
func plainHost(pattern string) string {
	host := strings.IndexAny(pattern, " \t") + 1 // behind the method, if there is one
	host += len(pattern[host:]) - len(strings.TrimLeft(pattern[host:], " \t"))
	slash := strings.IndexByte(pattern[host:], '/')
	if slash < 0 {
		return pattern
	}
	slash += host
	name, ok := identity.Hostname(pattern[host:slash])
	if !ok {
		return pattern
	}
	return pattern[:host] + name + pattern[slash:]
}
