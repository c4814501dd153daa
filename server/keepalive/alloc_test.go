//go:build !race

package keepalive

import (
	"net/http"
	"testing"
)

// TestAllocations bounds what a request on standby allocates: one string for all that has arrived.
// The race detector empties pools at random, so this is for builds without it.
func TestAllocations(t *testing.T) {
	buf := make([]byte, 100)
	s := New(&http.Server{Handler: http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		n, _ := r.Body.Read(buf)
		w.Header()["Content-Type"] = r.Header["Content-Type"]
		_, _ = w.Write(buf[:n])
	})}, isInstant)
	c := &conn{server: s}
	data := []byte(post(`{"checks":[{"rule":"api","key":"k"}]}`, "User-Agent: x/1.0", "Accept: */*", "Accept-Encoding: gzip", "Connection: keep-alive"))
	var out []byte
	if n := testing.AllocsPerRun(200, func() {
		var stay bool
		if out, stay = c.Arrived(data, out[:0]); !stay {
			t.Fatal("it was left to net/http")
		}
	}); n > 1 {
		t.Errorf("%v allocations, want 1", n)
	}
}
