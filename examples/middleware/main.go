// Command middleware is a small web server that limits its clients with the
// package httplimit. Every client address may make 5 requests in 3 seconds and
// 20 in a minute; a search counts for three.
//
//	go run ./examples/middleware
//	curl -i http://127.0.0.1:8080/
//
// It believes the X-Forwarded-For of a proxy on this machine, so that
//
//	curl -i -H 'X-Forwarded-For: 203.0.113.7' http://127.0.0.1:8080/
//
// is a request of the client 203.0.113.7. With -replay it takes the time from
// the requests as well, from a header X-Replay-Time in the form of access logs,
// "17/May/2015:10:05:03 +0000": days of recorded traffic pass in seconds. Never
// do that where clients can reach the server.
package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"log/slog"
	"net"
	"net/http"
	"os"
	"os/signal"
	"sync/atomic"
	"syscall"
	"time"

	"github.com/headgate/headgate"
	"github.com/headgate/headgate/httplimit"
	"github.com/headgate/headgate/store/memory"
)

func main() {
	listen := flag.String("listen", "127.0.0.1:8080", "`address` to listen at")
	dialect := flag.String("headers", "x-ratelimit", "how clients are told their limits: x-ratelimit, ratelimit-triple, draft-11 or none")
	replay := flag.Bool("replay", false, "take the time from each request's X-Replay-Time")
	flag.Parse()
	log := slog.New(slog.NewTextHandler(os.Stderr, nil))
	if err := run(log, *listen, *dialect, *replay); err != nil {
		log.Error("the server ended", "err", err)
		os.Exit(1)
	}
}

func run(log *slog.Logger, listen, dialect string, replay bool) error {
	headers, err := httplimit.ParseDialect(dialect)
	if err != nil {
		return err
	}
	handler, err := newHandler(log, headers, replay)
	if err != nil {
		return err
	}
	server := &http.Server{
		Handler:           handler,
		ReadHeaderTimeout: 5 * time.Second,
		ReadTimeout:       30 * time.Second,
		WriteTimeout:      60 * time.Second, // longer than a request may be held
		IdleTimeout:       2 * time.Minute,
	}
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	listener, err := new(net.ListenConfig).Listen(ctx, "tcp", listen)
	if err != nil {
		return err
	}
	ended := make(chan error, 1)
	go func() { ended <- server.Serve(listener) }()
	log.Info("listening", "url", "http://"+listener.Addr().String())
	select {
	case err := <-ended:
		return err
	case <-ctx.Done():
	}
	ctx, cancel := context.WithTimeout(context.Background(), 10*time.Second)
	defer cancel()
	if err := server.Shutdown(ctx); err != nil {
		return fmt.Errorf("shut down: %w", err)
	}
	if err := <-ended; !errors.Is(err, http.ErrServerClosed) {
		return err
	}
	return nil
}

// newHandler is the whole service: routes, and the limit around them.
func newHandler(log *slog.Logger, headers httplimit.Dialect, replay bool) (http.Handler, error) {
	mux := http.NewServeMux()
	mux.HandleFunc("GET /search", func(w http.ResponseWriter, _ *http.Request) { fmt.Fprintln(w, "found nothing") })
	mux.HandleFunc("/", func(w http.ResponseWriter, _ *http.Request) { fmt.Fprintln(w, "hello") })

	rule, err := headgate.NewRule("client", headgate.Sliding(20, time.Minute), headgate.Sliding(5, 3*time.Second))
	if err != nil {
		return nil, err
	}
	var clock *replayClock
	store := memory.New()
	if replay {
		clock = new(replayClock)
		store = memory.New(memory.Clock(clock.micros.Load))
	}
	limit, err := httplimit.New(store,
		httplimit.Limit(httplimit.ByIP(), rule),
		httplimit.TrustProxies(httplimit.XForwardedFor, "127.0.0.0/8", "::1"),
		httplimit.Cost(cost),
		httplimit.Headers(headers),
		httplimit.Observe(httplimit.Hooks{
			Failed: func(r *http.Request, err error) {
				log.ErrorContext(r.Context(), "no decision", "method", r.Method, "path", r.URL.Path, "err", err)
			},
		}))
	if err != nil {
		return nil, err
	}
	handler := limit(mux)
	if replay {
		handler = clock.follow(handler)
	}
	return handler, nil
}

// cost is what a request takes of its client's units.
func cost(r *http.Request) int64 {
	if r.URL.Path == "/search" {
		return 3
	}
	return 1
}

// replayClock is a clock that requests set.
type replayClock struct{ micros atomic.Int64 }

// logTime is how access logs in the common and combined formats write the time.
const logTime = "02/Jan/2006:15:04:05 -0700"

// follow sets the clock to the time that each request brings.
func (c *replayClock) follow(next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		at, err := time.Parse(logTime, r.Header.Get("X-Replay-Time"))
		if err != nil {
			p := httplimit.Problem{
				Title:  "The time is missing",
				Status: http.StatusBadRequest,
				Detail: fmt.Sprintf("X-Replay-Time is %q, must be in the form %q.", r.Header.Get("X-Replay-Time"), logTime),
			}
			p.Write(w, r)
			return
		}
		c.micros.Store(at.UnixMicro())
		next.ServeHTTP(w, r)
	})
}
