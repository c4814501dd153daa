package routes

import (
	"fmt"
	"net/http"
	"strings"
)

// Table finds the pattern of a request among those that were added. The zero Table
// has none. It is safe for concurrent use once no more are added.
type Table struct {
	mux      *http.ServeMux
	patterns []string
}

// Add adds a pattern such as "GET /items/{id}", [METHOD ][HOST]/[PATH] as
// http.ServeMux has it. It returns what is wrong with it, or "".
func (t *Table) Add(pattern string) (problem string) {
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

// Find returns the pattern that matches a request, or "". ServeMux would redirect
// some requests to another spelling of their path; here they belong to the pattern
// of that.
func (t *Table) Find(r *http.Request) string {
	if t.mux == nil {
		return ""
	}
	_, pattern := t.mux.Handler(r)
	return pattern
}
