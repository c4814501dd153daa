package chilimit

import (
	"net/http"
	"slices"
	"strings"

	"github.com/go-chi/chi/v5"

	"github.com/headgate/headgate"
	"github.com/headgate/headgate/httplimit"
)

// New is [httplimit.New] with [Route] for the routes.
func New(store headgate.Store, opts ...httplimit.Option) (func(http.Handler) http.Handler, error) {
	return httplimit.New(store, slices.Concat([]httplimit.Option{httplimit.Route(Route)}, opts)...)
}

// Route is a function for [httplimit.Route]: the method and the pattern of the
// route that chi has found or will find. Of a request outside of a chi router it
// is the method and the path.
func Route(r *http.Request) string {
	found := chi.RouteContext(r.Context())
	if found == nil || found.Routes == nil {
		return r.Method + " " + r.URL.Path
	}
	method := found.RouteMethod
	if method == "" {
		method = r.Method
	}
	// A pattern that ends in a wildcard may be that of a sub-router, which has not
	// looked yet.
	pattern := found.RoutePattern()
	if pattern == "" || strings.HasSuffix(pattern, "*") {
		pattern = find(found, method, r)
	}
	switch {
	case pattern == "":
		return httplimit.Unmatched
	case pattern != "/":
		pattern = strings.TrimSuffix(pattern, "/") // as RoutePattern has it
	}
	return method + " " + pattern
}

// find has the outermost router look for the whole path.
func find(found *chi.Context, method string, r *http.Request) string {
	path := r.URL.RawPath
	if path == "" {
		path = r.URL.Path
	}
	if path == "" {
		path = "/"
	}
	within := len(found.RoutePatterns) > 0
	if !within && found.RoutePath != "" {
		path = found.RoutePath // as a middleware wants it
	}
	pattern := found.Routes.Find(chi.NewRouteContext(), method, path)
	if pattern == "" && within {
		// In a sub-router RoutePath is what is left of the path, so that what
		// StripSlashes did to all of it shows only here.
		pattern = found.Routes.Find(chi.NewRouteContext(), method, strings.TrimSuffix(path, "/"))
	}
	return pattern
}
