// Package envoyxds receives the configuration of envoyproxy/ratelimit from a management server,
// such as Envoy Gateway's, over Envoy's discovery protocol (xDS): resources of the type
// ratelimit.config.ratelimit.v3.RateLimitConfig, over an aggregated stream, state of the world.
//
// # Basics
//
//	client, err := envoyxds.New(envoyxds.Options{Address: "envoy-gateway:18001", Apply: apply, …})
//	client.Run(ctx) // until ctx ends
//
// Each answer of the server holds all resources. What [Options].Apply takes is acknowledged; what
// it refuses is refused with the reason, and what was in force before stays in force.
package envoyxds
