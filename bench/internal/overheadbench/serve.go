package overheadbench

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/http"
	"strconv"
	"strings"
	"time"

	"github.com/headgate/headgate"
	"github.com/headgate/headgate/httplimit"
	"github.com/headgate/headgate/store/memory"
	"github.com/headgate/headgate/store/redis"
)

// The values of Serve's store besides the URL of a Redis.
const (
	// Unlimited serves without the middleware.
	Unlimited = "none"
	// InMemory serves with the memory store.
	InMemory = "memory"
)

// body is what the handler answers with: a document of a usual size.
var body = []byte(`{"items":[` + strings.Repeat(`{"id":7,"name":"headgate","open":true},`, 25) + `{}]}`)

func answer(w http.ResponseWriter, _ *http.Request) {
	h := w.Header()
	h.Set("Content-Type", "application/json")
	h.Set("Content-Length", strconv.Itoa(len(body)))
	_, _ = w.Write(body) // If the client has gone, nobody is left to tell.
}

// Serve answers every request with a document until the context ends: behind the
// middleware with a limit for each API key that is never reached, unless the store
// is Unlimited.
func Serve(ctx context.Context, listen, store string) error {
	handler := http.Handler(http.HandlerFunc(answer))
	if store != Unlimited {
		counters, closeStore, err := open(ctx, store)
		if err != nil {
			return fmt.Errorf("overheadbench: %w", err)
		}
		defer closeStore()
		limit, err := httplimit.New(counters, httplimit.Limit(httplimit.ByHeader("X-API-Key"), headgate.MustRule("bench", headgate.PerHour(1_000_000))))
		if err != nil {
			return fmt.Errorf("overheadbench: %w", err)
		}
		handler = limit(handler)
	}
	var lc net.ListenConfig
	l, err := lc.Listen(ctx, "tcp", listen)
	if err != nil {
		return fmt.Errorf("overheadbench: %w", err)
	}
	server := &http.Server{Handler: handler, ReadHeaderTimeout: 10 * time.Second, IdleTimeout: time.Minute}
	stop := context.AfterFunc(ctx, func() { _ = server.Close() }) // Serve returns the reason.
	defer stop()
	if err := server.Serve(l); !errors.Is(err, http.ErrServerClosed) {
		return fmt.Errorf("overheadbench: %w", err)
	}
	return nil
}

func open(ctx context.Context, store string) (_ headgate.Store, closeStore func(), err error) {
	if store == InMemory {
		return memory.New(), func() {}, nil
	}
	s, err := redis.Open(ctx, store, redis.WithTimeout(time.Second))
	if err != nil {
		return nil, nil, err
	}
	return s, s.Close, nil
}
