// Package identity reads from a request who sent it: the client's address, which proxies
// hand on in headers, its API key, and the host that it wants. It knows headers as names
// and lines, so that it serves HTTP and gRPC.
//
// # Basics
//
// A [Resolver] is made once, and asked for each request:
//
//	res, problems := identity.NewResolver(identity.XForwardedFor, []string{"10.0.0.0/8"})
//	address, ok := res.Client(r.RemoteAddr, r.Header["X-Forwarded-For"])
//
// [APIKey] and [Unclear] read the headers that may hold an API key.
//
// # Caveats
//
// A client chooses most of what it sends. What stands in a header is believed only of
// proxies that are trusted, and an API key only as far as somebody has checked it.
package identity
