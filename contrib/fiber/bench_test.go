package fiberlimit_test

import (
	"net/http"
	"testing"
	"time"

	"github.com/gofiber/fiber/v3"
	"github.com/valyala/fasthttp"

	"github.com/headgate/headgate"
	fiberlimit "github.com/headgate/headgate/contrib/fiber"
	"github.com/headgate/headgate/httplimit"
	"github.com/headgate/headgate/store/memory"
)

// BenchmarkFiber is an app with one route, alone and behind a limit. The client's
// address is in a header: requests that come over no connection have none.
func BenchmarkFiber(b *testing.B) {
	rule := func() *headgate.Rule {
		return headgate.MustRule("client", headgate.Per(1_000_000_000, time.Second))
	}
	for name, opt := range map[string]httplimit.Option{
		"alone":    nil,
		"limited":  httplimit.Limit(httplimit.ByHeader("X-Tenant"), rule()),
		"by route": httplimit.Limit(httplimit.ByRoute(), rule()),
	} {
		b.Run(name, func(b *testing.B) {
			app := fiber.New()
			if opt != nil {
				limit, err := fiberlimit.New(memory.New(), opt)
				if err != nil {
					b.Fatal(err)
				}
				app.Use(limit)
			}
			app.Get("/items/:id", func(c fiber.Ctx) error { return c.SendStatus(http.StatusNoContent) })
			handler := app.Handler()
			var ctx fasthttp.RequestCtx
			ctx.Request.SetRequestURI("http://example.com/items/7")
			ctx.Request.Header.Set("X-Tenant", "t")
			ctx.Request.Header.Set("User-Agent", "curl/8")
			ctx.Request.Header.Set("Accept", "*/*")
			b.ReportAllocs()
			for b.Loop() {
				handler(&ctx)
			}
			if status := ctx.Response.StatusCode(); status != http.StatusNoContent {
				b.Fatalf("answered with %d", status)
			}
		})
	}
}
