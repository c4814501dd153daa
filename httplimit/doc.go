// Package httplimit limits HTTP requests: a middleware for net/http and every
// router that takes func(http.Handler) http.Handler.
//
// # Basics
//
// A rule, what it counts by, and where clients' addresses may be believed from:
//
//	perClient := headgate.MustRule("client", headgate.PerMinute(60))
//	limit, err := httplimit.New(memory.New(),
//		httplimit.Limit(httplimit.ByIP(), perClient),
//		httplimit.TrustProxies(httplimit.XForwardedFor, "10.0.0.0/8"))
//	if err != nil {
//		return err // it lists every mistake in the options
//	}
//	http.ListenAndServe("127.0.0.1:8080", limit(mux))
//
// Which do you want? [Limit] where the program says which rules bind: once for
// each key, all of them charged together or none. [Policy] where a policy.Set
// does, by the facts about a request. Both make keys alike: a rule moved from
// one to the other keeps its counters if it counts by the same entries (ByIP is
// ip/64) and secrets are hashed with the same key.
//
// An admitted request goes on with headers that tell the client what is left
// ([Headers]). A denied one is answered with 429, Retry-After and a problem
// document (RFC 9457), or by [OnDenied]. A leaky bucket's delay holds the
// request, at most for [MaxDelay].
//
// [Gate] is the middleware for frameworks of another make; contrib/ has those of
// Gin, Echo, Fiber and chi, and package httplimittest what they must all do.
// [WriteHeaders], [QuotaExceeded] and [Resolver] do parts of the work for servers
// of another make.
//
// # Caveats
//
// A client chooses most of what it sends. Without [TrustProxies] forwarded
// addresses are not believed; with it, only from the proxies named, which must
// add to the header or overwrite it. API keys are counted as they come: a client
// that invents a new one for each request is a new client each time, so put the
// middleware behind authentication, or add a [Limit] by IP.
//
// A request without an identity is turned away, or counted by its address, or
// passes: [OnMissing]. It never shares a counter with others like it.
//
// The store's failure lets requests in unless [OnStoreError] says otherwise, but
// a request whose own context has ended is never let in by that.
//
// The HTTP/1 server of net/http notices that a client is gone only once the
// request's body has been read. A request with a body that is held for a delay
// may therefore be held to its end.
package httplimit
