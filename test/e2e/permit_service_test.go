package e2e

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"os"
	"path/filepath"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/headgate/headgate"
	"github.com/headgate/headgate/client"
	"github.com/headgate/headgate/flow"
	"github.com/headgate/headgate/flow/shared"
	"github.com/headgate/headgate/store"
	"github.com/headgate/headgate/test/servers"
)

const servicePermits = `
rules:
  - name: report
    match: { tenant: present }
    per: [tenant]
    in_progress: { limit: 2, shared: true, ttl: 1m, wait: 5m }
  - name: brief
    match: { tenant: present }
    per: [tenant]
    in_progress: { limit: 1, shared: true, ttl: 12s, wait: 5m }
`

const serviceToken = "an-admin-token-for-tests"

// permitService is a server that gives permits over HTTP and gRPC.
type permitService struct {
	*server
	*client.Client
}

func servePermits(t *testing.T, of *servers.Server) *permitService {
	t.Helper()
	file := filepath.Join(t.TempDir(), "token")
	if err := os.WriteFile(file, []byte(serviceToken+"\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	s := serve(t, "--config", policyFile(t, servicePermits), "--grpc-listen", "127.0.0.1:0", "--store", patiently(of.URL()), "--store-timeout", "30s",
		"--admin-token-file", file)
	c, err := client.New(grpcAddress(t, s), client.Plaintext(), client.Timeout(client.MaxTimeout), client.Token(serviceToken))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = c.Close() })
	return &permitService{s, c}
}

// given is what the service answers about a permit.
type given struct {
	Allowed, Released, Revoked bool
	Permit                     struct {
		Epoch int64
		Slots []int
	}
	InUse int64 `json:"in_use"`
}

// permit makes one call about permits over HTTP.
func (s *permitService) permit(ctx context.Context, call string, fields map[string]any) (int, given, error) {
	body, err := json.Marshal(fields)
	if err != nil {
		return 0, given{}, err
	}
	r, err := http.NewRequestWithContext(ctx, http.MethodPost, s.base+"/v1/permits/"+call, bytes.NewReader(body))
	if err != nil {
		return 0, given{}, err
	}
	r.Header.Set("Content-Type", "application/json")
	r.Header.Set("Authorization", "Bearer "+serviceToken)
	w, err := http.DefaultClient.Do(r)
	if err != nil {
		return 0, given{}, err
	}
	defer w.Body.Close()
	text, err := io.ReadAll(w.Body)
	if err != nil {
		return w.StatusCode, given{}, err
	}
	var a given
	if err := json.Unmarshal(text, &a); err != nil {
		return w.StatusCode, a, fmt.Errorf("%s: %w", text, err)
	}
	return w.StatusCode, a, nil
}

func permitFields(rule, key, holder string) map[string]any {
	return map[string]any{"rule": rule, "key": key, "holder": holder}
}

// TestPermitsOverTwoServers: whoever asks, over HTTP or gRPC, at whichever of two servers
// over one store, never more has permits than the rule says, and all get one in the end.
func TestPermitsOverTwoServers(t *testing.T) {
	t.Parallel()
	servers.Each(t, func(t *testing.T, of *servers.Server) {
		var inUse, most, done atomic.Int64
		work := func() {
			n := inUse.Add(1)
			for {
				if old := most.Load(); n <= old || most.CompareAndSwap(old, n) {
					break
				}
			}
			time.Sleep(5 * time.Millisecond)
			inUse.Add(-1)
			done.Add(1)
		}
		const callers, times = 3, 5
		var all sync.WaitGroup
		for number := range 2 {
			s := servePermits(t, of)
			gate, err := s.Gate("report", shared.Config{Queue: 100, MaxWait: within})
			if err != nil {
				t.Fatal(err)
			}
			t.Cleanup(func() {
				ctx, cancel := context.WithTimeout(context.Background(), within)
				defer cancel()
				if err := gate.Close(ctx); err != nil {
					t.Error(err)
				}
			})
			for caller := range callers {
				all.Go(func() {
					for range times {
						permit, err := gate.Acquire(t.Context(), flow.Request{Key: "tenant7"})
						if err != nil {
							t.Errorf("over gRPC: %v", err)
							return
						}
						work()
						permit.Done(flow.Success)
					}
				})
				all.Go(func() {
					for i := range times {
						fields := permitFields("report", "tenant7", fmt.Sprintf("http/%d/%d/%d", number, caller, i))
						fields["wait_ms"], fields["keep_ms"] = 20_000, 2000
						var a given
						for end := time.Now().Add(within); !a.Allowed; {
							var err error
							if _, a, err = s.permit(t.Context(), "acquire", fields); err != nil || time.Now().After(end) {
								t.Errorf("over HTTP: %+v, %v", a, err)
								return
							}
						}
						work()
						release := permitFields("report", "tenant7", fields["holder"].(string))
						release["epoch"] = a.Permit.Epoch
						if _, a, err := s.permit(t.Context(), "release", release); err != nil || !a.Released {
							t.Errorf("release: %+v, %v", a, err)
						}
					}
				})
			}
		}
		all.Wait()
		if done.Load() != 2*2*callers*times || most.Load() > 2 {
			t.Errorf("%d were done, up to %d at a time", done.Load(), most.Load())
		}
	})
}

// TestPermitsOfGoneHolders: what a holder had that has gone is free after its ttl, and who
// waits for it gets it, however much longer that takes than the server's timeouts. A permit
// that an admin revokes is not renewed. Without its server, a gate's permit is lost before
// its lease ends.
func TestPermitsOfGoneHolders(t *testing.T) {
	t.Parallel()
	servers.Each(t, func(t *testing.T, of *servers.Server) {
		first, second := servePermits(t, of), servePermits(t, of)
		status, a, err := first.permit(t.Context(), "acquire", permitFields("brief", "k", "goes"))
		if err != nil || !a.Allowed {
			t.Fatal(status, a, err)
		}
		// The holder goes, and nobody renews. Another one waits at the other server.
		fields := permitFields("brief", "k", "stays")
		fields["wait_ms"], fields["keep_ms"] = 30_000, 2000
		var next given
		until(t, "the permit of a holder that is gone", func() bool {
			status, next, err = second.permit(t.Context(), "acquire", fields)
			if err != nil || status != http.StatusOK {
				t.Fatalf("who waits: %d, %v", status, err)
			}
			return next.Allowed
		})
		if next.Permit.Epoch <= a.Permit.Epoch {
			t.Errorf("the epoch is %d after %d", next.Permit.Epoch, a.Permit.Epoch)
		}
		late := permitFields("brief", "k", "goes")
		late["epoch"] = a.Permit.Epoch
		if status, _, err := first.permit(t.Context(), "renew", late); err != nil || status != http.StatusGone {
			t.Errorf("renewing what has ended: %d, %v", status, err)
		}
		if _, a, err := first.permit(t.Context(), "release", late); err != nil || a.Released {
			t.Errorf("releasing what has ended: %+v, %v", a, err)
		}

		if _, a, err := first.permit(t.Context(), "revoke", permitFields("brief", "k", "stays")); err != nil || !a.Revoked {
			t.Errorf("revoke: %+v, %v", a, err)
		}
		renew := permitFields("brief", "k", "stays")
		renew["epoch"] = next.Permit.Epoch
		if status, a, err := second.permit(t.Context(), "renew", renew); err != nil || status != http.StatusGone || !a.Revoked {
			t.Errorf("renewing what was revoked: %d %+v, %v", status, a, err)
		}

		gate, err := first.Gate("report", shared.Config{Lost: func(lost *shared.LostError) { t.Logf("lost: %v", lost) }, TTL: 6 * time.Second})
		if err != nil {
			t.Fatal(err)
		}
		permit, err := gate.Acquire(t.Context(), flow.Request{Key: "k", Cost: 2})
		if err != nil {
			t.Fatal(err)
		}
		ctx := permit.Context(t.Context())
		if err := first.cmd.Process.Kill(); err != nil {
			t.Fatal(err)
		}
		<-ctx.Done()
		if !errors.Is(context.Cause(ctx), shared.ErrLost) {
			t.Errorf("without its server the context ended with %v", context.Cause(ctx))
		}
		until(t, "its units are free at the other server", func() bool {
			answer, err := second.Permits("report").Acquire(t.Context(), store.PermitRequest{Key: "k", Holder: "other", Cost: 2, TTL: time.Minute})
			if err != nil && !errors.Is(err, headgate.ErrUnavailable) {
				t.Fatal(err)
			}
			return answer.Granted()
		})
		permit.Done(flow.Ignore)
		closing, cancel := context.WithCancel(t.Context())
		cancel()
		_ = gate.Close(closing)
	})
}
