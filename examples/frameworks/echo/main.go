// Command echo is an Echo service that limits its clients. Every client address may
// make 5 requests in 30 seconds and 20 in five minutes, over all routes, and search
// once a minute.
//
//	go run ./examples/frameworks/echo
//	curl -i http://127.0.0.1:8080/items/7
package main

import (
	"flag"
	"fmt"
	"net"
	"net/http"
	"os"
	"time"

	"github.com/labstack/echo/v5"

	"github.com/headgate/headgate"
	echolimit "github.com/headgate/headgate/contrib/echo"
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
	all, err := echolimit.New(store, httplimit.Limit(httplimit.ByIP(),
		headgate.MustRule("client", headgate.Sliding(20, 5*time.Minute), headgate.Sliding(5, 30*time.Second))))
	if err != nil {
		return err
	}
	search, err := echolimit.New(store, httplimit.Limit(httplimit.ByIP(), headgate.MustRule("search", headgate.PerMinute(1))))
	if err != nil {
		return err
	}

	router := echo.New()
	router.Use(all)
	router.GET("/items/:id", func(c *echo.Context) error { return c.String(http.StatusOK, "item "+c.Param("id")+"\n") })
	router.GET("/search", func(c *echo.Context) error { return c.String(http.StatusOK, "found nothing\n") }, search)

	listener, err := net.Listen("tcp", listen)
	if err != nil {
		return err
	}
	fmt.Println("listening at http://" + listener.Addr().String())
	server := &http.Server{Handler: router, ReadHeaderTimeout: 5 * time.Second, ReadTimeout: 30 * time.Second, IdleTimeout: 2 * time.Minute}
	return server.Serve(listener)
}
