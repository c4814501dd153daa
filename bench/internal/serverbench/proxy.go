package serverbench

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/http"
	"net/http/httputil"
	"net/url"
	"sync"
	"time"
)

// serveProxy serves as a bare ReverseProxy before the upstream server. Its connections to that are
// bounded as the gateway's are, and it tells of the client as any proxy does.
func serveProxy(ctx context.Context, l net.Listener, upstream string) error {
	target, err := url.Parse(upstream)
	if err != nil || target.Host == "" {
		return errors.Join(fmt.Errorf("the upstream server %q is not http://host:port", upstream), l.Close())
	}
	transport := &http.Transport{MaxIdleConnsPerHost: 256, IdleConnTimeout: 90 * time.Second, DisableCompression: true}
	defer transport.CloseIdleConnections()
	proxy := &httputil.ReverseProxy{
		Rewrite: func(r *httputil.ProxyRequest) {
			r.SetURL(target)
			r.SetXForwarded()
		},
		Transport:  transport,
		BufferPool: new(buffers),
	}
	return serveHTTP(ctx, l, proxy.ServeHTTP)
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
