package fiberlimit_test

import (
	"fmt"
	"net/http"
	"net/http/httptest"

	"github.com/gofiber/fiber/v3"

	"github.com/headgate/headgate"
	fiberlimit "github.com/headgate/headgate/contrib/fiber"
	"github.com/headgate/headgate/httplimit"
	"github.com/headgate/headgate/store/memory"
)

// Two requests an hour for each tenant.
func Example() {
	limit, err := fiberlimit.New(memory.New(),
		httplimit.Limit(httplimit.ByHeader("X-Tenant"), headgate.MustRule("tenant", headgate.PerHour(2))))
	if err != nil {
		panic(err) // every mistake in the options
	}
	app := fiber.New()
	app.Use(limit)
	app.Get("/items/:id", func(c fiber.Ctx) error { return c.SendString("item " + c.Params("id")) })

	for range 3 {
		r := httptest.NewRequest(http.MethodGet, "/items/7", http.NoBody)
		r.Header.Set("X-Tenant", "anna")
		res, err := app.Test(r, fiber.TestConfig{Timeout: 0})
		if err != nil {
			panic(err)
		}
		_ = res.Body.Close()
		fmt.Println(res.StatusCode, res.Header.Get("X-RateLimit-Remaining"))
	}
	// Output:
	// 200 1
	// 200 0
	// 429 0
}
