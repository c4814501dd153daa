// Package ginlimit limits the requests of a Gin service: package httplimit as a
// gin.HandlerFunc.
//
// # Basics
//
//	limit, err := ginlimit.New(memory.New(),
//		httplimit.Limit(httplimit.ByIP(), headgate.MustRule("client", headgate.PerMinute(60))))
//	if err != nil {
//		return err // it lists every mistake in the options
//	}
//	router.Use(limit)
//
// All options, headers and answers are those of httplimit. The entry "route" is
// the method and Gin's own pattern, "GET /items/:id", wherever the middleware
// stands; what no route serves has the route [httplimit.Unmatched].
//
// The options' functions get an *http.Request. [Context] has the *gin.Context of
// it, and the request's context knows what handlers have kept with c.Set, so that
// behind authentication
//
//	httplimit.ByUser(func(ctx context.Context) string { name, _ := ctx.Value("user").(string); return name })
//
// is the user.
//
// # Caveats
//
// Clients' addresses are found by [httplimit.TrustProxies], not by Gin's
// SetTrustedProxies: without it the client is the peer of the connection.
//
// An *http.Request that the options' functions were given must not be kept: Gin
// uses its contexts again.
package ginlimit
