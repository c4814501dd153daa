// Package keepalive serves HTTP over connections that wait for their next request on standby.
//
// # Basics
//
// Most of what a small request costs in net/http is not its answer but the goroutine of its
// connection: to wake it for what has arrived, to have another one read while the handler runs, and
// to wait again. A [Server] is an [http.Server] with this difference: a connection that has sent
// plain requests waits for the next one in a pool of package standby, which answers it by the same
// handler:
//
//	server := keepalive.New(&http.Server{Handler: handler}, func(path string) bool {
//		return path == "/v1/check" // The handler waits for nobody there.
//	})
//
// A plain request is what clients send as a rule: a POST by HTTP/1.1 of one of these paths, with a
// Content-Length, with usual headers, and there as a whole. Its bytes are read by a strict parser
// of this package.
//
// # Caveats
//
// Everything else is left to net/http, together with the bytes that were read: new connections,
// requests that arrive in pieces or several at once, other paths, methods and versions, chunks,
// Expect, Upgrade, and all that is malformed or could be understood in two ways. So what is slow,
// hostile or huge meets net/http's bounds and answers. A connection that was left to net/http comes
// back after some plain requests.
//
// The context of a request that is answered on standby does not end with its connection.
package keepalive
