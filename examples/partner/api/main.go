// Command api is a partner that admits 60 requests in any two seconds. Who sends more is
// blocked until the program ends.
//
//	api -listen 127.0.0.1:8095
//
// GET /tally says how many requests were served, how many came within two seconds at most, and
// whether the caller is blocked.
package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"net"
	"net/http"
	"os"
	"os/signal"
	"sync"
	"syscall"
	"time"
)

const (
	limit  = 60
	window = 2 * time.Second
)

func main() {
	listen := flag.String("listen", "127.0.0.1:8095", "`address` to serve on")
	flag.Parse()
	if err := serve(*listen); err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
}

func serve(address string) error {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	listener, err := net.Listen("tcp", address)
	if err != nil {
		return err
	}
	fmt.Println("listening at", listener.Addr())
	p := new(partner)
	mux := http.NewServeMux()
	mux.HandleFunc("GET /items", p.items)
	mux.HandleFunc("GET /tally", p.tally)
	server := &http.Server{Handler: mux, ReadHeaderTimeout: 5 * time.Second}
	context.AfterFunc(ctx, func() { _ = server.Close() })
	if err := server.Serve(listener); !errors.Is(err, http.ErrServerClosed) {
		return err
	}
	return nil
}

// partner knows one caller: whoever calls.
type partner struct {
	mu      sync.Mutex  // guards what follows
	times   []time.Time // of the requests within the window
	served  int
	most    int // within a window
	blocked bool
}

func (p *partner) items(w http.ResponseWriter, _ *http.Request) {
	p.mu.Lock()
	defer p.mu.Unlock()
	now := time.Now()
	for len(p.times) > 0 && now.Sub(p.times[0]) >= window {
		p.times = p.times[1:]
	}
	p.times = append(p.times, now)
	p.most = max(p.most, len(p.times))
	if p.blocked = p.blocked || len(p.times) > limit; p.blocked {
		http.Error(w, "you are blocked", http.StatusForbidden)
		return
	}
	p.served++
	fmt.Fprintln(w, "an item")
}

func (p *partner) tally(w http.ResponseWriter, _ *http.Request) {
	p.mu.Lock()
	defer p.mu.Unlock()
	fmt.Fprintf(w, "served %d, at most %d in %v, blocked: %v\n", p.served, p.most, window, p.blocked)
}
