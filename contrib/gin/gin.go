package ginlimit

import (
	"context"
	"net/http"
	"slices"

	"github.com/gin-gonic/gin"

	"github.com/headgate/headgate"
	"github.com/headgate/headgate/httplimit"
)

// New returns a middleware that lets through what the store admits. The error is
// that of [httplimit.New].
func New(store headgate.Store, opts ...httplimit.Option) (gin.HandlerFunc, error) {
	gate, err := httplimit.NewGate(store, slices.Concat([]httplimit.Option{httplimit.Route(route)}, opts)...)
	if err != nil {
		return nil, err
	}
	return func(c *gin.Context) {
		p, ok := gate.Enter(c.Writer, c.Request.WithContext(&requestContext{c.Request.Context(), c}))
		switch {
		case !ok:
			c.Abort()
		case p != nil:
			pass(c, p)
		}
	}, nil
}

// pass has the handlers behind answer a request whose charge depends on how it ends.
func pass(c *gin.Context, p *httplimit.Passage) {
	status := http.StatusInternalServerError // as a panic ends
	defer func() {
		if c.Writer.Written() {
			status = c.Writer.Status()
		}
		p.End(status, int64(max(0, c.Writer.Size())))
	}()
	c.Request = c.Request.WithContext(p.Context(c.Request.Context()))
	c.Next()
	status = c.Writer.Status()
}

// requestContext is the request's context, and knows what Gin's own does.
type requestContext struct {
	context.Context
	gin *gin.Context
}

// contextKey is what Value returns the *gin.Context for.
type contextKey struct{}

// Value is that of the request, or else what was kept with Set.
func (c *requestContext) Value(key any) any {
	if key == (contextKey{}) {
		return c.gin
	}
	if v := c.Context.Value(key); v != nil {
		return v
	}
	v, _ := c.gin.Get(key)
	return v
}

// Context returns the *gin.Context of a request that a function of the options
// was given, or nil for any other request.
func Context(r *http.Request) *gin.Context {
	c, _ := r.Context().Value(contextKey{}).(*gin.Context)
	return c
}

// route is the pattern of the route that Gin has found.
func route(r *http.Request) string {
	if path := Context(r).FullPath(); path != "" {
		return r.Method + " " + path
	}
	return httplimit.Unmatched
}
