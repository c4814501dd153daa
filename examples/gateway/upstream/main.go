// Command upstream is a small web service to put a gateway before:
//
//	go run ./examples/gateway/upstream -listen 127.0.0.1:9001
//
// GET /items/{id} answers with a document, POST /token with a token, and POST
// /upload with the size of what was sent; GET /events sends an event every second;
// GET /slow takes as long as ?for=2s says, and GET /report says in the header X-Rows
// that it has read as many rows as ?rows=300 says; GET /healthz says that it is well.
package main

import (
	"context"
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"io"
	"net/http"
	"os"
	"os/signal"
	"strconv"
	"syscall"
	"time"
)

func main() {
	listen := flag.String("listen", "127.0.0.1:9001", "the address to serve on")
	flag.Parse()
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	if err := serve(ctx, *listen); err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
}

func serve(ctx context.Context, listen string) error {
	s := &http.Server{
		Addr: listen, Handler: handler(listen), ReadHeaderTimeout: 5 * time.Second, IdleTimeout: 2 * time.Minute,
		Protocols: new(http.Protocols),
	}
	s.Protocols.SetHTTP1(true)
	s.Protocols.SetUnencryptedHTTP2(true)
	end := context.AfterFunc(ctx, func() { _ = s.Close() })
	defer end()
	if err := s.ListenAndServe(); !errors.Is(err, http.ErrServerClosed) {
		return err
	}
	return nil
}

// handler answers as the server of that name.
func handler(name string) http.Handler {
	mux := http.NewServeMux()
	mux.HandleFunc("GET /healthz", func(w http.ResponseWriter, _ *http.Request) { fmt.Fprintln(w, "ok") })
	mux.HandleFunc("GET /items/{id}", func(w http.ResponseWriter, r *http.Request) {
		answer(w, map[string]string{
			"item": r.PathValue("id"), "server": name, "protocol": r.Proto,
			"client": r.Header.Get("X-Forwarded-For"), "user": r.Header.Get("X-User"),
		})
	})
	mux.HandleFunc("POST /token", func(w http.ResponseWriter, _ *http.Request) { answer(w, map[string]string{"token": "t"}) })
	mux.HandleFunc("POST /upload", func(w http.ResponseWriter, r *http.Request) {
		n, err := io.Copy(io.Discard, r.Body)
		if err != nil {
			http.Error(w, err.Error(), http.StatusBadRequest)
			return
		}
		answer(w, map[string]string{"bytes": fmt.Sprint(n)})
	})
	mux.HandleFunc("GET /slow", func(w http.ResponseWriter, r *http.Request) {
		d, err := time.ParseDuration(r.URL.Query().Get("for"))
		if err != nil || d > time.Minute {
			http.Error(w, "for must be a time up to 1m", http.StatusBadRequest)
			return
		}
		select {
		case <-time.After(d):
			answer(w, map[string]string{"slept": d.String()})
		case <-r.Context().Done():
		}
	})
	mux.HandleFunc("GET /report", func(w http.ResponseWriter, r *http.Request) {
		rows, err := strconv.ParseUint(r.URL.Query().Get("rows"), 10, 31)
		if err != nil {
			http.Error(w, "rows must be a whole number", http.StatusBadRequest)
			return
		}
		w.Header().Set("X-Rows", fmt.Sprint(rows))
		answer(w, map[string]string{"report": "all is well"})
	})
	mux.HandleFunc("GET /events", events)
	return mux
}

func answer(w http.ResponseWriter, v map[string]string) {
	w.Header().Set("Content-Type", "application/json")
	_ = json.NewEncoder(w).Encode(v) // The client may be gone.
}

// events sends an event every second, until the client has enough.
func events(w http.ResponseWriter, r *http.Request) {
	w.Header().Set("Content-Type", "text/event-stream")
	w.Header().Set("Cache-Control", "no-store")
	ticker := time.NewTicker(time.Second)
	defer ticker.Stop()
	for i := 1; ; i++ {
		fmt.Fprintf(w, "data: %d\n\n", i)
		if http.NewResponseController(w).Flush() != nil {
			return
		}
		select {
		case <-ticker.C:
		case <-r.Context().Done():
			return
		}
	}
}
