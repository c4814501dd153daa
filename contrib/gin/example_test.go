package ginlimit_test

import (
	"fmt"
	"net/http"
	"net/http/httptest"

	"github.com/gin-gonic/gin"

	"github.com/headgate/headgate"
	ginlimit "github.com/headgate/headgate/contrib/gin"
	"github.com/headgate/headgate/httplimit"
	"github.com/headgate/headgate/store/memory"
)

// Two requests an hour for each address.
func Example() {
	limit, err := ginlimit.New(memory.New(),
		httplimit.Limit(httplimit.ByIP(), headgate.MustRule("client", headgate.PerHour(2))))
	if err != nil {
		panic(err) // every mistake in the options
	}
	router := gin.New()
	router.Use(limit)
	router.GET("/items/:id", func(c *gin.Context) { c.String(http.StatusOK, "item %s", c.Param("id")) })

	for range 3 {
		w := httptest.NewRecorder()
		router.ServeHTTP(w, httptest.NewRequest(http.MethodGet, "/items/7", http.NoBody))
		fmt.Println(w.Code, w.Header().Get("X-RateLimit-Remaining"))
	}
	// Output:
	// 200 1
	// 200 0
	// 429 0
}
