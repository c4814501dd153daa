// Command app is the application in the example of a proxy that cannot answer by
// itself: it says hello on the address that it is given, until it is told to end.
package main

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"os"
	"os/signal"
	"syscall"
	"time"
)

func main() {
	if err := run(); err != nil {
		fmt.Fprintln(os.Stderr, "app:", err)
		os.Exit(1)
	}
}

func run() error {
	if len(os.Args) != 2 {
		return errors.New("give the address to serve on, such as 127.0.0.1:9004")
	}
	ctx, stop := signal.NotifyContext(context.Background(), syscall.SIGINT, syscall.SIGTERM)
	defer stop()
	s := &http.Server{
		Addr: os.Args[1], ReadHeaderTimeout: 5 * time.Second,
		Handler: http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) { _, _ = fmt.Fprintln(w, "hello") }),
	}
	ended := make(chan error, 1)
	go func() { ended <- s.ListenAndServe() }()
	select {
	case err := <-ended:
		return err
	case <-ctx.Done():
		// What is in flight is cut off: it is an example.
		err := s.Close()
		if ended := <-ended; !errors.Is(ended, http.ErrServerClosed) {
			return ended
		}
		return err
	}
}
