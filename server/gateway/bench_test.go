package gateway

import (
	"io"
	"log/slog"
	"net"
	"net/http"
	"net/http/httptest"
	"net/http/httputil"
	"net/url"
	"testing"

	"github.com/headgate/headgate/policy"
)

// BenchmarkServe compares the gateway with a bare ReverseProxy, all in one process:
// the difference is what the gateway costs.
func BenchmarkServe(b *testing.B) {
	up := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("Content-Type", "application/json")
		_, _ = w.Write(make([]byte, 1000))
	}))
	defer up.Close()
	target, err := url.Parse(up.URL)
	if err != nil {
		b.Fatal(err)
	}
	b.Run("ReverseProxy", func(b *testing.B) {
		transport := &http.Transport{MaxIdleConnsPerHost: maxIdlePerTarget, DisableCompression: true}
		defer transport.CloseIdleConnections()
		s := httptest.NewServer(&httputil.ReverseProxy{
			Rewrite: func(r *httputil.ProxyRequest) {
				r.SetURL(target)
				r.SetXForwarded()
			},
			Transport: transport, BufferPool: new(buffers),
		})
		defer s.Close()
		request(b, s.URL)
	})
	b.Run("gateway", func(b *testing.B) {
		o := to(up.URL)
		o.Logger = slog.New(slog.DiscardHandler)
		g, err := New(b.Context(), decider(b, []policy.Rule{perKey(1_000_000_000)}), o)
		if err != nil {
			b.Fatal(err)
		}
		l, err := net.Listen("tcp", "127.0.0.1:0")
		if err != nil {
			b.Fatal(err)
		}
		s := g.Server(g, nil)
		go func() { _ = s.Serve(l) }()
		defer s.Close()
		request(b, "http://"+l.Addr().String())
	})
}

func request(b *testing.B, url string) {
	transport := &http.Transport{MaxIdleConnsPerHost: maxIdlePerTarget}
	defer transport.CloseIdleConnections()
	b.ReportAllocs()
	b.RunParallel(func(pb *testing.PB) {
		for pb.Next() {
			r, err := http.NewRequestWithContext(b.Context(), http.MethodGet, url+"/items/7", http.NoBody)
			if err != nil {
				b.Error(err)
				return
			}
			r.Header.Set("X-API-Key", "k")
			res, err := transport.RoundTrip(r)
			if err != nil {
				b.Error(err)
				return
			}
			_, _ = io.Copy(io.Discard, res.Body)
			_ = res.Body.Close()
		}
	})
}
