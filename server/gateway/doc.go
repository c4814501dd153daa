// Package gateway is a reverse proxy with the rules in front: what they admit is
// passed on to upstream servers, and what they deny is answered here.
//
// # Basics
//
// A [Gateway] asks a Decider about every request, and knows where to send it:
//
//	g, err := gateway.New(decider, gateway.Options{
//		Upstreams: []gateway.Upstream{{Targets: []string{"http://127.0.0.1:9000"}}},
//	})
//	if err != nil {
//		return err // it lists every mistake in the options
//	}
//	server := g.Server(g, nil)
//	defer server.Close()
//	return server.Serve(listener)
//
// A request goes through an exchange (exchange.go): which route is it of, who
// sent it (identity.go, jwt.go), is there a permit for it, do the rules admit it
// (decide.go), and then through a [httputil.ReverseProxy] whose transport is the
// route's pool of upstream servers (pool.go, target.go). What the client is told
// is in answer.go.
//
// # Caveats
//
// Every request is charged that has not been refused for want of a permit, whatever
// comes of it: one with a token that is not valid, of a path that has no route, or
// with a body that is too large is charged before it is told so, so that guessing
// is limited too.
//
// The gateway authenticates nobody: it believes what it can verify (tokens,
// certificates, trusted proxies) and counts by it. Without that, whoever invents a
// new API key is a new client.
package gateway
