package app

import (
	"errors"
	"net/http"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/headgate/headgate"
	headgatev1 "github.com/headgate/headgate/api/headgate/v1"
	"github.com/headgate/headgate/client"
)

// client asks the gRPC door.
func (r *running) client(t *testing.T, options ...client.Option) *client.Client {
	t.Helper()
	c, err := client.New(r.Addr("grpc").String(), append([]client.Option{client.Plaintext(), client.Timeout(client.MaxTimeout)}, options...)...)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = c.Close() })
	// Calls fail at once while a connection is slow to come about.
	for deadline := time.Now().Add(within); ; time.Sleep(time.Millisecond) {
		if err := c.Ping(t.Context()); err == nil {
			return c
		} else if time.Now().After(deadline) {
			t.Fatal(err)
		}
	}
}

// TestGRPCAPI: both ways of asking reach the counters of the HTTP API.
func TestGRPCAPI(t *testing.T) {
	r := start(t, Settings{GRPCListen: "127.0.0.1:0"})
	c := r.client(t)
	rule := r.Policy().Rules()[0]
	name := rule.Name
	v, err := c.Check(t.Context(), &headgatev1.CheckRequest{Checks: []*headgatev1.Check{{Rule: name, Key: "user42"}}})
	if err != nil || !v.GetAllowed() || v.GetDecisions()[0].GetRule() != name {
		t.Fatalf("%v, %v", v, err)
	}
	status, body := r.do(t, http.MethodPost, "/v1/reset", `{"checks":[{"rule":"`+name+`","key":"user42"}]}`)
	if status != http.StatusOK {
		t.Fatalf("%d %s", status, body)
	}
	again, err := c.Check(t.Context(), &headgatev1.CheckRequest{Checks: []*headgatev1.Check{{Rule: name, Key: "user42"}}})
	if err != nil || again.GetDecisions()[0].GetRemaining() != v.GetDecisions()[0].GetRemaining() {
		t.Errorf("after a reset over HTTP: %v, %v", again, err)
	}
	// Callers' own rules are not taken unless that was asked for.
	if err := c.Store().Ping(t.Context()); !errors.Is(err, headgate.ErrUnavailable) || !strings.Contains(err.Error(), "--grpc-store") {
		t.Errorf("the store: %v", err)
	}
}

// TestGRPCStore: the server as a store, with a token, and what its metrics say.
func TestGRPCStore(t *testing.T) {
	const token = "the-token-of-the-store"
	r := start(t, Settings{GRPCListen: "127.0.0.1:0", GRPCStore: true, GRPCStoreToken: token})
	for _, wrong := range []client.Option{client.NoStreams(), client.Token("another-token-altogether")} {
		if err := r.client(t, wrong).Store().Ping(t.Context()); !errors.Is(err, headgate.ErrUnavailable) || !strings.Contains(err.Error(), "token") {
			t.Errorf("without the token: %v", err)
		}
	}
	limiter := headgate.New(r.client(t, client.Token(token)).Store(), headgate.MustRule("my.own", headgate.Sliding(3, time.Hour)))
	for want := int64(2); want >= -1; want-- {
		d, err := limiter.Allow(t.Context(), "k")
		if err != nil || d.Allowed != (want >= 0) || d.Remaining != max(want, 0) {
			t.Errorf("%+v, %v; want %d remaining", d, err, want)
		}
	}
	_, metrics := r.do(t, http.MethodGet, "/metrics", "")
	for _, want := range []string{`headgate_grpc_store_requests_total{outcome="allowed"} 3`, `headgate_grpc_store_requests_total{outcome="denied"} 1`} {
		if !strings.Contains(metrics, want) {
			t.Errorf("the metrics do not have %s", want)
		}
	}
	if strings.Contains(metrics, "my.own") {
		t.Error("the metrics name a caller's rule")
	}
}

func TestGRPCStoreSettings(t *testing.T) {
	for want, s := range map[string]Settings{
		"gRPC is not served":                          {GRPCStore: true},
		"the store is not served over gRPC":           {GRPCListen: "127.0.0.1:0", GRPCStoreToken: "a-token-that-is-long-enough"},
		"grpc store token: has 5 bytes, must have 16": {GRPCListen: "127.0.0.1:0", GRPCStore: true, GRPCStoreToken: "short"},
	} {
		s.Listen = "127.0.0.1:0"
		if _, err := New(t.Context(), s); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("got %v, want %q", err, want)
		}
	}
}

// TestShutdownLosesNothing: a server that is shut down under load has answered all
// that it charged, and its streams do not keep it from ending.
func TestShutdownLosesNothing(t *testing.T) {
	r := start(t, Settings{GRPCListen: "127.0.0.1:0", GRPCStore: true, DrainDelay: 50 * time.Millisecond})
	c := r.client(t, client.StreamFrom(1))
	rule := headgate.MustRule("r", headgate.Limit{Algorithm: headgate.FixedWindow, Count: 1_000_000, Period: time.Hour, Align: headgate.AlignFirst})
	var (
		mu       sync.Mutex
		answered int64
		all      sync.WaitGroup
	)
	limiter := headgate.New(c.Store(), rule)
	for range 16 {
		all.Go(func() {
			for {
				if _, err := limiter.Allow(t.Context(), "k"); err != nil {
					return // The server has gone.
				}
				mu.Lock()
				answered++
				mu.Unlock()
			}
		})
	}
	time.Sleep(50 * time.Millisecond)
	r.stop()
	if err := <-r.ended; err != nil {
		t.Errorf("the shutdown: %v", err)
	}
	all.Wait()
	d, err := r.store.Take(t.Context(), headgate.OpPeek, []headgate.Check{{Rule: rule, Key: "k"}}, nil)
	if err != nil {
		t.Fatal(err)
	}
	if charged := 1_000_000 - d[0].Remaining; charged != answered {
		t.Errorf("%d units are charged, and %d calls were answered", charged, answered)
	}
}
