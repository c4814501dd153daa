package fiberlimit

import (
	"context"
	"errors"
	"io"
	"net/http"
	"slices"

	"github.com/gofiber/fiber/v3"

	"github.com/headgate/headgate"
	"github.com/headgate/headgate/httplimit"
)

// New returns a middleware that lets through what the store admits. The error is
// that of [httplimit.New].
func New(store headgate.Store, opts ...httplimit.Option) (fiber.Handler, error) {
	routes := new(finder)
	route := func(r *http.Request) string { return routes.route(Context(r)) }
	gate, err := httplimit.NewGate(store, slices.Concat([]httplimit.Option{httplimit.Route(route)}, opts)...)
	if err != nil {
		return nil, err
	}
	return func(c fiber.Ctx) error {
		w := response{c: c, header: make(http.Header)}
		p, ok := gate.Enter(&w, request(c))
		if !ok {
			w.WriteHeader(http.StatusOK) // unless it was written
			discardBody(c)
			return nil
		}
		w.setHeaders()
		if p == nil {
			return c.Next()
		}
		return pass(c, p)
	}, nil
}

// pass has the handlers behind answer a request whose charge depends on how it ends.
// An error is answered later, by the status that it stands for. The length of a body
// that is streamed is known only if it is announced.
func pass(c fiber.Ctx, p *httplimit.Passage) (err error) {
	status, bytes := http.StatusInternalServerError, int64(0)
	defer func() { p.End(status, bytes) }()
	c.SetContext(p.Context(c.Context()))
	err = c.Next()
	response := c.Response()
	var code *fiber.Error
	switch {
	case errors.As(err, &code):
		status = code.Code
	case err == nil:
		status = response.StatusCode()
		if response.IsBodyStream() {
			// Body would read all of it first.
			bytes = int64(max(0, response.Header.ContentLength()))
		} else {
			bytes = int64(len(response.Body()))
		}
	}
	return err
}

// Context returns the fiber.Ctx of a request that a function of the options was
// given, or nil for any other request.
func Context(r *http.Request) fiber.Ctx {
	c, _ := r.Context().Value(contextKey{}).(fiber.Ctx)
	return c
}

// requestContext is the context that was set for the request, and knows its
// locals.
type requestContext struct {
	context.Context
	fiber fiber.Ctx
}

// contextKey is what Value returns the fiber.Ctx for.
type contextKey struct{}

// Value is that of the context which was set, or else a local.
func (c *requestContext) Value(key any) any {
	if key == (contextKey{}) {
		return c.fiber
	}
	if v := c.Context.Value(key); v != nil {
		return v
	}
	return c.fiber.Locals(key)
}

// response writes an answer as net/http knows it into Fiber's.
type response struct {
	c       fiber.Ctx
	header  http.Header
	started bool
}

// Header returns the headers that the answer will have, beside those that are in
// Fiber's response already.
func (w *response) Header() http.Header { return w.header }

// WriteHeader sets the status, once.
func (w *response) WriteHeader(status int) {
	if !w.started {
		w.started = true
		w.setHeaders()
		w.c.Status(status)
	}
}

func (w *response) Write(b []byte) (int, error) {
	w.WriteHeader(http.StatusOK)
	w.c.Response().AppendBody(b)
	return len(b), nil
}

func (w *response) setHeaders() {
	to := &w.c.Response().Header
	for name, values := range w.header {
		for i, v := range values {
			if i == 0 {
				to.Set(name, v)
			} else {
				to.Add(name, v)
			}
		}
	}
}

// maxDiscarded is how much of a body is read that nobody wants, so that the
// connection can be used again: as much as net/http reads.
const maxDiscarded = 256 << 10

// discardBody leaves no part of a streamed body on the connection: the server
// would take it for the next request, which a client could have written there for
// a proxy that sends requests of others over the same connection.
func discardBody(c fiber.Ctx) {
	r := c.Request()
	if !r.IsBodyStream() {
		return
	}
	if r.Header.ContentLength() <= maxDiscarded {
		// One byte more than allowed, so that a body of just that size ends.
		n, err := io.CopyN(io.Discard, r.BodyStream(), maxDiscarded+1)
		if errors.Is(err, io.EOF) && n <= maxDiscarded {
			return
		}
	}
	c.RequestCtx().SetConnectionClose()
}
