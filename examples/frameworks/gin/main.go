// Command gin is a Gin service that limits its clients. Every client address may
// make 5 requests in 30 seconds and 20 in five minutes, over all routes, and search
// once a minute.
//
//	go run ./examples/frameworks/gin
//	curl -i http://127.0.0.1:8080/items/7
package main

import (
	"flag"
	"fmt"
	"net"
	"net/http"
	"os"
	"time"

	"github.com/gin-gonic/gin"

	"github.com/headgate/headgate"
	ginlimit "github.com/headgate/headgate/contrib/gin"
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
	all, err := ginlimit.New(store, httplimit.Limit(httplimit.ByIP(),
		headgate.MustRule("client", headgate.Sliding(20, 5*time.Minute), headgate.Sliding(5, 30*time.Second))))
	if err != nil {
		return err
	}
	search, err := ginlimit.New(store, httplimit.Limit(httplimit.ByIP(), headgate.MustRule("search", headgate.PerMinute(1))))
	if err != nil {
		return err
	}

	gin.SetMode(gin.ReleaseMode)
	router := gin.New()
	router.Use(all)
	router.GET("/items/:id", func(c *gin.Context) { c.String(http.StatusOK, "item %s\n", c.Param("id")) })
	router.GET("/search", search, func(c *gin.Context) { c.String(http.StatusOK, "found nothing\n") })

	listener, err := net.Listen("tcp", listen)
	if err != nil {
		return err
	}
	fmt.Println("listening at http://" + listener.Addr().String())
	server := &http.Server{Handler: router, ReadHeaderTimeout: 5 * time.Second, ReadTimeout: 30 * time.Second, IdleTimeout: 2 * time.Minute}
	return server.Serve(listener)
}
