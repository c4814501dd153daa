package echolimit_test

import (
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"slices"
	"testing"

	"github.com/labstack/echo/v5"
	"github.com/labstack/echo/v5/middleware"

	"github.com/headgate/headgate"
	echolimit "github.com/headgate/headgate/contrib/echo"
	"github.com/headgate/headgate/httplimit"
	"github.com/headgate/headgate/httplimit/httplimittest"
	"github.com/headgate/headgate/store/memory"
)

// adder is an Echo or a group of one.
type adder interface {
	Add(method, path string, handler echo.HandlerFunc, middleware ...echo.MiddlewareFunc) echo.RouteInfo
}

// routes are the site's, each behind the middleware given.
func routes(e adder, site *httplimittest.Site, before ...echo.MiddlewareFunc) {
	item := func(c *echo.Context) error { return c.String(http.StatusOK, site.Item(c.Param("id"))) }
	e.Add(http.MethodGet, "/items/:id", item, before...)
	e.Add(http.MethodHead, "/items/:id", item, before...)
	e.Add(http.MethodPost, "/echo", func(c *echo.Context) error {
		site.Echo()
		body, err := io.ReadAll(c.Request().Body)
		if err != nil {
			return err
		}
		return c.Blob(http.StatusOK, "application/octet-stream", body)
	}, before...)
	e.Add(http.MethodGet, "/events", func(c *echo.Context) error {
		return site.Events(func(text string) error {
			if _, err := io.WriteString(c.Response(), text); err != nil {
				return err
			}
			return http.NewResponseController(c.Response()).Flush()
		})
	}, before...)
}

func signIn(next echo.HandlerFunc) echo.HandlerFunc {
	return func(c *echo.Context) error {
		if name := c.Request().Header.Get(httplimittest.UserHeader); name != "" {
			c.Set(httplimittest.UserKey, name)
		}
		return next(c)
	}
}

// Wherever an Echo middleware can stand once there is a route: around all, a
// group, a route.
func TestSuite(t *testing.T) {
	for name, put := range map[string]func(*echo.Echo, *httplimittest.Site, echo.MiddlewareFunc){
		"all": func(e *echo.Echo, site *httplimittest.Site, limit echo.MiddlewareFunc) {
			e.Use(signIn, limit)
			routes(e, site)
		},
		"group": func(e *echo.Echo, site *httplimittest.Site, limit echo.MiddlewareFunc) {
			routes(e.Group("", signIn, limit), site)
		},
		"route": func(e *echo.Echo, site *httplimittest.Site, limit echo.MiddlewareFunc) {
			routes(e, site, signIn, limit)
		},
	} {
		t.Run(name, func(t *testing.T) {
			httplimittest.Run(t, func(t *testing.T, site *httplimittest.Site, store headgate.Store, opts ...httplimit.Option) (httplimittest.Server, error) {
				limit, err := echolimit.New(store, opts...)
				if err != nil {
					return httplimittest.Server{}, err
				}
				e := echo.New()
				put(e, site, limit)
				server := httptest.NewServer(e)
				t.Cleanup(server.Close)
				return httplimittest.Server{URL: server.URL, Item: "GET /items/:id", Echo: "POST /echo"}, nil
			})
		})
	}
}

// What the options' functions can reach through the request.
func TestContext(t *testing.T) {
	t.Parallel()
	var got []string
	limit, err := echolimit.New(memory.New(),
		httplimit.Limit(httplimit.ByFunc("id", func(r *http.Request) string { return echolimit.Context(r).Param("id") }), headgate.MustRule("item", headgate.PerHour(1))),
		httplimit.Observe(httplimit.Hooks{Denied: func(r *http.Request, _ headgate.Verdict) {
			got = append(got, fmt.Sprint(echolimit.Context(r).Path(), " ", r.Context().Value("kept"), " ", r.Context().Value("absent")))
		}}))
	if err != nil {
		t.Fatal(err)
	}
	e := echo.New()
	e.Use(func(next echo.HandlerFunc) echo.HandlerFunc {
		return func(c *echo.Context) error { c.Set("kept", 7); return next(c) }
	}, limit)
	e.GET("/items/:id", func(c *echo.Context) error {
		if echolimit.Context(c.Request()) != nil {
			t.Error("the handler's request is another than the server's")
		}
		return nil
	})
	for i, tt := range []struct {
		path string
		code int
	}{{"/items/1", 200}, {"/items/2", 200}, {"/items/1", 429}} {
		w := httptest.NewRecorder()
		e.ServeHTTP(w, httptest.NewRequest(http.MethodGet, tt.path, http.NoBody))
		if w.Code != tt.code {
			t.Errorf("request %d: %d, want %d", i+1, w.Code, tt.code)
		}
	}
	if len(got) != 1 || got[0] != "/items/:id 7 <nil>" {
		t.Errorf("the hook was told %q", got)
	}
}

// TestStatuses: however a handler ends, what is settled by is the status that the
// client gets.
func TestStatuses(t *testing.T) {
	t.Parallel()
	for name, handler := range map[string]echo.HandlerFunc{
		"nothing":             func(*echo.Context) error { return nil },
		"a status":            func(c *echo.Context) error { return c.NoContent(http.StatusNotFound) },
		"a body":              func(c *echo.Context) error { return c.String(http.StatusCreated, "x") },
		"an error":            func(*echo.Context) error { return echo.NewHTTPError(http.StatusTeapot, "x") },
		"another error":       func(*echo.Context) error { return io.ErrUnexpectedEOF },
		"a panic":             func(*echo.Context) error { panic("as a handler does") },
		"a panic too late":    func(c *echo.Context) error { _ = c.String(http.StatusAccepted, "x"); panic("as a handler does") },
		"an error afterwards": func(c *echo.Context) error { return errors.Join(c.NoContent(http.StatusNoContent), echo.ErrBadRequest) },
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			var settled []int
			limit, err := echolimit.New(memory.New(), httplimit.Limit(httplimit.Everyone(), headgate.MustRule("all", headgate.PerHour(9))),
				httplimit.Settle(func(_ *http.Request, end httplimit.Response) int64 {
					settled = append(settled, end.Status)
					return 1
				}))
			if err != nil {
				t.Fatal(err)
			}
			e := echo.New()
			e.Use(middleware.Recover())
			e.GET("/", handler, limit)
			w := httptest.NewRecorder()
			e.ServeHTTP(w, httptest.NewRequest(http.MethodGet, "/", http.NoBody))
			if !slices.Equal(settled, []int{w.Code}) {
				t.Errorf("settled by %d, answered with %d", settled, w.Code)
			}
		})
	}
}

func TestRoutes(t *testing.T) {
	t.Parallel()
	for _, tt := range []struct{ name, method, path, want string }{
		{"one method", "PUT", "/one", "PUT /one"},
		{"any method", "PUT", "/any/1", "/any/:id"},
		{"a method of the client's own", "FROB", "/any/1", "/any/:id"},
		{"HEAD by GET", "HEAD", "/get", "GET /get"},
		{"a page for what is not found", "GET", "/lost/1", httplimit.Unmatched},
		{"nothing there", "GET", "/else", httplimit.Unmatched},
		{"another method", "POST", "/one", httplimit.Unmatched},
	} {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			store := new(httplimittest.Recorder)
			limit, err := echolimit.New(store, httplimit.Limit(httplimit.ByRoute(), headgate.MustRule("route", headgate.PerHour(1))))
			if err != nil {
				t.Fatal(err)
			}
			e := echo.NewWithConfig(echo.Config{Router: echo.NewRouter(echo.RouterConfig{AutoHandleHEAD: true})})
			e.Pre(limit)
			e.Use(limit)
			ok := func(*echo.Context) error { return nil }
			e.PUT("/one", ok)
			e.GET("/get", ok)
			e.Any("/any/:id", ok)
			e.RouteNotFound("/lost/*", ok)
			e.ServeHTTP(httptest.NewRecorder(), httptest.NewRequest(tt.method, tt.path, http.NoBody))
			if got, want := store.Keys(), []string{tt.method + " " + tt.path, tt.want}; !slices.Equal(got, want) {
				t.Errorf("counted under %q before and after routing, want %q", got, want)
			}
		})
	}
}
