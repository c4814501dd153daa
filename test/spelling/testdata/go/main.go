// Spelling serves by the routers of Fiber, Gin, Echo and chi, and prints the name and the port
// of each when it serves.
package main

import (
	"fmt"
	"io"
	"net"
	"net/http"
	"os"

	"github.com/gin-gonic/gin"
	"github.com/go-chi/chi/v5"
	"github.com/gofiber/fiber/v3"
	"github.com/labstack/echo/v4"
)

func main() {
	f := fiber.New()
	gin.SetMode(gin.ReleaseMode)
	g, e, c := gin.New(), echo.New(), chi.NewRouter()
	for _, r := range []struct{ path, name string }{{"/v1/token", "token"}, {"/admin/*", "admin"}, {"/*", "other"}} {
		f.All(r.path, func(c fiber.Ctx) error { return c.SendString(r.name) })
		e.Any(r.path, func(c echo.Context) error { return c.String(http.StatusOK, r.name) })
		c.HandleFunc(r.path, func(w http.ResponseWriter, _ *http.Request) { _, _ = io.WriteString(w, r.name) })
	}
	g.Any("/v1/token", func(c *gin.Context) { c.String(http.StatusOK, "token") })
	g.Any("/admin/*rest", func(c *gin.Context) { c.String(http.StatusOK, "admin") })
	g.NoRoute(func(c *gin.Context) { c.String(http.StatusOK, "other") })
	for name, handler := range map[string]http.Handler{"gin": g, "echo": e, "chi": c} {
		l := listen(name)
		go func() { _ = http.Serve(l, handler) }() //nolint:gosec // The test's only.
	}
	l := listen("fiber")
	go func() { _ = f.Listener(l, fiber.ListenConfig{DisableStartupMessage: true}) }()
	_, _ = io.Copy(io.Discard, os.Stdin) // until the test ends
}

func listen(name string) net.Listener {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
	fmt.Println(name, l.Addr().(*net.TCPAddr).Port)
	return l
}
