package overheadbench

import (
	"context"
	"net"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/headgate/headgate/bench/internal/servicebench"
)

// TestServe: the servers answer alike, but that a limited one tells what is left.
func TestServe(t *testing.T) {
	t.Parallel()
	for store, limited := range map[string]bool{Unlimited: false, InMemory: true} {
		l, err := net.Listen("tcp", "127.0.0.1:0")
		if err != nil {
			t.Fatal(err)
		}
		addr := l.Addr().String()
		if err := l.Close(); err != nil {
			t.Fatal(err)
		}
		ctx, stop := context.WithCancel(t.Context())
		ended := make(chan error, 1)
		go func() { ended <- Serve(ctx, addr, store) }()
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
	if err := Serve(t.Context(), "127.0.0.1:0", "nowhere://"); err == nil || !strings.Contains(err.Error(), "overheadbench") {
		t.Errorf("a store that there is not: %v", err)
	}
}

// TestOutcome: what Redis adds is held against the server without a limit.
func TestOutcome(t *testing.T) {
	t.Parallel()
	ms := func(n int) []time.Duration { return []time.Duration{time.Duration(n) * time.Millisecond} }
	o := &Outcome{Plan: servicebench.Short(), Saturated: 9000, Times: []Times{
		{bare, ms(1), ms(2), ms(3)}, {inMemory, ms(1), ms(3), ms(4)}, {inRedis, ms(2), ms(7), ms(9)},
	}}
	if bars := o.Bars(); len(bars) != 1 || bars[0].Got != 5 {
		t.Errorf("got %+v, want 5 ms", bars)
	}
	text := o.Markdown()
	for _, want := range []string{"requests a second over 64 connections, half of", "| limited, Redis        |       2.00", " no |"} {
		if !strings.Contains(text, want) {
			t.Errorf("%q is missing in\n%s", want, text)
		}
	}
}
