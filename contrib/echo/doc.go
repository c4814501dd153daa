// Package echolimit limits the requests of an Echo (v5) service: package httplimit
// as an echo.MiddlewareFunc.
//
// # Basics
//
//	limit, err := echolimit.New(memory.New(),
//		httplimit.Limit(httplimit.ByIP(), headgate.MustRule("client", headgate.PerMinute(60))))
//	if err != nil {
//		return err // it lists every mistake in the options
//	}
//	e.Use(limit)
//
// All options, headers and answers are those of httplimit. The entry "route" is
// the method and Echo's own pattern, "GET /items/:id", and the pattern alone if
// the route takes any method; what no route serves has the route
// [httplimit.Unmatched].
//
// The options' functions get an *http.Request. [Context] has the *echo.Context of
// it, and the request's context knows what handlers have kept with c.Set, so that
// behind authentication
//
//	httplimit.ByUser(func(ctx context.Context) string { name, _ := ctx.Value("user").(string); return name })
//
// is the user.
//
// # Caveats
//
// With e.Pre instead of e.Use the request has no route yet: it is then the method
// and the path, as in [httplimit.Route].
//
// Clients' addresses are found by [httplimit.TrustProxies], not by Echo's
// IPExtractor: without it the client is the peer of the connection.
//
// A denial is an answer, not an error: Echo's HTTPErrorHandler does not see it.
// [httplimit.OnDenied] answers in another way.
//
// An *http.Request that the options' functions were given must not be kept: Echo
// uses its contexts again.
package echolimit
