package ginlimit_test

import (
	"net/http"
	"net/http/httptest"
	"testing"
	"time"

	"github.com/gin-gonic/gin"

	"github.com/headgate/headgate"
	ginlimit "github.com/headgate/headgate/contrib/gin"
	"github.com/headgate/headgate/httplimit"
	"github.com/headgate/headgate/store/memory"
)

// BenchmarkGin is an engine with one route, alone and behind a limit.
func BenchmarkGin(b *testing.B) {
	limit, err := ginlimit.New(memory.New(), httplimit.Limit(httplimit.ByIP(), headgate.MustRule("client", headgate.Per(1_000_000_000, time.Second))))
	if err != nil {
		b.Fatal(err)
	}
	for name, before := range map[string][]gin.HandlerFunc{"alone": nil, "limited": {limit}} {
		b.Run(name, func(b *testing.B) {
			router := gin.New()
			router.Use(before...)
			router.GET("/items/:id", func(c *gin.Context) { c.Status(http.StatusNoContent) })
			r := httptest.NewRequest(http.MethodGet, "/items/7", http.NoBody)
			w := httptest.NewRecorder()
			b.ReportAllocs()
			for b.Loop() {
				router.ServeHTTP(w, r)
			}
		})
	}
}
