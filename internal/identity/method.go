package identity

import (
	"net/url"
	"strings"
)

// overrides are the headers in which clients name another method than that of the request. Rails,
// Symfony, Express with method-override and WordPress, among others, believe one of them.
var overrides = []string{"X-Http-Method-Override", "X-Http-Method", "X-Method-Override"}

// Overridden returns why some server may take another method than that of the request, or "": for a
// header, or for the raw query. What stands in the body is not known here.
func Overridden(h map[string][]string, query string) string {
	for name := range h {
		if why := OverriddenBy(name); why != "" {
			return why
		}
	}
	return OverriddenIn(query)
}

// OverriddenBy is [Overridden] for one header.
func OverriddenBy(header string) string {
	for _, name := range overrides {
		if sameVariable(header, name) {
			return overriding(header)
		}
	}
	return ""
}

// OverriddenIn is [Overridden] for the query alone.
func OverriddenIn(query string) string {
	for len(query) >= len(methodParameter) {
		pair := query
		if end := strings.IndexAny(query, "&;"); end >= 0 {
			pair, query = query[:end], query[end+1:]
		} else {
			query = ""
		}
		if name, _, _ := strings.Cut(pair, "="); isMethodParameter(name) {
			return overriding("its query")
		}
	}
	return ""
}

func overriding(by string) string {
	return "Some servers take another method than its own, by " + by + ". Send the method that is meant."
}

// methodParameter is the parameter in which clients name another method.
const methodParameter = "_method"

// isMethodParameter reports whether some server takes the name of a parameter for methodParameter.
// PHP reads .method and _method%00x as that, and _method[] is a list.
func isMethodParameter(name string) bool {
	if len(name) < len(methodParameter) || len(name) > 16*len(methodParameter) {
		return false
	}
	name, err := url.QueryUnescape(name)
	if err != nil {
		return false
	}
	name = strings.TrimLeft(name, " ")
	if end := strings.IndexAny(name, "[\x00"); end >= 0 {
		name = name[:end]
	}
	return len(name) == len(methodParameter) && sameVariable(name, methodParameter)
}
