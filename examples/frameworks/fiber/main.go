// Command fiber is a Fiber service that limits its clients. Every client address may
// make 5 requests in 30 seconds and 20 in five minutes, over all routes, and search
// once a minute.
//
//	go run ./examples/frameworks/fiber
//	curl -i http://127.0.0.1:8080/items/7
package main

import (
	"flag"
	"fmt"
	"net"
	"os"
	"time"

	"github.com/gofiber/fiber/v3"

	"github.com/headgate/headgate"
	fiberlimit "github.com/headgate/headgate/contrib/fiber"
	"github.com/headgate/headgate/httplimit"
	"github.com/headgate/headgate/store/memory"
)

func main() {
	listen := flag.String("listen", "127.0.0.1:8080", "`address` to listen at")
	flag.Parse()
	if err := run(*listen); err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
}

func run(listen string) error {
	store := memory.New()
	all, err := fiberlimit.New(store, httplimit.Limit(httplimit.ByIP(),
		headgate.MustRule("client", headgate.Sliding(20, 5*time.Minute), headgate.Sliding(5, 30*time.Second))))
	if err != nil {
		return err
	}
	search, err := fiberlimit.New(store, httplimit.Limit(httplimit.ByIP(), headgate.MustRule("search", headgate.PerMinute(1))))
	if err != nil {
		return err
	}

	app := fiber.New(fiber.Config{ReadTimeout: 30 * time.Second, IdleTimeout: 2 * time.Minute})
	app.Use(all)
	app.Get("/items/:id", func(c fiber.Ctx) error { return c.SendString("item " + c.Params("id") + "\n") })
	app.Get("/search", search, func(c fiber.Ctx) error { return c.SendString("found nothing\n") })

	listener, err := net.Listen("tcp", listen)
	if err != nil {
		return err
	}
	fmt.Println("listening at http://" + listener.Addr().String())
	return app.Listener(listener, fiber.ListenConfig{DisableStartupMessage: true})
}
