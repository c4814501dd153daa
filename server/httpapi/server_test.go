package httpapi

import (
	"bufio"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"time"
)

// TestHostileConnections speaks raw HTTP to a server with short timeouts.
func TestHostileConnections(t *testing.T) {
	server := httptest.NewUnstartedServer(New(over(newFake(t)), Options{}))
	server.Config.ReadTimeout = 200 * time.Millisecond
	server.Config.MaxHeaderBytes = 4 << 10
	server.Start()
	defer server.Close()

	good := fmt.Sprintf(forUser, 1)
	head := "POST /v1/check HTTP/1.1\r\nHost: x\r\nContent-Type: application/json\r\n"
	tests := []struct {
		name, send string
		status     int
	}{
		{"good", head + fmt.Sprintf("Content-Length: %d\r\n\r\n%s", len(good), good), 200},
		{"good in chunks", head + fmt.Sprintf("Transfer-Encoding: chunked\r\n\r\n%x\r\n%s\r\n0\r\n\r\n", len(good), good), 200},
		{"a body that never comes", head + "Content-Length: 100\r\n\r\n{", 408},
		{"a chunk that never comes", head + "Transfer-Encoding: chunked\r\n\r\n40\r\n{", 408},
		{"a huge length", head + "Content-Length: 99999999999\r\n\r\n{", 413},
		{"endless chunks", head + "Transfer-Encoding: chunked\r\n\r\n10001\r\n" + strings.Repeat("x", 0x10001), 413},
		{"a length that is none", head + "Content-Length: ten\r\n\r\n{", 400},
		{"two lengths", head + "Content-Length: 1\r\nContent-Length: 2\r\n\r\n{}", 400},
		{"huge headers", head + "X: " + strings.Repeat("x", 16<<10) + "\r\n\r\n", 431},
		{"waits for leave, too large", head + "Expect: 100-continue\r\nContent-Length: 99999999\r\n\r\n", 413},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			ask := func() error {
				conn, err := net.Dial("tcp", server.Listener.Addr().String())
				if err != nil {
					return err
				}
				defer conn.Close()
				if err := conn.SetDeadline(time.Now().Add(2 * time.Minute)); err != nil {
					return err
				}
				if _, err := io.WriteString(conn, tt.send); err != nil {
					return err
				}
				r, err := http.ReadResponse(bufio.NewReader(conn), nil)
				if err != nil {
					return err
				}
				defer r.Body.Close()
				if body, _ := io.ReadAll(r.Body); r.StatusCode != tt.status {
					return fmt.Errorf("answered %d %s, want %d", r.StatusCode, body, tt.status)
				}
				return nil
			}
			// A machine that is slow at that moment makes the connection a slow one.
			for deadline := time.Now().Add(2 * time.Minute); ; {
				err := ask()
				if err == nil {
					break
				}
				if time.Now().After(deadline) {
					t.Fatal(err)
				}
			}
		})
	}
}

// TestLargeAnswer checks the framing of an answer that net/http does not hold
// back to count.
func TestLargeAnswer(t *testing.T) {
	server := httptest.NewServer(New(over(newFake(t)), Options{}))
	defer server.Close()
	checks := make([]string, 64)
	for i := range checks {
		checks[i] = fmt.Sprintf(`{"rule":"auth.createToken","key":"k%d"}`, i)
	}
	r, err := http.Post(server.URL+"/v1/check", "application/json", strings.NewReader(`{"checks":[`+strings.Join(checks, ",")+`]}`))
	if err != nil {
		t.Fatal(err)
	}
	defer r.Body.Close()
	body, err := io.ReadAll(r.Body)
	if err != nil || r.ContentLength != int64(len(body)) || strings.Count(string(body), `"rule"`) != 128 {
		t.Errorf("%d bytes, Content-Length %d, error %v", len(body), r.ContentLength, err)
	}
}

// TestInstant: what waits for others or holds much is not instant, and what is instant exists.
func TestInstant(t *testing.T) {
	h := New(over(newFake(t)), Options{})
	for path, want := range map[string]bool{
		"/v1/check": true, "/v1/peek": true, "/v1/refund": true, "/v1/reset": true, "/v1/reserve": true, "/v1/settle": true, "/v1/cancel": true,
		"/v1/permits/acquire": false, "/v1/explain": false, "/v1/reload": false, "/v1/clock": false, "/v1/auth": false, "/metrics": false, "/": false, "": false,
	} {
		if got := Instant(path); got != want {
			t.Errorf("%s: %t", path, got)
		}
		w := httptest.NewRecorder()
		if h.ServeHTTP(w, httptest.NewRequest(http.MethodPost, "http://x"+path, nil)); want && w.Code != http.StatusUnsupportedMediaType {
			t.Errorf("%s answers %d", path, w.Code)
		}
	}
}
