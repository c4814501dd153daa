package load

import (
	"encoding/binary"
	"io"
	"net/http"
	"net/http/httptest"
	"testing"
	"time"
)

// grpcEcho answers a method of gRPC with the statuses that it is told, in turn.
func grpcEcho(t *testing.T, statuses ...string) http.Handler {
	n := 0
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		body, err := io.ReadAll(r.Body)
		if err != nil || r.ProtoMajor != 2 || r.Header.Get("Content-Type") != "application/grpc" || r.Header.Get("Te") != "trailers" ||
			len(body) != 8 || binary.BigEndian.Uint32(body[1:]) != 3 || string(body[5:]) != "abc" {
			t.Errorf("got %s %v %q, %v", r.Proto, r.Header, body, err)
		}
		w.Header().Set("Content-Type", "application/grpc")
		w.Header().Set("Trailer", "Grpc-Status")
		status := statuses[n%len(statuses)]
		if n++; status == "0" {
			_, _ = w.Write(append([]byte{0, 0, 0, 0, 1}, 'x'))
		}
		w.Header().Set("Grpc-Status", status)
	})
}

// serve starts a server that speaks HTTP/1.1 and HTTP/2, with TLS or without.
func serve(t *testing.T, h http.Handler, secure bool) string {
	t.Helper()
	s := httptest.NewUnstartedServer(h)
	s.Config.Protocols = new(http.Protocols)
	s.Config.Protocols.SetHTTP1(true)
	s.Config.Protocols.SetHTTP2(true)
	s.Config.Protocols.SetUnencryptedHTTP2(true)
	s.EnableHTTP2 = true
	if secure {
		s.StartTLS()
	} else {
		s.Start()
	}
	t.Cleanup(s.Close)
	return s.URL
}

// TestProtocols: what was asked for is spoken, with TLS and without.
func TestProtocols(t *testing.T) {
	for _, secure := range []bool{false, true} {
		for _, two := range []bool{false, true} {
			url := serve(t, http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) {
				body, err := io.ReadAll(r.Body)
				if r.ProtoMajor == 2 != two || r.TLS != nil != secure || string(body) != "text" || err != nil {
					t.Errorf("got %s, body %q, %v", r.Proto, body, err)
				}
			}), secure)
			c, err := New(t.Context(), Options{
				Targets: []*Target{target(t, Request{URL: url, Method: "POST", Body: []byte("text")})},
				HTTP2:   two, Insecure: true, Timeout: time.Minute,
			})
			if err != nil {
				t.Fatal(err)
			}
			m, err := c.Run(t.Context(), Shape{Rate: 100, For: time.Second}, nil)
			if err != nil {
				t.Fatal(err)
			}
			if m.Status["200"] != 100 {
				t.Errorf("TLS %t, HTTP/2 %t: %v, %v", secure, two, m.Status, m.Errors)
			}
			c.Close()
		}
	}
}

// TestCertificate: a certificate that nobody has vouched for is refused.
func TestCertificate(t *testing.T) {
	url := serve(t, http.NotFoundHandler(), true)
	if _, err := New(t.Context(), Options{Targets: []*Target{target(t, Request{URL: url})}}); err == nil {
		t.Error("the certificate is taken")
	}
}

// TestGRPC: the statuses of gRPC are counted, in trailers and in headers.
func TestGRPC(t *testing.T) {
	url := serve(t, grpcEcho(t, "0", "0", "8", "14"), false)
	c, err := New(t.Context(), Options{Targets: []*Target{target(t, Request{URL: url + "/pkg.Service/Method", GRPC: true, Body: []byte("abc")})}, Connections: 1, Timeout: time.Minute})
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close()
	m, err := c.Run(t.Context(), Shape{Rate: 200, For: time.Second}, nil)
	if err != nil {
		t.Fatal(err)
	}
	if m.Status["OK"] != 100 || m.Status["RESOURCE_EXHAUSTED"] != 50 || m.Status["UNAVAILABLE"] != 50 || m.Limiter == nil || m.Limiter.Denied != 50 || m.ErrorShare != 0.5 {
		t.Errorf("got %v, %v, %+v", m.Status, m.Errors, m.Limiter)
	}
}

// TestNotGRPC: an answer of something else is none.
func TestNotGRPC(t *testing.T) {
	url := serve(t, http.HandlerFunc(func(http.ResponseWriter, *http.Request) {}), false)
	c, err := New(t.Context(), Options{Targets: []*Target{target(t, Request{URL: url + "/pkg.Service/Method", GRPC: true})}, Timeout: time.Minute})
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close()
	m, err := c.Run(t.Context(), Shape{Rate: 10, For: time.Second}, nil)
	if err != nil {
		t.Fatal(err)
	}
	if m.Errors[noHTTP] != 10 {
		t.Errorf("got %v, %v", m.Status, m.Errors)
	}
}
