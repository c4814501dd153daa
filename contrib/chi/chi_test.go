package chilimit_test

import (
	"context"
	"net/http"
	"net/http/httptest"
	"slices"
	"testing"

	"github.com/go-chi/chi/v5"
	"github.com/go-chi/chi/v5/middleware"

	"github.com/headgate/headgate"
	chilimit "github.com/headgate/headgate/contrib/chi"
	"github.com/headgate/headgate/httplimit"
	"github.com/headgate/headgate/httplimit/httplimittest"
)

func routes(r chi.Router, site *httplimittest.Site) {
	r.Get("/items/{id}", site.ServeItem)
	r.Head("/items/{id}", site.ServeItem)
	r.Post("/echo", site.ServeEcho)
	r.Get("/events", site.ServeEvents)
}

func signIn(next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		name := r.Header.Get(httplimittest.UserHeader)
		next.ServeHTTP(w, r.WithContext(context.WithValue(r.Context(), httplimittest.ContextKey{}, name)))
	})
}

type limiter = func(http.Handler) http.Handler

// Wherever a chi middleware can stand.
func TestSuite(t *testing.T) {
	for name, put := range map[string]func(*chi.Mux, *httplimittest.Site, limiter){
		"use": func(r *chi.Mux, site *httplimittest.Site, limit limiter) {
			r.Use(signIn, limit)
			routes(r, site)
		},
		"with": func(r *chi.Mux, site *httplimittest.Site, limit limiter) {
			routes(r.With(signIn, limit), site)
		},
		"group": func(r *chi.Mux, site *httplimittest.Site, limit limiter) {
			r.Group(func(r chi.Router) {
				r.Use(signIn, limit)
				routes(r, site)
			})
		},
		"sub-router": func(r *chi.Mux, site *httplimittest.Site, limit limiter) {
			r.Route("/", func(r chi.Router) {
				r.Use(signIn, limit)
				routes(r, site)
			})
		},
	} {
		t.Run(name, func(t *testing.T) {
			httplimittest.Run(t, func(t *testing.T, site *httplimittest.Site, store headgate.Store, opts ...httplimit.Option) (httplimittest.Server, error) {
				limit, err := chilimit.New(store, opts...)
				if err != nil {
					return httplimittest.Server{}, err
				}
				r := chi.NewRouter()
				put(r, site, limit)
				server := httptest.NewServer(r)
				t.Cleanup(server.Close)
				return httplimittest.Server{URL: server.URL, Item: "GET /items/{id}", Echo: "POST /echo"}, nil
			})
		})
	}
}

func TestRoutes(t *testing.T) {
	t.Parallel()
	ok := func(http.ResponseWriter, *http.Request) {}
	for _, tt := range []struct{ name, method, path, want string }{
		{"plain", "GET", "/items/7", "GET /items/{id}"},
		{"escaped", "GET", "/items/a%2Fb", "GET /items/{id}"},
		{"a slash at the end", "GET", "/items/7/", "GET /items/{id}"},
		{"HEAD by GET", "HEAD", "/items/7", "GET /items/{id}"},
		{"any method", "PATCH", "/any", "PATCH /any"},
		{"a wildcard", "GET", "/files/a/b", "GET /files/*"},
		{"below", "GET", "/api/v1/users/7", "GET /api/v1/users/{id}"},
		{"below, a slash at the end", "GET", "/api/v1/users/7/", "GET /api/v1/users/{id}"},
		{"below, the root", "GET", "/api/v1", "GET /api/v1"},
		{"below, the root and a slash", "GET", "/api/v1/", "GET /api/v1"},
		{"the root", "GET", "/", "GET /"},
		{"mounted", "GET", "/shop/carts/7", "GET /shop/carts/{id}"},
		{"mounted, nothing there", "GET", "/shop/else", httplimit.Unmatched},
		{"nothing there", "GET", "/else", httplimit.Unmatched},
		{"below, nothing there", "GET", "/api/v1/else", httplimit.Unmatched},
		{"another method", "DELETE", "/items/7", httplimit.Unmatched},
		{"a method that chi does not know", "FROB", "/any", httplimit.Unmatched},
	} {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			store := new(httplimittest.Recorder)
			limit, err := chilimit.New(store, httplimit.Limit(httplimit.ByRoute(), headgate.MustRule("route", headgate.PerHour(1))))
			if err != nil {
				t.Fatal(err)
			}
			// Outermost, in each router, and around each handler: wherever the
			// request comes by, it has the same route.
			r := chi.NewRouter()
			if tt.path != "/api/v1/" {
				r.Use(middleware.StripSlashes)
			}
			r.Use(middleware.GetHead, limit)
			r.With(limit).Get("/", ok)
			routes := func(r chi.Router) {
				r.Get("/", ok)
				r.Get("/users/{id}", ok)
			}
			r.With(limit).Get("/items/{id}", ok)
			r.With(limit).HandleFunc("/any", ok)
			r.With(limit).Get("/files/*", ok)
			r.Route("/api", func(r chi.Router) {
				r.Use(limit)
				r.Route("/v1", func(r chi.Router) {
					r.Use(limit)
					routes(r.With(limit))
				})
			})
			shop := chi.NewRouter()
			shop.Use(limit)
			shop.With(limit).Get("/carts/{id}", ok)
			r.Mount("/shop", shop)

			r.ServeHTTP(httptest.NewRecorder(), httptest.NewRequest(tt.method, tt.path, http.NoBody))
			got := store.Keys()
			slices.Sort(got)
			if unique := slices.Compact(slices.Clone(got)); !slices.Equal(unique, []string{tt.want}) {
				t.Errorf("counted under %q, want %q each time", got, tt.want)
			}
			if got := chilimit.Route(httptest.NewRequest("GET", "/x", http.NoBody)); got != "GET /x" {
				t.Errorf("outside of a router the route is %q", got)
			}
		})
	}
}
