package echolimit

import (
	"context"
	"net/http"
	"slices"

	"github.com/labstack/echo/v5"

	"github.com/headgate/headgate"
	"github.com/headgate/headgate/httplimit"
)

// New returns a middleware that lets through what the store admits. The error is
// that of [httplimit.New].
func New(store headgate.Store, opts ...httplimit.Option) (echo.MiddlewareFunc, error) {
	gate, err := httplimit.NewGate(store, slices.Concat([]httplimit.Option{httplimit.Route(route)}, opts)...)
	if err != nil {
		return nil, err
	}
	return func(next echo.HandlerFunc) echo.HandlerFunc {
		return func(c *echo.Context) error {
			r := c.Request()
			p, ok := gate.Enter(c.Response(), r.WithContext(&requestContext{r.Context(), c}))
			switch {
			case !ok:
				return nil
			case p == nil:
				return next(c)
			}
			return pass(c, p, next)
		}
	}, nil
}

// pass has next answer a request whose charge depends on how it ends. An error is
// answered later, by the status that it stands for.
func pass(c *echo.Context, p *httplimit.Passage, next echo.HandlerFunc) error {
	var err error = echo.ErrInternalServerError // as a panic ends
	defer func() {
		response, status := echo.ResolveResponseStatus(c.Response(), err)
		bytes := int64(0)
		if response != nil {
			bytes = response.Size
		}
		p.End(status, bytes)
	}()
	c.SetRequest(c.Request().WithContext(p.Context(c.Request().Context())))
	err = next(c)
	return err
}

// requestContext is the request's context, and knows what Echo's own does.
type requestContext struct {
	context.Context
	echo *echo.Context
}

// contextKey is what Value returns the *echo.Context for.
type contextKey struct{}

// Value is that of the request, or else what was kept with Set.
func (c *requestContext) Value(key any) any {
	if key == (contextKey{}) {
		return c.echo
	}
	if v := c.Context.Value(key); v != nil {
		return v
	}
	if name, ok := key.(string); ok {
		return c.echo.Get(name)
	}
	return nil
}

// Context returns the *echo.Context of a request that a function of the options
// was given, or nil for any other request.
func Context(r *http.Request) *echo.Context {
	c, _ := r.Context().Value(contextKey{}).(*echo.Context)
	return c
}

// route is the pattern of the route that Echo has found.
func route(r *http.Request) string {
	switch found := Context(r).RouteInfo(); found.Method {
	case "":
		if found.Name == "" {
			return r.Method + " " + r.URL.Path // before routing
		}
		return httplimit.Unmatched
	case echo.RouteNotFound:
		return httplimit.Unmatched
	case echo.RouteAny:
		return found.Path
	default:
		return found.Method + " " + found.Path
	}
}
