// Package envoyrls serves envoy.service.ratelimit.v3.RateLimitService, the protocol with which
// Envoy, and software that is built on it, asks a rate limit service.
//
// # Basics
//
//	service := envoyrls.New(decider, envoyrls.Options{})
//	service.Register(server) // a *grpc.Server
//
// A request has a domain and several descriptors, each a list of entries. What binds a descriptor
// depends on the policy in force:
//
//   - Rules of a policy file match the descriptor that nested.Flatten makes of it:
//     the domain, the names of the entries, and the entries. A descriptor whose
//     first entry is [RuleEntry] names a rule, and has its key in the entries that
//     follow.
//   - A policy with nested limits, that is a configuration of envoyproxy/ratelimit,
//     leads to one of them or to none.
//   - A limit that comes with the descriptor itself takes the place of both.
//
// All descriptors of a request are charged together, or none is. With [Options].Independent each
// descriptor is charged separately, as in envoyproxy/ratelimit.
//
// # Caveats
//
// A peek, which is a descriptor with hits_addend 0, asks whether one more unit would fit.
//
// A request that has peeks, takes and refunds (is_negative_hits) needs a call to the store for each
// kind, in this order. Other requests may be decided between these calls.
package envoyrls
