package cli

import (
	"context"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
)

// TestGateway passes requests on until its context ends.
func TestGateway(t *testing.T) {
	plainEnvironment(t)
	t.Setenv("GOGC", "")
	t.Setenv("GOMEMLIMIT", "")
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
	// A small heap may grow, and operators can see by how much.
	if text := get(t, admin+"/metrics"); !strings.Contains(text, "\nheadgate_heap_reserve_bytes 1.6777216e+07\n") {
		t.Errorf("the metrics lack the heap's reserve:\n%s", text)
	}
	stop()
	if code := <-ended; code != CodeOK {
		t.Errorf("exit code %d", code)
	}
}

// get is what is there.
func get(t *testing.T, url string) string {
	t.Helper()
	r, err := http.NewRequestWithContext(t.Context(), http.MethodGet, url, http.NoBody)
	if err != nil {
		t.Fatal(err)
	}
	client := &http.Client{Transport: &http.Transport{DisableKeepAlives: true}}
	response, err := client.Do(r)
	if err != nil {
		t.Fatal(err)
	}
	defer response.Body.Close()
	text, err := io.ReadAll(response.Body)
	if err != nil {
		t.Fatal(err)
	}
	return string(text)
}

// TestHeapReserve: whoever has told the Go runtime when to collect has the last word.
func TestHeapReserve(t *testing.T) {
	for _, tt := range []struct {
		percent, limit string
		want           int
	}{{"", "", 16 << 20}, {"100", "", 0}, {"off", "", 0}, {"", "1GiB", 0}, {"50", "1GiB", 0}} {
		t.Setenv("GOGC", tt.percent)
		t.Setenv("GOMEMLIMIT", tt.limit)
		if got := heapReserve(); got != tt.want {
			t.Errorf("with GOGC %q and GOMEMLIMIT %q it is %d bytes, want %d", tt.percent, tt.limit, got, tt.want)
		}
	}
}

// TestGatewayFlags: what is wrong with several flags is told at once, those of the
// gateway among them.
func TestGatewayFlags(t *testing.T) {
	plainEnvironment(t)
	var out strings.Builder
	code := Run(t.Context(), []string{"gateway", "--listen", "nowhere", "--upstream", "ftp://shop", "--trust", "everybody", "--memory=-1", "--drain-delay", "soon", "--gateway", "absent.yml"}, &out, &out, "")
	if code != CodeUsage {
		t.Errorf("exit code %d", code)
	}
	for _, want := range []string{`"nowhere"`, `"ftp://shop"`, `"everybody"`, "memory: is -1", `--drain-delay is "soon"`} {
		if !strings.Contains(out.String(), want) {
			t.Errorf("the text lacks %s:\n%s", want, &out)
		}
	}
}
