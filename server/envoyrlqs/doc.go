// Package envoyrlqs serves envoy.service.rate_limit_quota.v3.RateLimitQuotaService, the protocol
// with which Envoys limit requests without asking for each of them.
//
// # Basics
//
//	service := envoyrlqs.New(envoyrlqs.Options{Rules: rules, Documents: documents})
//	service.Register(server) // a *grpc.Server
//
// Envoys report every few seconds how many requests they had in each bucket. A bucket is a
// descriptor of the policy. The service divides the limits of the rules that bind it among all
// Envoys that report it, by what they want, and assigns each of them a token bucket. In any time T,
// all of them together admit at most burst + rate·T, as package share says. The shares are kept in
// the store, so several services divide the same limit.
//
// # Caveats
//
// Shares are counted apart from what other doors take of the same rule.
//
// An assignment lasts for [TTL]. An Envoy that does not deny when its assignment has expired, or
// before it has one, is bound by nothing; docs/envoy-quota.md shows the settings that deny. Nor is
// one that takes longer than [Grace] to apply an assignment.
//
// Reports hold numbers of requests. Costs that depend on a request are not known: each request
// costs what the rule says of the bucket's descriptor.
package envoyrlqs
