package gatewaybench

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/http"
	"net/http/httputil"
	"net/url"
	"strings"
	"sync"
	"time"
)

// body is what the upstream server answers with: a document of a usual size.
var body = []byte(`{"items":[` + strings.Repeat(`{"id":7,"name":"headgate","open":true},`, 25) + `{}]}`)

// answer is the upstream server's handler.
func answer(w http.ResponseWriter, _ *http.Request) {
	h := w.Header()
	h.Set("Content-Type", "application/json")
	h.Set("Cache-Control", "private, max-age=60")
	h.Set("Etag", `"v1-7"`)
	_, _ = w.Write(body) // If the client has gone, nobody is left to tell.
}

// serve serves until the context ends.
func serve(ctx context.Context, l net.Listener, h http.Handler) error {
	server := &http.Server{Handler: h, ReadHeaderTimeout: 10 * time.Second, IdleTimeout: time.Minute}
	stop := context.AfterFunc(ctx, func() { _ = server.Close() }) // Serve returns the reason.
	defer stop()
	if err := server.Serve(l); !errors.Is(err, http.ErrServerClosed) {
		return fmt.Errorf("gatewaybench: %w", err)
	}
	return nil
}

// Serve runs a bare ReverseProxy before the upstream server, until the context
// ends. Its connections to that are bounded as the gateway's are, and it tells of
// the client as any proxy does.
func Serve(ctx context.Context, listen, upstream string) error {
	target, err := url.Parse(upstream)
	if err != nil || target.Host == "" {
		return fmt.Errorf("gatewaybench: the upstream server %q is not http://host:port", upstream)
	}
	var lc net.ListenConfig
	l, err := lc.Listen(ctx, "tcp", listen)
	if err != nil {
		return fmt.Errorf("gatewaybench: %w", err)
	}
	transport := &http.Transport{MaxIdleConnsPerHost: 256, IdleConnTimeout: 90 * time.Second, DisableCompression: true}
	defer transport.CloseIdleConnections()
	return serve(ctx, l, &httputil.ReverseProxy{
		Rewrite: func(r *httputil.ProxyRequest) {
			r.SetURL(target)
			r.SetXForwarded()
		},
		Transport:  transport,
		BufferPool: new(buffers),
	})
}

// buffers spare the proxy 32 KiB for each answer.
type buffers struct{ pool sync.Pool }

const bufferSize = 32 << 10

func (b *buffers) Get() []byte {
	if p, ok := b.pool.Get().(*[bufferSize]byte); ok {
		return p[:]
	}
	return new([bufferSize]byte)[:]
}

func (b *buffers) Put(p []byte) { b.pool.Put((*[bufferSize]byte)(p)) }
