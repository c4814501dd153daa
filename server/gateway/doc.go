// Package gateway is a reverse proxy that applies the rules: admitted requests are forwarded to
// upstream servers, and denied ones are answered here.
//
// # Basics
//
// A [Gateway] asks a Decider about every request, and forwards it:
//
//	g, err := gateway.New(ctx, decider, gateway.Options{Settings: gatewayfile.Settings{
//		Upstreams: []gatewayfile.Upstream{{Targets: []string{"http://127.0.0.1:9000"}}},
//	}})
//	if err != nil {
//		return err // it lists every mistake in the options
//	}
//	server := g.Server(g, nil)
//	defer server.Close()
//	return server.Serve(listener)
//
// Each request is handled by an exchange (exchange.go), which takes it through four stages with a
// type each: identified (identify.go, jwt.go) finds the route and the client, decision (decide.go,
// load.go) takes permits and asks the rules, forwarding (forward.go) is the transport of an
// [httputil.ReverseProxy] over the route's pool of upstream servers (pool.go), and costs (settle.go)
// settles what the request has cost. A stage knows the stages before it, and none that follows.
//
// # Caveats
//
// A request is charged whatever its result is, unless it was refused because of a lack of permits.
// A request with an invalid token, with a path without a route, or with a body that is too large is
// charged before it is refused, so that guessing is limited too.
//
// The gateway does not authenticate clients. It believes what it can verify (tokens, certificates,
// trusted proxies), and counts by that. Without such proof, a client with a made-up API key counts
// as a new client.
//
// # Reasons
//
// Deadlines of reads and writes are looked at by one goroutine that counts ticks: a timer for each
// cost more than the decision. An answer that begins before its request has ended closes the
// connection, because net/http would take the rest of the abandoned body for the next request.
package gateway
