package servicebench

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"strconv"
	"time"
)

// maxBody bounds what the echo servers read, as any server must.
const maxBody = 64 << 10

// EchoBytes answers with the request's body as it came.
func EchoBytes(w http.ResponseWriter, r *http.Request) {
	body, err := io.ReadAll(http.MaxBytesReader(w, r.Body, maxBody))
	if err != nil {
		http.Error(w, err.Error(), http.StatusBadRequest)
		return
	}
	answer(w, body)
}

// checkRequest is the body of Headgate's POST /v1/check, as far as this package
// sends it.
type checkRequest struct {
	Checks []check `json:"checks"`
}

type check struct {
	Rule string `json:"rule"`
	Key  string `json:"key"`
	Cost int64  `json:"cost"`
}

// EchoJSON decodes the body into the request's type and answers with that, encoded
// again: what any JSON service does before and after its work.
func EchoJSON(w http.ResponseWriter, r *http.Request) {
	body, err := io.ReadAll(http.MaxBytesReader(w, r.Body, maxBody))
	if err != nil {
		http.Error(w, err.Error(), http.StatusBadRequest)
		return
	}
	var request checkRequest
	if err := json.Unmarshal(body, &request); err != nil {
		http.Error(w, err.Error(), http.StatusBadRequest)
		return
	}
	body, err = json.Marshal(&request)
	if err != nil {
		http.Error(w, err.Error(), http.StatusInternalServerError)
		return
	}
	answer(w, body)
}

func answer(w http.ResponseWriter, body []byte) {
	w.Header().Set("Content-Type", "application/json")
	w.Header().Set("Content-Length", strconv.Itoa(len(body)))
	_, _ = w.Write(body) // If the client has gone, nobody is left to tell.
}

// Serve runs a bare net/http server with one of the handlers "bytes" and "json",
// until the context ends.
func Serve(ctx context.Context, listen, handler string) error {
	handlers := map[string]http.HandlerFunc{"bytes": EchoBytes, "json": EchoJSON}
	h, ok := handlers[handler]
	if !ok {
		return fmt.Errorf("servicebench: handler %q is neither \"bytes\" nor \"json\"", handler)
	}
	var lc net.ListenConfig
	l, err := lc.Listen(ctx, "tcp", listen)
	if err != nil {
		return fmt.Errorf("servicebench: %w", err)
	}
	mux := http.NewServeMux()
	mux.HandleFunc("POST /v1/check", h)
	server := &http.Server{Handler: mux, ReadHeaderTimeout: 10 * time.Second, IdleTimeout: time.Minute}
	stop := context.AfterFunc(ctx, func() { _ = server.Close() }) // Serve returns the reason.
	defer stop()
	if err := server.Serve(l); !errors.Is(err, http.ErrServerClosed) {
		return fmt.Errorf("servicebench: %w", err)
	}
	return nil
}
