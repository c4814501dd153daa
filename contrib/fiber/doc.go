// Package fiberlimit limits the requests of a Fiber (v3) service: package
// httplimit as a fiber.Handler.
//
// # Basics
//
//	limit, err := fiberlimit.New(memory.New(),
//		httplimit.Limit(httplimit.ByIP(), headgate.MustRule("client", headgate.PerMinute(60))))
//	if err != nil {
//		return err // it lists every mistake in the options
//	}
//	app.Use(limit)
//
// All options, headers and answers are those of httplimit. The entry "route" is
// the method and Fiber's own pattern, "GET /items/:id", wherever the middleware
// stands; HEAD counts as GET, and what no route serves has the route
// [httplimit.Unmatched].
//
// The options' functions get an *http.Request that is made for them: the head of
// the request, copied, so that texts may be kept. [Context] has the fiber.Ctx of
// it, and the request's context knows what handlers have kept in Locals, so that
// behind authentication
//
//	httplimit.ByUser(func(ctx context.Context) string { name, _ := ctx.Value("user").(string); return name })
//
// is the user.
//
// # Caveats
//
// The body of that *http.Request is empty: bodies are not copied, and one that is
// streamed stays unread. A function that must look into it takes it from
// [Context].
//
// Clients' addresses are found by [httplimit.TrustProxies], not by Fiber's
// TrustProxy: without it the client is the peer of the connection. Requests made
// by app.Test come from no address; give them one in a trusted header.
//
// Fiber does not tell when a client goes away: a request that is held for a leaky
// bucket is held to the end of its delay, or of its context.
//
// An answer that is streamed is settled when its stream begins. Its bytes are those of
// its Content-Length, or none.
//
// What answers denials in place of the problem document ([httplimit.OnDenied]) can
// set headers, a status and a body, and neither flush nor hijack.
//
// Ahead of routing the route is looked up by fiber.RoutePatternMatch, which does
// not know constraints of the program's own. Around a single route, as in
// app.Get("/items/:id", limit, handler), nothing has to be looked up.
package fiberlimit
