package serverbench

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httputil"
	"net/url"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/headgate/headgate"
	"github.com/headgate/headgate/httplimit"
	"github.com/headgate/headgate/store/memory"
	"github.com/headgate/headgate/store/redis"
)

// Echo runs one of the servers that are compared with Headgate's, until the context ends. The
// handler is
//
//   - "bytes", which answers a request over HTTP with its body,
//   - "json", which decodes the body of a check and encodes it again,
//   - "grpc", which does that with messages of gRPC,
//   - "proxy", a bare ReverseProxy before the server at the URL upstream, or
//   - "limited", which answers with a document behind the middleware, with the counters in the
//     store upstream: "memory", the URL of a Redis, or "none" for no middleware, or
//   - "scarce", which is that with a limit of 10 requests in 5 seconds.
func Echo(ctx context.Context, listen, handler, upstream string) error {
	var lc net.ListenConfig
	l, err := lc.Listen(ctx, "tcp", listen)
	if err != nil {
		return fmt.Errorf("serverbench: %w", err)
	}
	switch handler {
	case "bytes", "json":
		mux := http.NewServeMux()
		mux.HandleFunc("POST /v1/check", map[string]http.HandlerFunc{"bytes": echoBytes, "json": echoJSON}[handler])
		err = serveHTTP(ctx, l, mux.ServeHTTP)
	case "grpc":
		err = serveGRPC(ctx, l)
	case "proxy":
		err = serveProxy(ctx, l, upstream)
	case "limited":
		err = serveLimited(ctx, l, upstream, httplimit.Limit(httplimit.ByHeader("X-API-Key"), headgate.MustRule("bench", headgate.PerHour(1_000_000))))
	case "scarce":
		ten := headgate.Limit{Algorithm: headgate.SlidingWindow, Count: 10, Period: 5 * time.Second}
		err = serveLimited(ctx, l, upstream, httplimit.Limit(httplimit.Everyone(), headgate.MustRule("bench", ten)))
	default:
		err = errors.Join(fmt.Errorf("there is no handler %q", handler), l.Close())
	}
	if err != nil {
		return fmt.Errorf("serverbench: %w", err)
	}
	return nil
}

// serveHTTP serves until the context ends.
func serveHTTP(ctx context.Context, l net.Listener, h http.HandlerFunc) error {
	server := &http.Server{Handler: h, ReadHeaderTimeout: 10 * time.Second, IdleTimeout: time.Minute}
	stop := context.AfterFunc(ctx, func() { _ = server.Close() }) // Serve returns the reason
	defer stop()
	if err := server.Serve(l); !errors.Is(err, http.ErrServerClosed) {
		return err
	}
	return nil
}

// maxBody bounds what the echo servers read, as any server must.
const maxBody = 64 << 10

// echoBytes answers with the request's body as it came.
func echoBytes(w http.ResponseWriter, r *http.Request) {
	body, err := io.ReadAll(http.MaxBytesReader(w, r.Body, maxBody))
	if err != nil {
		http.Error(w, err.Error(), http.StatusBadRequest)
		return
	}
	answer(w, body)
}

// echoJSON decodes the body into the request's type and answers with that, encoded
// again: what any JSON service does before and after its work.
func echoJSON(w http.ResponseWriter, r *http.Request) {
	body, err := io.ReadAll(http.MaxBytesReader(w, r.Body, maxBody))
	var request checkRequest
	if err == nil {
		err = json.Unmarshal(body, &request)
	}
	if err != nil {
		http.Error(w, err.Error(), http.StatusBadRequest)
		return
	}
	if body, err = json.Marshal(&request); err != nil {
		http.Error(w, err.Error(), http.StatusInternalServerError)
		return
	}
	answer(w, body)
}

func answer(w http.ResponseWriter, body []byte) {
	w.Header().Set("Content-Type", "application/json")
	w.Header().Set("Content-Length", strconv.Itoa(len(body)))
	_, _ = w.Write(body) // if the client has gone, nobody is left to tell
}

// documentBody is a document of a usual size.
var documentBody = []byte(`{"items":[` + strings.Repeat(`{"id":7,"name":"headgate","open":true},`, 25) + `{}]}`)

// document answers with the document, as a server does whose answers are cached.
func document(w http.ResponseWriter, _ *http.Request) {
	w.Header().Set("Cache-Control", "private, max-age=60")
	w.Header().Set("Etag", `"v1-7"`)
	answer(w, documentBody)
}

// The stores of the handler "limited", besides the URL of a Redis.
const (
	unlimited = "none"
	inMemory  = "memory"
)

// serveDocument serves the document in this process, for proxies to ask for, until stop is called.
func serveDocument(ctx context.Context) (addr string, stop func(), err error) {
	var lc net.ListenConfig
	l, err := lc.Listen(ctx, "tcp", "127.0.0.1:0")
	if err != nil {
		return "", nil, fmt.Errorf("serverbench: %w", err)
	}
	ctx, cancel := context.WithCancel(ctx)
	var serving sync.WaitGroup
	serving.Go(func() { _ = serveHTTP(ctx, l, document) }) // whoever asks it would notice
	return l.Addr().String(), func() {
		cancel()
		serving.Wait()
	}, nil
}

// serveLimited serves the document with a limit.
func serveLimited(ctx context.Context, l net.Listener, store string, rule httplimit.Option) error {
	handler := http.Handler(http.HandlerFunc(document))
	if store != unlimited {
		counters := headgate.Store(memory.New())
		if store != inMemory {
			s, err := redis.Open(ctx, store, redis.Timeout(time.Second))
			if err != nil {
				return errors.Join(err, l.Close())
			}
			defer s.Close()
			counters = s
		}
		limit, err := httplimit.New(counters, rule)
		if err != nil {
			return errors.Join(err, l.Close())
		}
		handler = limit(handler)
	}
	return serveHTTP(ctx, l, handler.ServeHTTP)
}

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
