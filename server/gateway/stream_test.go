package gateway

import (
	"bufio"
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"net/http/httptrace"
	"net/textproto"
	"reflect"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/headgate/headgate/config/gatewayfile"
	"github.com/headgate/headgate/policy"
)

// plainH2 is a client that speaks HTTP/2 without TLS.
func plainH2(t *testing.T) *http.Client {
	t.Helper()
	protocols := new(http.Protocols)
	protocols.SetUnencryptedHTTP2(true)
	transport := &http.Transport{Protocols: protocols}
	t.Cleanup(transport.CloseIdleConnections)
	return &http.Client{Transport: transport, Timeout: within}
}

// plainH2Server is an upstream server that speaks HTTP/2 without TLS.
func plainH2Server(t *testing.T, h http.HandlerFunc) string {
	t.Helper()
	s := httptest.NewUnstartedServer(h)
	s.Config.Protocols = new(http.Protocols)
	s.Config.Protocols.SetHTTP1(true)
	s.Config.Protocols.SetUnencryptedHTTP2(true)
	s.Start()
	t.Cleanup(func() {
		s.CloseClientConnections()
		s.Close()
	})
	return strings.Replace(s.URL, "http://", "h2c://", 1)
}

// each runs a test with both versions on either side.
func each(t *testing.T, h http.HandlerFunc, d func(testing.TB) *Options, test func(t *testing.T, c *http.Client, g *fixture)) {
	t.Helper()
	for _, tt := range []struct {
		name   string
		client func(*testing.T) *http.Client
		h2     bool
	}{
		{"HTTP1 to HTTP1", client, false},
		{"HTTP1 to h2c", client, true},
		{"h2c to HTTP1", plainH2, false},
		{"h2c to h2c", plainH2, true},
	} {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			o := d(t)
			var target string
			if tt.h2 {
				target = plainH2Server(t, h)
			} else {
				target = upstream(t, h).URL
			}
			o.Upstreams = []gatewayfile.Upstream{upstreamOf(target)}
			test(t, tt.client(t), serveGateway(t, decider(t, []policy.Rule{perKey(100)}), *o))
		})
	}
}

func plain(testing.TB) *Options { return new(Options) }

// Server-sent events reach the client one by one, and the upstream server is told
// when the client has gone.
func TestEvents(t *testing.T) {
	t.Parallel()
	// Each client has channels of its own, which its request names.
	type client struct{ read, gone chan struct{} }
	var clients sync.Map
	each(t, func(w http.ResponseWriter, r *http.Request) {
		its, _ := clients.Load(r.Header.Get("X-Client"))
		w.Header().Set("Content-Type", "text/event-stream")
		for i := range 3 {
			fmt.Fprintf(w, "data: %d\n\n", i)
			w.(http.Flusher).Flush()
			select {
			case <-its.(client).read: // the client has read it
			case <-r.Context().Done():
				return
			}
		}
		<-r.Context().Done()
		close(its.(client).gone)
	}, plain, func(t *testing.T, c *http.Client, g *fixture) {
		ctx, cancel := context.WithCancel(t.Context())
		defer cancel()
		it := client{make(chan struct{}), make(chan struct{})}
		clients.Store(t.Name(), it)
		res := send(ctx, t, c, http.MethodGet, g.url+"/", http.NoBody, "X-Client: "+t.Name())
		defer res.Body.Close()
		lines := bufio.NewScanner(res.Body)
		for i := range 3 {
			lines.Scan()
			if want := fmt.Sprint("data: ", i); lines.Text() != want {
				t.Fatalf("event %d is %q, want %q", i, lines.Text(), want)
			}
			lines.Scan()
			select {
			case it.read <- struct{}{}:
			case <-time.After(within):
				t.Fatal("the upstream server does not wait for it to be read")
			}
		}
		cancel()
		select {
		case <-it.gone:
		case <-time.After(within):
			t.Error("the upstream server does not hear that the client has gone")
		}
	})
}

// Server-sent events are passed on at once even if the server has said how long they are.
func TestEventsWithALength(t *testing.T) {
	t.Parallel()
	events := []string{"data: 0\n\n", "data: 1\n\n"}
	each(t, func(w http.ResponseWriter, r *http.Request) {
		w.Header().Set("Content-Type", "Text/Event-Stream; charset=utf-8")
		w.Header().Set("Content-Length", strconv.Itoa(len(events[0]+events[1])))
		_, _ = io.WriteString(w, events[0])
		w.(http.Flusher).Flush()
		<-r.Context().Done() // the client has read the first one and gone
	}, plain, func(t *testing.T, c *http.Client, g *fixture) {
		ctx, cancel := context.WithCancel(t.Context())
		defer cancel()
		res := send(ctx, t, c, http.MethodGet, g.url+"/", http.NoBody)
		defer res.Body.Close()
		got := make([]byte, len(events[0]))
		if _, err := io.ReadFull(res.Body, got); err != nil || string(got) != events[0] {
			t.Fatalf("the first event is %q, %v", got, err)
		}
		if want := int64(len(events[0] + events[1])); res.ContentLength != want {
			t.Errorf("the length is %d, want %d", res.ContentLength, want)
		}
	})
}

// Bodies go both ways at the same time, byte by byte, with trailers at the end.
func TestBothWays(t *testing.T) {
	t.Parallel()
	each(t, func(w http.ResponseWriter, r *http.Request) {
		if err := http.NewResponseController(w).EnableFullDuplex(); err != nil {
			t.Error(err)
		}
		w.Header().Set("Trailer", "X-Sum")
		w.WriteHeader(http.StatusOK)
		flush := http.NewResponseController(w).Flush
		if err := flush(); err != nil {
			t.Error(err)
		}
		sum := 0
		for b := make([]byte, 100); ; {
			n, err := r.Body.Read(b)
			sum += n
			_, _ = w.Write(b[:n])
			if err := flush(); err != nil {
				t.Error(err)
			}
			if err != nil {
				break
			}
		}
		w.Header().Set("X-Sum", fmt.Sprint(sum, " ", r.Trailer.Get("X-Mine")))
		w.Header().Set(http.TrailerPrefix+"X-Late", "late")
	}, plain, func(t *testing.T, c *http.Client, g *fixture) {
		body, write := io.Pipe()
		r, err := http.NewRequestWithContext(t.Context(), http.MethodPost, g.url+"/", body)
		if err != nil {
			t.Fatal(err)
		}
		r.Header.Set("X-API-Key", "k")
		r.Trailer = http.Header{"X-Mine": {""}}
		res, err := c.Do(r)
		if err != nil {
			t.Fatal(err)
		}
		defer res.Body.Close()
		if res.Header.Get("X-RateLimit-Remaining") != "99" {
			t.Errorf("the headers are %v", res.Header)
		}
		for i := range 5 {
			text := fmt.Sprint("part ", i)
			if _, err := io.WriteString(write, text); err != nil {
				t.Fatal(err)
			}
			b := make([]byte, len(text))
			if _, err := io.ReadFull(res.Body, b); err != nil || string(b) != text {
				t.Fatalf("part %d comes back as %q, %v", i, b, err)
			}
		}
		r.Trailer.Set("X-Mine", "mine")
		if err := write.Close(); err != nil {
			t.Fatal(err)
		}
		rest, err := io.ReadAll(res.Body)
		if err != nil || len(rest) != 0 {
			t.Fatalf("at the end comes %q, %v", rest, err)
		}
		if res.Trailer.Get("X-Sum") != "30 mine" || res.Trailer.Get("X-Late") != "late" {
			t.Errorf("the trailers are %v", res.Trailer)
		}
	})
}

// A large body passes through without being held as a whole.
func TestLargeBodies(t *testing.T) {
	t.Parallel()
	const size = 8 << 20
	each(t, func(w http.ResponseWriter, r *http.Request) {
		n, err := io.Copy(io.Discard, r.Body)
		if n != size || err != nil {
			t.Errorf("the upstream server got %d bytes, %v", n, err)
		}
		w.Header().Set("Content-Length", fmt.Sprint(size))
		_, _ = io.Copy(w, io.LimitReader(zeros{}, size))
	}, plain, func(t *testing.T, c *http.Client, g *fixture) {
		r, err := http.NewRequestWithContext(t.Context(), http.MethodPut, g.url+"/", io.LimitReader(zeros{}, size))
		if err != nil {
			t.Fatal(err)
		}
		r.ContentLength = size
		res, err := c.Do(r)
		if err != nil {
			t.Fatal(err)
		}
		defer res.Body.Close()
		if n, err := io.Copy(io.Discard, res.Body); n != size || err != nil {
			t.Errorf("the client got %d bytes, %v", n, err)
		}
	})
}

type zeros struct{}

func (zeros) Read(p []byte) (int, error) {
	clear(p)
	return len(p), nil
}

// An upload that the client gives up is given up, and one that the upstream server
// does not want ends at once with its answer.
func TestUploadThatIsGivenUp(t *testing.T) {
	t.Parallel()
	var began, ended sync.Map // channels by the name of the test
	each(t, func(w http.ResponseWriter, r *http.Request) {
		if r.URL.Path == "/unwanted" {
			_ = http.NewResponseController(w).EnableFullDuplex() // else it waits for the body
			w.WriteHeader(http.StatusForbidden)
			return
		}
		b, _ := began.Load(r.Header.Get("X-Test"))
		e, _ := ended.Load(r.Header.Get("X-Test"))
		close(b.(chan struct{}))
		_, err := io.Copy(io.Discard, r.Body)
		e.(chan error) <- err
	}, plain, func(t *testing.T, c *http.Client, g *fixture) {
		came, over := make(chan struct{}), make(chan error, 1)
		began.Store(t.Name(), came)
		ended.Store(t.Name(), over)
		body, write := io.Pipe()
		ctx, cancel := context.WithCancel(t.Context())
		r, err := http.NewRequestWithContext(ctx, http.MethodPost, g.url+"/", body)
		if err != nil {
			t.Fatal(err)
		}
		r.Header.Set("X-Test", t.Name())
		go func() {
			_, _ = io.WriteString(write, "some of it")
			<-came
			cancel()
			_ = write.CloseWithError(context.Canceled) // else the client waits for it
		}()
		if _, err := c.Do(r); !errors.Is(err, context.Canceled) {
			t.Errorf("the request ended with %v", err)
		}
		select {
		case err := <-over:
			if err == nil {
				t.Error("the upstream server takes half an upload for a whole one")
			}
		case <-time.After(within):
			t.Error("the upstream server does not hear that the client has gone")
		}

		body, write = io.Pipe()
		defer write.Close()
		time.AfterFunc(within, func() { _ = write.Close() }) // else the client waits for it, if it gets no answer
		res, err := c.Post(g.url+"/unwanted", "text/plain", body)
		if err != nil {
			t.Fatal(err)
		}
		res.Body.Close()
		if res.StatusCode != http.StatusForbidden {
			t.Errorf("the unwanted upload is answered with %s", res.Status)
		}
	})
}

// An answer that breaks off is not taken for a whole one.
func TestAnswerThatBreaksOff(t *testing.T) {
	t.Parallel()
	each(t, func(w http.ResponseWriter, _ *http.Request) {
		_, _ = io.WriteString(w, "half an ans")
		w.(http.Flusher).Flush()
		panic(http.ErrAbortHandler)
	}, plain, func(t *testing.T, c *http.Client, g *fixture) {
		res, err := c.Get(g.url + "/")
		if err != nil {
			t.Fatal(err)
		}
		defer res.Body.Close()
		if text, err := io.ReadAll(res.Body); err == nil {
			t.Errorf("%q is taken for a whole answer", text)
		}
		eventually(t, "the request has ended", func() bool {
			return g.counts.inFlight.Load() == 0 && g.current.Load().pools[0].targets[0].inFlight.Load() == 0
		})
	})
}

// An answer that pauses for too long is broken off.
func TestAnswerThatPauses(t *testing.T) {
	t.Parallel()
	stalled := make(chan struct{}, 1)
	up := upstream(t, func(w http.ResponseWriter, r *http.Request) {
		_, _ = io.WriteString(w, "and then")
		w.(http.Flusher).Flush()
		<-r.Context().Done()
		select {
		case stalled <- struct{}{}:
		default:
		}
	})
	o := to(up.URL)
	o.Upstreams[0].Timeouts.Idle = 50 * time.Millisecond
	g := serveGateway(t, decider(t, nil), o)
	sooner(t, "an answer that begins", func() error {
		res, err := client(t).Get(g.url + "/")
		if err != nil {
			return err
		}
		defer res.Body.Close()
		text, err := io.ReadAll(res.Body)
		switch {
		case res.StatusCode != http.StatusOK:
			return fmt.Errorf("%s", res.Status)
		case err == nil:
			t.Errorf("%q is taken for a whole answer", text)
		}
		return nil
	})
	next(t, stalled)
}

func TestContinue(t *testing.T) {
	t.Parallel()
	up := upstream(t, func(w http.ResponseWriter, r *http.Request) {
		if r.URL.Path == "/no" {
			w.WriteHeader(http.StatusExpectationFailed)
			return
		}
		text, _ := io.ReadAll(r.Body)
		_, _ = w.Write(text)
	})
	g := serveGateway(t, decider(t, []policy.Rule{perKey(1)}), to(up.URL))
	send := func(path, key string) (*bufio.Reader, net.Conn) {
		c := dial(t, g.addr)
		fmt.Fprintf(c, "POST %s HTTP/1.1\r\nHost: h\r\nX-API-Key: %s\r\nExpect: 100-continue\r\nContent-Length: 5\r\n\r\n", path, key)
		return bufio.NewReader(c), c
	}
	status := func(r *bufio.Reader) string {
		line, err := textproto.NewReader(r).ReadLine()
		if err != nil {
			t.Fatal(err)
		}
		return line
	}
	r, c := send("/yes", "a")
	if got := status(r); got != "HTTP/1.1 100 Continue" {
		t.Fatalf("the gateway answers %q", got)
	}
	fmt.Fprint(c, "12345")
	_ = status(r) // the empty line
	res, err := http.ReadResponse(r, nil)
	if err != nil {
		t.Fatal(err)
	}
	if text, _ := io.ReadAll(res.Body); string(text) != "12345" || res.StatusCode != 200 {
		t.Errorf("the answer is %s %q", res.Status, text)
	}
	// Whoever is not to send the body is told so before, unless the upstream server
	// takes its time to say so.
	const notSent = "HTTP/1.1 417 Expectation Failed"
	sooner(t, notSent, func() error {
		r, _ := send("/no", rand.Text())
		if got := status(r); got != notSent {
			return fmt.Errorf("the gateway answers %q", got)
		}
		return nil
	})
	r, _ = send("/yes", "a")
	if got := status(r); got != "HTTP/1.1 429 Too Many Requests" {
		t.Errorf("the gateway answers %q", got)
	}
}

// Informational answers are passed on, and keep nothing of the gateway's headers.
func TestEarlyHints(t *testing.T) {
	t.Parallel()
	each(t, func(w http.ResponseWriter, r *http.Request) {
		w.Header().Set("Link", "</style.css>; rel=preload")
		w.WriteHeader(http.StatusEarlyHints)
		hello(w, r)
	}, plain, func(t *testing.T, c *http.Client, g *fixture) {
		hints := make(chan string, 1)
		ctx := httptrace.WithClientTrace(t.Context(), &httptrace.ClientTrace{Got1xxResponse: func(code int, h textproto.MIMEHeader) error {
			hints <- fmt.Sprint(code, " ", h.Get("Link"))
			return nil
		}})
		r, err := http.NewRequestWithContext(ctx, http.MethodGet, g.url+"/", http.NoBody)
		if err != nil {
			t.Fatal(err)
		}
		r.Header.Set("X-API-Key", "k")
		res, err := c.Do(r)
		if err != nil {
			t.Fatal(err)
		}
		res.Body.Close()
		if got := next(t, hints); got != "103 </style.css>; rel=preload" {
			t.Errorf("the hint is %q", got)
		}
		if res.StatusCode != 200 || res.Header.Get("X-RateLimit-Remaining") != "99" {
			t.Errorf("the answer is %s with %v", res.Status, res.Header)
		}
	})
}

// Over TLS the gateway speaks HTTP/2 to those who do.
func TestTLS(t *testing.T) {
	t.Parallel()
	up := upstream(t, echo)
	g := serveTLS(t, decider(t, nil), to(up.URL))
	for _, h2 := range []bool{true, false} {
		c := &http.Client{Timeout: within, Transport: &http.Transport{ForceAttemptHTTP2: h2, TLSClientConfig: anyCertificate()}}
		defer c.CloseIdleConnections()
		a := get(t, c, g.url+"/")
		a.saw(t, "X-Forwarded-Proto: https")
		if want := map[bool]int{true: 2, false: 1}[h2]; a.ProtoMajor != want {
			t.Errorf("the gateway speaks %s, want version %d", a.Proto, want)
		}
	}
}

// What is removed from answers does not come behind them either, announced or not.
func TestTrailersAreRemoved(t *testing.T) {
	t.Parallel()
	each(t, func(w http.ResponseWriter, r *http.Request) {
		w.Header().Set("Trailer", "X-Secret, X-Sum")
		if r.URL.Path == "/empty" { // over HTTP/2 it can have trailers all the same
			w.Header().Set("Content-Length", "0")
		} else {
			hello(w, r)
		}
		_ = http.NewResponseController(w).Flush()
		w.Header().Set("X-Secret", "1")
		w.Header().Set("X-Sum", "2")
		w.Header().Set(http.TrailerPrefix+"X-Late-Secret", "3")
		w.Header().Set(http.TrailerPrefix+"X-Late", "4")
	}, func(testing.TB) *Options {
		return &Options{
			Settings: gatewayfile.Settings{
				Routes:   []gatewayfile.Route{{Pattern: "/", Response: gatewayfile.Headers{Remove: []string{"X-Late-Secret"}}}},
				Response: gatewayfile.Headers{Remove: []string{"X-Secret"}},
			},
		}
	}, func(t *testing.T, c *http.Client, g *fixture) {
		a := get(t, c, g.url+"/", "X-API-Key: k")
		if want := (http.Header{"X-Sum": {"2"}, "X-Late": {"4"}}); !reflect.DeepEqual(a.Trailer, want) {
			t.Errorf("the trailers are %v, want %v", a.Trailer, want)
		}
		if strings.Contains(a.Header.Get("Trailer"), "Secret") {
			t.Errorf("%s is announced", a.Header.Get("Trailer"))
		}
		if a := get(t, c, g.url+"/empty", "X-API-Key: k"); a.Trailer.Get("X-Secret")+a.Trailer.Get("X-Late-Secret") != "" {
			t.Errorf("the trailers of nothing are %v", a.Trailer)
		}
	})
}

// Trailers that belong to the connection stay on it, announced or not.
func TestTrailersOfTheConnection(t *testing.T) {
	t.Parallel()
	up := upstream(t, func(w http.ResponseWriter, _ *http.Request) {
		conn, _, err := http.NewResponseController(w).Hijack()
		if err != nil {
			t.Error(err)
			return
		}
		defer conn.Close()
		_, _ = io.WriteString(conn, "HTTP/1.1 200 OK\r\nTrailer: Upgrade\r\nTransfer-Encoding: chunked\r\n\r\n1\r\nx\r\n0\r\n"+
			"Connection: X-Late\r\nUpgrade: h2c\r\nKeep-Alive: 1\r\nContent-Length: 7\r\nTransfer-Encoding: gzip\r\nTrailer: a\r\nX-Late: late\r\n\r\n")
	})
	g := serveGateway(t, decider(t, nil), to(up.URL))
	a := get(t, client(t), g.url+"/")
	if want := (http.Header{"X-Late": {"late"}}); a.text != "x" || !reflect.DeepEqual(a.Trailer, want) {
		t.Errorf("the answer is %q, and its trailers are %v, want %v", a.text, a.Trailer, want)
	}
}
