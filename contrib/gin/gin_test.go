package ginlimit_test

import (
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"slices"
	"testing"

	"github.com/gin-gonic/gin"

	"github.com/headgate/headgate"
	ginlimit "github.com/headgate/headgate/contrib/gin"
	"github.com/headgate/headgate/httplimit"
	"github.com/headgate/headgate/httplimit/httplimittest"
	"github.com/headgate/headgate/store/memory"
)

func TestMain(m *testing.M) {
	gin.SetMode(gin.TestMode)
	m.Run()
}

// routes are the site's, each behind the handlers given.
func routes(router gin.IRoutes, site *httplimittest.Site, before ...gin.HandlerFunc) {
	behind := func(h gin.HandlerFunc) []gin.HandlerFunc { return append(before[:len(before):len(before)], h) }
	router.Match([]string{http.MethodGet, http.MethodHead}, "/items/:id", behind(func(c *gin.Context) { c.String(http.StatusOK, "%s", site.Item(c.Param("id"))) })...)
	router.POST("/echo", behind(func(c *gin.Context) {
		site.Echo()
		body, err := c.GetRawData()
		if err != nil {
			_ = c.AbortWithError(http.StatusBadRequest, err)
			return
		}
		c.Data(http.StatusOK, "application/octet-stream", body)
	})...)
	router.GET("/events", behind(func(c *gin.Context) {
		err := site.Events(func(text string) error {
			_, err := io.WriteString(c.Writer, text)
			c.Writer.Flush()
			return err
		})
		if err != nil {
			_ = c.Error(err)
		}
	})...)
}

func signIn(c *gin.Context) {
	if name := c.GetHeader(httplimittest.UserHeader); name != "" {
		c.Set(httplimittest.UserKey, name)
	}
}

func served(t *testing.T, router *gin.Engine) httplimittest.Server {
	server := httptest.NewServer(router)
	t.Cleanup(server.Close)
	return httplimittest.Server{URL: server.URL, Item: "GET /items/:id", Echo: "POST /echo"}
}

// Wherever a Gin middleware can stand: around the whole engine, a group, a route.
func TestSuite(t *testing.T) {
	for name, put := range map[string]func(*gin.Engine, *httplimittest.Site, gin.HandlerFunc){
		"engine": func(e *gin.Engine, site *httplimittest.Site, limit gin.HandlerFunc) {
			e.Use(signIn, limit)
			routes(e, site)
		},
		"group": func(e *gin.Engine, site *httplimittest.Site, limit gin.HandlerFunc) {
			routes(e.Group("/", signIn, limit), site)
		},
		"route": func(e *gin.Engine, site *httplimittest.Site, limit gin.HandlerFunc) {
			routes(e, site, signIn, limit)
		},
	} {
		t.Run(name, func(t *testing.T) {
			httplimittest.Run(t, func(t *testing.T, site *httplimittest.Site, store headgate.Store, opts ...httplimit.Option) (httplimittest.Server, error) {
				limit, err := ginlimit.New(store, opts...)
				if err != nil {
					return httplimittest.Server{}, err
				}
				router := gin.New()
				router.HandleMethodNotAllowed = true
				put(router, site, limit)
				return served(t, router), nil
			})
		})
	}
}

// What the options' functions can reach through the request.
func TestContext(t *testing.T) {
	t.Parallel()
	var got []string
	limit, err := ginlimit.New(memory.New(),
		httplimit.Limit(httplimit.ByFunc("id", func(r *http.Request) string { return ginlimit.Context(r).Param("id") }), headgate.MustRule("item", headgate.PerHour(1))),
		httplimit.Observe(httplimit.Hooks{Denied: func(r *http.Request, _ headgate.Verdict) {
			got = append(got, fmt.Sprint(ginlimit.Context(r).FullPath(), " ", r.Context().Value("kept"), " ", r.Context().Value("absent")))
		}}))
	if err != nil {
		t.Fatal(err)
	}
	router := gin.New()
	router.Use(func(c *gin.Context) { c.Set("kept", 7) }, limit)
	router.GET("/items/:id", func(c *gin.Context) {
		if ginlimit.Context(c.Request) != nil {
			t.Error("the handler's request is another than the server's")
		}
	})
	for i, tt := range []struct {
		path string
		code int
	}{{"/items/1", 200}, {"/items/2", 200}, {"/items/1", 429}} {
		w := httptest.NewRecorder()
		router.ServeHTTP(w, httptest.NewRequest(http.MethodGet, tt.path, http.NoBody))
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
	for name, handler := range map[string]gin.HandlerFunc{
		"nothing":          func(*gin.Context) {},
		"a status":         func(c *gin.Context) { c.Status(http.StatusNotFound) },
		"a body":           func(c *gin.Context) { c.String(http.StatusCreated, "x") },
		"a panic":          func(*gin.Context) { panic("as a handler does") },
		"a panic too late": func(c *gin.Context) { c.String(http.StatusAccepted, "x"); panic("as a handler does") },
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			var settled []int
			limit, err := ginlimit.New(memory.New(), httplimit.Limit(httplimit.Everyone(), headgate.MustRule("all", headgate.PerHour(9))),
				httplimit.Settle(func(_ *http.Request, end httplimit.Response) int64 {
					settled = append(settled, end.Status)
					return 1
				}))
			if err != nil {
				t.Fatal(err)
			}
			e := gin.New()
			e.Use(gin.CustomRecoveryWithWriter(io.Discard, func(c *gin.Context, _ any) { c.AbortWithStatus(http.StatusInternalServerError) }))
			e.GET("/", limit, handler)
			w := httptest.NewRecorder()
			e.ServeHTTP(w, httptest.NewRequest(http.MethodGet, "/", http.NoBody))
			if !slices.Equal(settled, []int{w.Code}) {
				t.Errorf("settled by %d, answered with %d", settled, w.Code)
			}
		})
	}
}
