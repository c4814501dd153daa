// Package chilimit limits the requests of a chi router: package httplimit with
// routes as chi names them.
//
// # Basics
//
//	limit, err := chilimit.New(memory.New(),
//		httplimit.Limit(httplimit.ByIP(), headgate.MustRule("client", headgate.PerMinute(60))))
//	if err != nil {
//		return err // it lists every mistake in the options
//	}
//	router.Use(limit)
//
// [httplimit.New] works with chi as it is. What it cannot know is the route: a
// middleware runs before chi looks for one. [New] has the router asked, so that
// the entry "route" is the method and the whole pattern, "GET /items/{id}",
// wherever the middleware stands: in Use, With, Group or a sub-router. What no
// route serves has the route [httplimit.Unmatched]. Only rules that need the
// entry cost the extra look.
//
// # Caveats
//
// A middleware that changes the path or the method for the router, such as
// middleware.StripSlashes or middleware.GetHead, must stand before this one.
package chilimit
