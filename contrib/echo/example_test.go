package echolimit_test

import (
	"fmt"
	"net/http"
	"net/http/httptest"

	"github.com/labstack/echo/v5"

	"github.com/headgate/headgate"
	echolimit "github.com/headgate/headgate/contrib/echo"
	"github.com/headgate/headgate/httplimit"
	"github.com/headgate/headgate/store/memory"
)

// Two requests an hour for each address.
func Example() {
	limit, err := echolimit.New(memory.New(),
		httplimit.Limit(httplimit.ByIP(), headgate.MustRule("client", headgate.PerHour(2))))
	if err != nil {
		panic(err) // every mistake in the options
	}
	e := echo.New()
	e.Use(limit)
	e.GET("/items/:id", func(c *echo.Context) error { return c.String(http.StatusOK, "item "+c.Param("id")) })

	for range 3 {
		w := httptest.NewRecorder()
		e.ServeHTTP(w, httptest.NewRequest(http.MethodGet, "/items/7", http.NoBody))
		fmt.Println(w.Code, w.Header().Get("X-RateLimit-Remaining"))
	}
	// Output:
	// 200 1
	// 200 0
	// 429 0
}
