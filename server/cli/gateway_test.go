package cli

import (
	"context"
	"fmt"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
)

// TestGateway passes requests on until its context ends.
func TestGateway(t *testing.T) {
	plainEnvironment(t)
	up := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) { fmt.Fprint(w, "shop") }))
	defer up.Close()
	ctx, stop := context.WithCancel(t.Context())
	defer stop()
	log := &watched{lines: make(chan string, 100)}
	ended := make(chan int, 1)
	go func() {
		ended <- Run(ctx, []string{"gateway", "--upstream", up.URL, "--config", "testdata/gateway-items.yml", "--listen", "127.0.0.1:0", "--admin-listen", "127.0.0.1:0", "--trust", "127.0.0.1,::1"}, log, log, "")
	}()
	admin := log.address(t)
	base := ""
	for line := range log.lines {
		if _, rest, ok := strings.Cut(line, "msg=\"passing requests on\" address="); ok {
			base = strings.TrimSpace(rest)
			break
		}
	}
	client := &http.Client{Transport: &http.Transport{DisableKeepAlives: true}}
	for i, want := range []int{200, 200, 429} {
		r, err := http.NewRequestWithContext(ctx, http.MethodGet, fmt.Sprint(base, "/items/", i), http.NoBody)
		if err != nil {
			t.Fatal(err)
		}
		r.Header.Set("X-Forwarded-For", "203.0.113.7")
		response, err := client.Do(r)
		if err != nil {
			t.Fatal(err)
		}
		_ = response.Body.Close()
		if response.StatusCode != want {
			t.Errorf("request %d: %s, want %d", i+1, response.Status, want)
		}
	}
	// The other address has the API, and the same counters.
	var out strings.Builder
	if code := Run(ctx, []string{"check", "items", "203.0.113.7", "--peek", "--server", admin}, &out, &out, ""); code != CodeNo {
		t.Errorf("exit code %d: %s", code, &out)
	}
	stop()
	if code := <-ended; code != CodeOK {
		t.Errorf("exit code %d", code)
	}
}
