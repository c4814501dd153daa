// Package routes finds the entry "route" of a request, by the patterns that the
// rules of a policy name, for transports that see requests before anything has
// routed them.
//
// # Basics
//
//	names, problems := routes.New(set)
//	...
//	route := names.Of(r) // "GET /items/{id}", if a rule has match: { route: "GET /items/{id}" }
//
// Patterns are those of http.ServeMux, and of several that match the most specific
// one counts. What no pattern matches has the route [Unmatched], all of it
// together: no path of a client's choosing gets into a key.
//
// # Caveats
//
// A server behind the transport may read a path in another way than this package
// does. [Otherwise] tells of requests that can be read in two ways: where the two are
// of different routes, refuse the request.
package routes
