// A provider of language models to try things with, which needs no key and costs nothing:
//
//	go run ./examples/llm/provider -listen 127.0.0.1:9001
//
// It speaks like OpenAI and like Anthropic, and counts a token for each word that it says.
package main

import (
	"flag"
	"fmt"
	"net/http"
	"os"
	"time"

	"github.com/headgate/headgate/internal/llm/llmtest"
)

func main() {
	listen := flag.String("listen", "127.0.0.1:9001", "address to listen on")
	flag.Parse()
	server := &http.Server{Addr: *listen, Handler: new(llmtest.Provider), ReadHeaderTimeout: 10 * time.Second}
	fmt.Fprintln(os.Stderr, server.ListenAndServe())
	os.Exit(1)
}
