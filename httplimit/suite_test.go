package httplimit_test

import (
	"context"
	"net/http"
	"net/http/httptest"
	"testing"

	"github.com/headgate/headgate"
	"github.com/headgate/headgate/httplimit"
	"github.com/headgate/headgate/httplimit/httplimittest"
	"github.com/headgate/headgate/store/memory"
)

// signIn stands for authentication.
func signIn(next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		name := r.Header.Get(httplimittest.UserHeader)
		next.ServeHTTP(w, r.WithContext(context.WithValue(r.Context(), httplimittest.ContextKey{}, name)))
	})
}

// served is the server of the handler, whose patterns are those of http.ServeMux.
func served(t *testing.T, handler http.Handler) httplimittest.Server {
	server := httptest.NewServer(signIn(handler))
	t.Cleanup(server.Close)
	return httplimittest.Server{URL: server.URL, Item: "GET /items/{id}", Echo: "POST /echo"}
}

// Around each handler of a mux.
func TestSuiteInsideMux(t *testing.T) {
	httplimittest.Run(t, func(t *testing.T, site *httplimittest.Site, store headgate.Store, opts ...httplimit.Option) (httplimittest.Server, error) {
		limit, err := httplimit.New(store, opts...)
		if err != nil {
			return httplimittest.Server{}, err
		}
		mux := http.NewServeMux()
		mux.Handle("GET /items/{id}", limit(http.HandlerFunc(site.ServeItem)))
		mux.Handle("POST /echo", limit(http.HandlerFunc(site.ServeEcho)))
		mux.Handle("GET /events", limit(http.HandlerFunc(site.ServeEvents)))
		return served(t, mux), nil
	})
}

// Around a whole mux.
func TestSuiteAroundMux(t *testing.T) {
	httplimittest.Run(t, func(t *testing.T, site *httplimittest.Site, store headgate.Store, opts ...httplimit.Option) (httplimittest.Server, error) {
		mux := http.NewServeMux()
		mux.HandleFunc("GET /items/{id}", site.ServeItem)
		mux.HandleFunc("POST /echo", site.ServeEcho)
		mux.HandleFunc("GET /events", site.ServeEvents)
		limit, err := httplimit.New(store, append([]httplimit.Option{httplimit.Route(httplimit.MuxRoute(mux))}, opts...)...)
		if err != nil {
			return httplimittest.Server{}, err
		}
		return served(t, limit(mux)), nil
	})
}

// A gate, as adapters for other frameworks use it.
func TestSuiteGate(t *testing.T) {
	httplimittest.Run(t, func(t *testing.T, site *httplimittest.Site, store headgate.Store, opts ...httplimit.Option) (httplimittest.Server, error) {
		mux := http.NewServeMux()
		mux.HandleFunc("GET /items/{id}", site.ServeItem)
		mux.HandleFunc("POST /echo", site.ServeEcho)
		mux.HandleFunc("GET /events", site.ServeEvents)
		gate, err := httplimit.NewGate(store, append([]httplimit.Option{httplimit.Route(httplimit.MuxRoute(mux))}, opts...)...)
		if err != nil {
			return httplimittest.Server{}, err
		}
		return served(t, http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			seen := &seenWriter{ResponseWriter: w, status: http.StatusOK}
			p, ok := gate.Enter(w, r)
			if ok {
				mux.ServeHTTP(seen, r)
				p.End(seen.status, seen.bytes)
			}
		})), nil
	})
}

// seenWriter is a ResponseWriter as frameworks have it.
type seenWriter struct {
	http.ResponseWriter
	status int
	bytes  int64
}

func (w *seenWriter) Unwrap() http.ResponseWriter { return w.ResponseWriter }

func (w *seenWriter) WriteHeader(status int) {
	w.status = status
	w.ResponseWriter.WriteHeader(status)
}

func (w *seenWriter) Write(b []byte) (int, error) {
	n, err := w.ResponseWriter.Write(b)
	w.bytes += int64(n)
	return n, err
}

// TestGateAdmit: what may go on has its headers, and what may not is answered.
func TestGateAdmit(t *testing.T) {
	gate, err := httplimit.NewGate(memory.New(), httplimit.Limit(httplimit.Everyone(), headgate.MustRule("all", headgate.PerHour(1))))
	if err != nil {
		t.Fatal(err)
	}
	for i, want := range []bool{true, false} {
		w := httptest.NewRecorder()
		got := gate.Admit(w, httptest.NewRequest(http.MethodGet, "/", http.NoBody))
		answered := w.Code == http.StatusTooManyRequests && w.Body.Len() > 0
		if got != want || answered == want || w.Header().Get("X-Ratelimit-Remaining") != "0" {
			t.Errorf("request %d: admitted %t, status %d, headers %v", i, got, w.Code, w.Header())
		}
	}
}
