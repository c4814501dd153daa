// Package keepalive serves HTTP over connections that need no goroutine while they wait for their
// next request, which is called waiting on standby.
//
// # Basics
//
// Most of the cost of a small request in net/http is not its answer but its connection's goroutine:
// waking it when bytes arrive, running a second goroutine that reads while the handler runs, and
// parking both again. A [Server] is an [http.Server] with one difference: a connection that has
// sent plain requests waits for its next one in a pool of package standby, and the pool's goroutine
// calls the same handler:
//
//	server := keepalive.New(&http.Server{Handler: handler}, func(path string) bool {
//		return path == "/v1/check" // The handler never blocks for this path.
//	})
//
// A plain request is what most clients send: an HTTP/1.1 POST to one of these paths, with a
// Content-Length and common headers, that arrives complete. A strict parser in this package reads
// it.
//
// Other servers were measured in its place, with the same handler, 64 connections and one check a
// request, on 2 cores; the figures are the server's CPU time for a request, in three rounds: this
// package 14.6 to 20.0 µs, gnet v2.9.7 with this package's parser 22.3 to 25.0, fasthttp v1.78.0
// 24.6 to 33.2, net/http 46 to 50. So the fastest of them takes at least a quarter more, and none of
// them leaves odd requests to net/http. The option --no-standby turns the package off.
//
// # Caveats
//
// Everything else is handed to net/http, together with the bytes that were read: new connections,
// requests that arrive in pieces or several at once, other paths, methods and versions, chunked
// bodies, Expect, Upgrade, and everything malformed or ambiguous. So net/http's limits and answers
// apply to slow, hostile and huge requests. A connection that was handed to net/http returns to
// standby after some more plain requests.
//
// The context of a request that is answered on standby does not end with its connection.
package keepalive
