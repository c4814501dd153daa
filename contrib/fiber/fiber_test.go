package fiberlimit_test

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"net"
	"net/http"
	"net/http/httptest"
	"slices"
	"strings"
	"testing"

	"github.com/gofiber/fiber/v3"

	"github.com/headgate/headgate"
	fiberlimit "github.com/headgate/headgate/contrib/fiber"
	"github.com/headgate/headgate/httplimit"
	"github.com/headgate/headgate/httplimit/httplimittest"
	"github.com/headgate/headgate/store/memory"
)

// patient waits for an answer for as long as it takes: the default is a second.
var patient = fiber.TestConfig{Timeout: 0}

// routes are the site's, each behind the handlers given.
func routes(r fiber.Router, site *httplimittest.Site, before ...any) {
	add := func(method, path string, h fiber.Handler) {
		all := append(before[:len(before):len(before)], h)
		r.Add([]string{method}, path, all[0], all[1:]...)
	}
	add(http.MethodGet, "/items/:id", func(c fiber.Ctx) error { return c.SendString(site.Item(c.Params("id"))) })
	add(http.MethodPost, "/echo", func(c fiber.Ctx) error {
		site.Echo()
		return c.Send(c.Body())
	})
	add(http.MethodGet, "/events", func(c fiber.Ctx) error {
		return c.SendStreamWriter(func(w *bufio.Writer) {
			// The suite notices what a client does not get.
			_ = site.Events(func(text string) error {
				_, err := w.WriteString(text)
				return errors.Join(err, w.Flush())
			})
		})
	})
}

func signIn(c fiber.Ctx) error {
	if name := c.Get(httplimittest.UserHeader); name != "" {
		c.Locals(httplimittest.UserKey, strings.Clone(name))
	}
	return c.Next()
}

// serve serves the app on a free port until the test ends.
func serve(t *testing.T, app *fiber.App) string {
	t.Helper()
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	ended := make(chan error, 1)
	go func() { ended <- app.Listener(listener, fiber.ListenConfig{DisableStartupMessage: true}) }()
	// Shutdown looks for connections that have ended ten times a second, too
	// seldom for as many servers. The clients close theirs before.
	t.Cleanup(func() {
		if err := errors.Join(listener.Close(), <-ended); err != nil {
			t.Error(err)
		}
	})
	return "http://" + listener.Addr().String()
}

// Wherever a Fiber middleware can stand, and with the settings that change what
// it sees of a request.
func TestSuite(t *testing.T) {
	app := func(app *fiber.App, site *httplimittest.Site, limit fiber.Handler) {
		app.Use(signIn, limit)
		routes(app, site)
	}
	for _, tt := range []struct {
		name   string
		config fiber.Config
		put    func(*fiber.App, *httplimittest.Site, fiber.Handler)
	}{
		{"app", fiber.Config{}, app},
		{"strict, and bodies streamed", fiber.Config{StreamRequestBody: true, StrictRouting: true, CaseSensitive: true, Immutable: true, UnescapePath: true, ReduceMemoryUsage: true}, app},
		{"names as they came", fiber.Config{DisableHeaderNormalizing: true}, app},
		{"group", fiber.Config{}, func(app *fiber.App, site *httplimittest.Site, limit fiber.Handler) {
			routes(app.Group("/", signIn, limit), site)
		}},
		{"route", fiber.Config{}, func(app *fiber.App, site *httplimittest.Site, limit fiber.Handler) {
			routes(app, site, signIn, limit)
		}},
	} {
		t.Run(tt.name, func(t *testing.T) {
			httplimittest.Run(t, func(t *testing.T, site *httplimittest.Site, store headgate.Store, opts ...httplimit.Option) (httplimittest.Server, error) {
				limit, err := fiberlimit.New(store, opts...)
				if err != nil {
					return httplimittest.Server{}, err
				}
				app := fiber.New(tt.config)
				tt.put(app, site, limit)
				return httplimittest.Server{URL: serve(t, app), Item: "GET /items/:id", Echo: "POST /echo"}, nil
			})
		})
	}
}

// What the options' functions can reach through the request.
func TestContext(t *testing.T) {
	t.Parallel()
	var got []string
	var kept *http.Request
	type key struct{}
	limit, err := fiberlimit.New(memory.New(),
		httplimit.Limit(httplimit.ByFunc("id", func(r *http.Request) string { return fiberlimit.Context(r).Params("id") }), headgate.MustRule("item", headgate.PerHour(1))),
		httplimit.Observe(httplimit.Hooks{Denied: func(r *http.Request, _ headgate.Verdict) {
			kept = r
			got = append(got, fmt.Sprint(fiberlimit.Context(r).FullPath(), " ", r.Context().Value("kept"), " ", r.Context().Value(key{}), " ", r.Context().Value("absent")))
		}}))
	if err != nil {
		t.Fatal(err)
	}
	app := fiber.New()
	app.Get("/items/:id", func(c fiber.Ctx) error {
		c.Locals("kept", 7)
		c.SetContext(context.WithValue(c.Context(), key{}, "set"))
		return c.Next()
	}, limit, func(c fiber.Ctx) error { return c.SendString("item") })
	for i, tt := range []struct {
		path string
		code int
	}{{"/items/1", 200}, {"/items/2", 200}, {"/items/1?first", 429}, {"/items/3?later", 200}} {
		r := httptest.NewRequest(http.MethodGet, tt.path, http.NoBody)
		r.Header.Set("X-Number", fmt.Sprint(i))
		res, err := app.Test(r, patient)
		if err != nil {
			t.Fatal(err)
		}
		_ = res.Body.Close()
		if res.StatusCode != tt.code {
			t.Errorf("request %d: %d, want %d", i+1, res.StatusCode, tt.code)
		}
	}
	if !slices.Equal(got, []string{"/items/:id 7 set <nil>"}) {
		t.Errorf("the hook was told %q", got)
	}
	// The requests that came later have not changed what was kept.
	if kept == nil || kept.Header.Get("X-Number") != "2" || kept.URL.String() != "/items/1?first" || kept.Host != "example.com" || kept.Header.Get("Host") != "" {
		t.Errorf("the request that was kept: %+v", kept)
	}
}

func TestRoutes(t *testing.T) {
	t.Parallel()
	ok := func(c fiber.Ctx) error { return c.SendStatus(http.StatusNoContent) }
	for _, tt := range []struct{ name, method, path, want string }{
		{"plain", "GET", "/items/7", "GET /items/:id"},
		{"another spelling", "GET", "/Items/7/", "GET /items/:id"},
		{"escaped", "GET", "/items/a%2Fb", "GET /items/:id"},
		{"HEAD by GET", "HEAD", "/items/7", "GET /items/:id"},
		{"the first that matches", "GET", "/items/mine", "GET /items/mine"},
		{"any method", "PATCH", "/any", "PATCH /any"},
		{"an optional parameter", "GET", "/user", "GET /user/:name?"},
		{"an optional parameter that is there", "GET", "/user/ann", "GET /user/:name?"},
		{"several in one segment", "GET", "/flights/a-b", "GET /flights/:from-:to"},
		{"a constraint", "GET", "/age/7", "GET /age/:n<int>"},
		{"a constraint that does not hold", "GET", "/age/x", httplimit.Unmatched},
		{"a wildcard", "GET", "/files/a/b", "GET /files/*"},
		{"a colon", "GET", "/v1/some:do", `GET /v1/some\:do`},
		{"below", "GET", "/api/v1/users/7", "GET /api/v1/users/:id"},
		{"mounted", "GET", "/shop/carts/7", "GET /shop/carts/:id"},
		{"nothing there", "GET", "/else", httplimit.Unmatched},
		{"nothing below", "GET", "/api/v1/else", httplimit.Unmatched},
		{"another method", "DELETE", "/items/7", httplimit.Unmatched},
	} {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			store := new(httplimittest.Recorder)
			limit, err := fiberlimit.New(store, httplimit.Limit(httplimit.ByRoute(), headgate.MustRule("route", headgate.PerHour(1))))
			if err != nil {
				t.Fatal(err)
			}
			// Around all and around each route: both must name it alike.
			app := fiber.New()
			app.Use(limit)
			app.Get("/items/mine", limit, ok)
			app.Get("/items/:id", limit, ok)
			app.All("/any", limit, ok)
			app.Get("/user/:name?", limit, ok)
			app.Get("/flights/:from-:to", limit, ok)
			app.Get("/age/:n<int>", limit, ok)
			app.Get("/files/*", limit, ok)
			app.Get(`/v1/some\:do`, limit, ok)
			app.Group("/api", limit).Group("/v1", limit).Get("/users/:id", limit, ok)
			shop := fiber.New()
			shop.Use(limit)
			shop.Get("/carts/:id", limit, ok)
			app.Use("/shop", shop)

			res, err := app.Test(httptest.NewRequest(tt.method, tt.path, http.NoBody), patient)
			if err != nil {
				t.Fatal(err)
			}
			_ = res.Body.Close()
			got := store.Keys()
			if unique := slices.Compact(slices.Clone(got)); !slices.Equal(unique, []string{tt.want}) {
				t.Errorf("counted under %q, want %q each time", got, tt.want)
			}
			if served := res.StatusCode == http.StatusNoContent; served != (tt.want != httplimit.Unmatched) {
				t.Errorf("answered with %d", res.StatusCode)
			}
		})
	}
}

// Routes that are added while the app serves are found.
func TestRoutesAddedLater(t *testing.T) {
	t.Parallel()
	store := new(httplimittest.Recorder)
	limit, err := fiberlimit.New(store, httplimit.Limit(httplimit.ByRoute(), headgate.MustRule("route", headgate.PerHour(1))))
	if err != nil {
		t.Fatal(err)
	}
	app := fiber.New()
	app.Use(limit)
	for _, want := range []string{httplimit.Unmatched, "GET /late/:id"} {
		res, err := app.Test(httptest.NewRequest(http.MethodGet, "/late/7", http.NoBody), patient)
		if err != nil {
			t.Fatal(err)
		}
		_ = res.Body.Close()
		if got := store.Keys(); !slices.Equal(got, []string{want}) {
			t.Errorf("counted under %q, want %q", got, want)
		}
		app.Get("/late/:id", func(fiber.Ctx) error { return nil })
		app.RebuildTree()
	}
}

// A path that a handler rewrites counts as what it becomes.
func TestRewrittenPath(t *testing.T) {
	t.Parallel()
	store := new(httplimittest.Recorder)
	limit, err := fiberlimit.New(store, httplimit.Limit(httplimit.Combine(httplimit.ByRoute(),
		httplimit.ByFunc("path", func(r *http.Request) string { return r.URL.Path + " " + r.URL.EscapedPath() + " " + r.URL.Host })), headgate.MustRule("route", headgate.PerHour(1))))
	if err != nil {
		t.Fatal(err)
	}
	app := fiber.New()
	app.Use(func(c fiber.Ctx) error {
		c.Path(strings.TrimPrefix(c.Path(), "/old"))
		return c.Next()
	}, limit)
	app.Get("/new/:id", func(fiber.Ctx) error { return nil })
	res, err := app.Test(httptest.NewRequest(http.MethodGet, "/old/new/a%20b?x", http.NoBody), patient)
	if err != nil {
		t.Fatal(err)
	}
	_ = res.Body.Close()
	if got := store.Keys(); !slices.Equal(got, []string{"GET /new/:id|/new/a b /new/a%20b "}) || res.StatusCode != http.StatusOK {
		t.Errorf("counted under %q, answered with %d", got, res.StatusCode)
	}
}
