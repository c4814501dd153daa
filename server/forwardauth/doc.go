// Package forwardauth lets a proxy ask whether a request may pass. It is the endpoint for
// auth_request of nginx, forward_auth of Caddy, ForwardAuth of Traefik, a Lua action of HAProxy,
// and Envoy's filter ext_authz over HTTP or gRPC.
//
// # Basics
//
// A [Handler] asks a [decide.Decider] about the request that is described by the headers of the
// proxy's request:
//
//	handler := forwardauth.New(decider, forwardauth.Options{})
//	mux.Handle(forwardauth.Path, handler)
//
// By default these headers are X-Forwarded-Method, X-Forwarded-Uri, X-Forwarded-Host and
// X-Forwarded-For. The handler answers 200 or 429, with the headers for the client. Settings for
// one proxy are parameters in the path at which it asks, and so are part of the proxy's own
// configuration; see [Path].
//
// A [Service] does the same for Envoy over gRPC, where a message describes the request. Its
// parameters are in the [Metadata] of the call.
//
// # Caveats
//
// The endpoint trusts whoever asks: the client's address and everything else are what the headers
// say. It must be reachable for the proxy alone, and the proxy must set every header that is used,
// in place of what the client sent.
//
// For the delay of a leaky bucket, the answer is held back, and the request with it. If the delay
// is longer than the proxy waits, the request is denied instead; see [DefaultMaxDelay].
package forwardauth
