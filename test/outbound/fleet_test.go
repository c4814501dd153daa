// Package outbound has processes call a partner that blocks who exceeds its limit.
package outbound

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"os"
	"os/exec"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/headgate/headgate"
	"github.com/headgate/headgate/httplimit/outbound"
	"github.com/headgate/headgate/store/redis"
	"github.com/headgate/headgate/test/servers"
)

// The environment of a process of the fleet: whom it calls, and the store, "" for none.
const partnerURL, storeURL = "HEADGATE_PARTNER_URL", "HEADGATE_STORE_URL"

const (
	// admits is what the partner admits in any span of that length.
	admits, span = 60, 2 * time.Second
	// calls is how many each process makes.
	calls = 40
)

// allowed is what the fleet allows itself: 33 in two seconds. What is between is for requests
// that a busy machine holds up on their way, so that they arrive closer together.
var allowed = headgate.Limit{Count: 15, Period: time.Second, Burst: 3}

func TestMain(m *testing.M) {
	if url := os.Getenv(partnerURL); url != "" {
		if err := work(url, os.Getenv(storeURL)); err != nil {
			fmt.Fprintln(os.Stderr, err)
			os.Exit(1)
		}
		return
	}
	os.Exit(m.Run())
}

// work is one process of the fleet: it calls as fast as it may, from several goroutines.
func work(url, storeAt string) error {
	ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
	defer cancel()
	client := http.DefaultClient
	if storeAt != "" {
		store, err := redis.Open(ctx, storeAt, redis.Timeout(10*time.Second))
		if err != nil {
			return err
		}
		defer store.Close()
		rule, err := headgate.NewRule("partner", allowed)
		if err != nil {
			return err
		}
		transport, err := outbound.New(store, nil, outbound.Config{
			Limits: []outbound.Limit{{Rules: []*headgate.Rule{rule}}}, MaxWait: time.Minute, FailClosed: true,
		})
		if err != nil {
			return err
		}
		client = &http.Client{Transport: transport}
	}
	var all sync.WaitGroup
	errs := make(chan error, calls)
	tokens := make(chan struct{}, calls)
	for range calls {
		tokens <- struct{}{}
	}
	close(tokens)
	for range 8 {
		all.Go(func() {
			for range tokens {
				r, err := http.NewRequestWithContext(ctx, http.MethodGet, url, http.NoBody)
				if err != nil {
					errs <- err
					return
				}
				res, err := client.Do(r)
				if err != nil {
					errs <- err
					continue
				}
				_, _ = io.Copy(io.Discard, res.Body)
				_ = res.Body.Close()
				if res.StatusCode != http.StatusOK {
					errs <- errors.New(res.Status)
				}
			}
		})
	}
	all.Wait()
	close(errs)
	failed := 0
	for range errs {
		failed++
	}
	if failed > 0 {
		return fmt.Errorf("%d of %d calls failed", failed, calls)
	}
	return nil
}

// partner admits so many requests in any span, and blocks for good who sends more.
type partner struct {
	mu      sync.Mutex // guards what follows
	times   []time.Time
	blocked bool
	most    int
	served  int
}

func (p *partner) ServeHTTP(w http.ResponseWriter, _ *http.Request) {
	p.mu.Lock()
	defer p.mu.Unlock()
	now := time.Now()
	for len(p.times) > 0 && now.Sub(p.times[0]) >= span {
		p.times = p.times[1:]
	}
	p.times = append(p.times, now)
	p.most = max(p.most, len(p.times))
	p.blocked = p.blocked || len(p.times) > admits
	w.Header().Set("Retry-After", strconv.Itoa(1))
	if p.blocked {
		w.WriteHeader(http.StatusTooManyRequests)
		return
	}
	p.served++
}

// fleet has three processes call the partner, and returns what they say.
func fleet(t *testing.T, p *partner, storeAt string) string {
	t.Helper()
	s := httptest.NewServer(p)
	defer s.Close()
	var all sync.WaitGroup
	var mu sync.Mutex
	var said strings.Builder
	for range 3 {
		all.Go(func() {
			c := exec.CommandContext(t.Context(), os.Args[0])
			c.Env = append(os.Environ(), partnerURL+"="+s.URL, storeURL+"="+storeAt)
			out, err := c.CombinedOutput()
			mu.Lock()
			defer mu.Unlock()
			if err != nil {
				fmt.Fprintf(&said, "%v: %s\n", err, out)
			}
		})
	}
	all.Wait()
	return said.String()
}

// Three processes that share a limit through Redis are never blocked; three that do not are.
func TestFleet(t *testing.T) {
	kept := new(partner)
	if said := fleet(t, kept, servers.Start(t, servers.Redis).URL()); said != "" || kept.blocked || kept.served != 3*calls {
		t.Errorf("the fleet was served %d of %d times, with %d in two seconds at most, blocked: %v\n%s", kept.served, 3*calls, kept.most, kept.blocked, said)
	}
	t.Logf("%d calls, at most %d in two seconds of %d that the partner admits", kept.served, kept.most, admits)
	wild := new(partner)
	if said := fleet(t, wild, ""); said == "" || !wild.blocked {
		t.Errorf("without limits nobody was blocked, with %d in two seconds; the partner is no test", wild.most)
	}
}
