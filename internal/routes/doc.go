// Package routes finds the entry "route" of a request, by the patterns that the
// rules of a policy name, for transports that see requests before anything has
// routed them.
//
// # Basics
//
//	names, problems := routes.New(set, 0)
//	...
//	path, wrong := spelling.Read(r.URL.EscapedPath(), names.Forms())
//	...
//	route, wrong := names.Find(r, &path) // "GET /items/{id}", if a rule has match: { route: "GET /items/{id}" }
//
// Patterns are those of http.ServeMux, and of several that match the most specific
// one counts. What no pattern matches has the route [Unmatched], all of it
// together: no path of a client's choosing gets into a key.
//
// # Caveats
//
// A server behind the transport may read a path in another way than this package
// does. So it does not read paths: package internal/spelling does, and refuses those
// that can be read in several ways.
package routes
