// Command tuning is a small web service that bears about 200 requests a second: it has four
// workers, and each needs 20 ms for a page. A report keeps a worker busy for 200 ms.
//
//	go run . 127.0.0.1:8080
//	curl http://127.0.0.1:8080/
//
// Requests wait for a worker in turn, so that the service gets slower the more it is asked
// for, and far too slow when that is more than it can do. The page docs/tuning.md finds
// limits for it.
package main

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/http"
	"os"
	"os/signal"
	"syscall"
	"time"
)

func main() {
	if len(os.Args) != 2 {
		fmt.Fprintln(os.Stderr, "usage: tuning ADDRESS")
		os.Exit(2)
	}
	if err := run(os.Args[1]); err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
}

func run(address string) error {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	s := &service{workers: make(chan time.Time, 4)}
	for range cap(s.workers) {
		s.workers <- time.Now()
	}
	mux := http.NewServeMux()
	mux.HandleFunc("/", func(w http.ResponseWriter, r *http.Request) {
		s.work(w, r, 20*time.Millisecond, "page")
	})
	mux.HandleFunc("GET /report", func(w http.ResponseWriter, r *http.Request) {
		s.work(w, r, 200*time.Millisecond, "report")
	})
	server := &http.Server{Handler: mux, ReadHeaderTimeout: 5 * time.Second}
	listener, err := net.Listen("tcp", address)
	if err != nil {
		return err
	}
	fmt.Println("listening on", listener.Addr())
	go func() {
		<-ctx.Done()
		end, cancel := context.WithTimeout(context.Background(), 10*time.Second)
		defer cancel()
		_ = server.Shutdown(end) // what is not done by then is cut off
	}()
	if err := server.Serve(listener); !errors.Is(err, http.ErrServerClosed) {
		return err
	}
	return nil
}

// service has four workers. Each is here as the time from which it is free, while it is.
type service struct{ workers chan time.Time }

// work keeps a worker busy for a while, and then answers.
func (s *service) work(w http.ResponseWriter, r *http.Request, d time.Duration, text string) {
	came := time.Now()
	select {
	case free := <-s.workers:
		// A worker that somebody waits for goes on at once, however late this process is
		// told that it is free: the service does as much on a machine that is busy.
		if free.Before(came) {
			free = came
		}
		end := free.Add(d)
		time.Sleep(time.Until(end))
		s.workers <- end
		fmt.Fprintln(w, text)
	case <-r.Context().Done():
	}
}
