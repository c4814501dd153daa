// Package forwardauth lets a proxy ask whether a request may pass: the endpoint
// for auth_request of nginx, forward_auth of Caddy, ForwardAuth of Traefik, HAProxy
// by a Lua action, and Envoy's filter ext_authz, over HTTP or gRPC.
//
// # Basics
//
// A [Handler] asks a Decider about the request that the headers of its own request
// describe:
//
//	handler := forwardauth.New(decider, forwardauth.Options{})
//	mux.Handle(forwardauth.Path, handler)
//
// By default they are X-Forwarded-Method, X-Forwarded-Uri, X-Forwarded-Host and
// X-Forwarded-For. It answers 200 or 429, with the headers that the client is to
// get. All that one proxy needs to be different stands in the path that it asks
// at, and so in the proxy's own configuration; see [Path].
//
// A [Service] is the same for Envoy over gRPC, where a message describes the
// request. Parameters are in the [Metadata] of the call.
//
// # Caveats
//
// Whoever asks is believed: the client's address and everything else are what the
// headers say. The endpoint must be for the proxy alone, and the proxy must set
// every header that is looked at, in place of what the client wrote.
//
// A leaky bucket's delay holds the answer, and with it the request. Where the delay is longer than
// the proxy may wait, the request is denied instead: see [DefaultMaxDelay].
package forwardauth
