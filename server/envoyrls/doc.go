// Package envoyrls serves envoy.service.ratelimit.v3.RateLimitService, the
// protocol in which Envoy, and what is built on it, asks a rate limit service.
//
// # Basics
//
//	service := envoyrls.New(decider, envoyrls.Options{})
//	service.Register(server) // a *grpc.Server
//
// A request has a domain and some descriptors, each a list of entries. What binds
// a descriptor depends on the policy in force:
//
//   - Rules of a policy file match the descriptor that nested.Flatten makes of it:
//     the domain, the names of the entries, and the entries. A descriptor whose
//     first entry is [RuleEntry] names a rule, and has its key in the entries that
//     follow.
//   - A policy with nested limits, that is a configuration of envoyproxy/ratelimit,
//     leads to one of them or to none.
//   - A limit that comes with the descriptor itself takes the place of both.
//
// All descriptors of a request are charged together or not at all. With
// [Options].Independent each limit is charged by itself, as envoyproxy/ratelimit
// does it.
//
// # Caveats
//
// A peek (hits_addend 0 on a descriptor) asks whether one more unit would fit.
//
// Where a request has takes as well as peeks, the peeks come first and the takes
// follow in a second call to the store, and refunds (is_negative_hits) in a third
// one: between them others may come.
package envoyrls
