package serverbench

import (
	"context"
	"math"
	"math/rand/v2"
	"net"
	"net/http"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/headgate/headgate/bench/internal/measure"
)

// unused is an address that nobody serves on. Its port is below those that systems hand out, which
// anybody's connection may have taken before the server listens there.
func unused(t *testing.T) string {
	t.Helper()
	for range 100 {
		l, err := net.Listen("tcp", net.JoinHostPort("127.0.0.1", strconv.Itoa(10_000+rand.IntN(10_000))))
		if err == nil {
			defer l.Close()
			return l.Addr().String()
		}
	}
	t.Fatal("none of 100 ports is free")
	return ""
}

// TestLimited: the servers answer alike, but that a limited one tells what is left.
func TestLimited(t *testing.T) {
	t.Parallel()
	for store, limited := range map[string]bool{unlimited: false, inMemory: true} {
		addr := unused(t)
		ctx, stop := context.WithCancel(t.Context())
		ended := make(chan error, 1)
		go func() { ended <- Echo(ctx, addr, "limited", store) }()
		r, err := http.NewRequestWithContext(ctx, http.MethodGet, "http://"+addr+"/items/1", nil)
		if err != nil {
			t.Fatal(err)
		}
		r.Header.Set("X-API-Key", "k")
		answer, err := http.DefaultClient.Do(r)
		for end := time.Now().Add(30 * time.Second); err != nil && time.Now().Before(end); answer, err = http.DefaultClient.Do(r) {
			time.Sleep(time.Millisecond)
		}
		if err != nil {
			t.Fatal(err)
		}
		if got := answer.Header.Get("X-RateLimit-Remaining") != ""; answer.StatusCode != http.StatusOK || got != limited {
			t.Errorf("%s: status %d, headers %v", store, answer.StatusCode, answer.Header)
		}
		_ = answer.Body.Close()
		stop()
		if err := <-ended; err != nil {
			t.Error(err)
		}
	}
	if err := Echo(t.Context(), "127.0.0.1:0", "limited", "nowhere://"); err == nil || !strings.Contains(err.Error(), "serverbench") {
		t.Errorf("a store that there is not: %v", err)
	}
}

// TestOverheadText: what Redis adds is compared with the server without a limit.
func TestOverheadText(t *testing.T) {
	t.Parallel()
	text := overheadText(measure.Plan{Callers: 64}, measure.Rows{
		timed("no limit", 2*time.Millisecond), timed("limited, memory store", 3*time.Millisecond), timed("limited, Redis", 7*time.Millisecond),
	}, 4500)
	if len(text.Bars) != 1 || math.Abs(text.Bars[0].Got-5) > 0.02 {
		t.Errorf("got %+v, want 5 ms", text.Bars)
	}
	for _, want := range []string{"requests a second over 64 connections, half of", "| limited, Redis        |       7.00", "- a limit in Redis: added to the 99th percentile at half load, ms: 5.00, must be ≤ 1.00"} {
		if !strings.Contains(text.String(), want) {
			t.Errorf("%q is missing in\n%s", want, text)
		}
	}
}
