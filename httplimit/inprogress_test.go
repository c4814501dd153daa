package httplimit_test

import (
	"context"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"testing"
	"time"

	"github.com/headgate/headgate"
	"github.com/headgate/headgate/httplimit"
	"github.com/headgate/headgate/policy"
	"github.com/headgate/headgate/policy/inprogress"
	"github.com/headgate/headgate/store/memory"
)

// bounded returns a middleware that lets one request be in progress, and its keeper.
func bounded(t *testing.T, store headgate.Store, bound policy.InProgress, limits *headgate.Rule) (func(http.Handler) http.Handler, *inprogress.Keeper) {
	t.Helper()
	set, err := policy.New([]policy.Rule{{Name: "all", InProgress: &bound, Limits: limits}})
	if err != nil {
		t.Fatal(err)
	}
	keeper := inprogress.New(inprogress.Options{})
	limit, err := httplimit.New(store, httplimit.Policy(set), httplimit.InProgress(keeper))
	if err != nil {
		t.Fatal(err)
	}
	return limit, keeper
}

func eventually(t *testing.T, what string, is func() bool) {
	t.Helper()
	for deadline := time.Now().Add(time.Minute); !is(); time.Sleep(time.Millisecond) {
		if time.Now().After(deadline) {
			t.Fatalf("waiting until %s", what)
		}
	}
}

func statusOf(t *testing.T, handler http.Handler) int {
	t.Helper()
	w := httptest.NewRecorder()
	handler.ServeHTTP(w, httptest.NewRequest(http.MethodGet, "/", http.NoBody))
	return w.Code
}

// A handler that panics gives its permit back.
func TestInProgressPanics(t *testing.T) {
	t.Parallel()
	limit, keeper := bounded(t, memory.New(), policy.InProgress{Limit: 1}, nil)
	handler := limit(http.HandlerFunc(func(http.ResponseWriter, *http.Request) {
		if keeper.InUse("all", "") != 1 {
			t.Error("the handler runs without a permit")
		}
		panic(http.ErrAbortHandler)
	}))
	for range 3 {
		func() {
			defer func() {
				if recover() == nil {
					t.Error("the panic is gone")
				}
			}()
			statusOf(t, handler)
		}()
		if n := keeper.InUse("all", ""); n != 0 {
			t.Errorf("%d permits are lost", n)
		}
	}
}

// A client that hangs up while it waits leaves the queue, and its handler never runs.
func TestInProgressHangsUp(t *testing.T) {
	t.Parallel()
	limit, keeper := bounded(t, memory.New(), policy.InProgress{Limit: 1, Wait: policy.MaxWait, Queue: 1}, headgate.MustRule("all", headgate.PerHour(2)))
	entered, end := make(chan struct{}), make(chan struct{})
	server := httptest.NewServer(limit(http.HandlerFunc(func(http.ResponseWriter, *http.Request) {
		entered <- struct{}{}
		<-end
	})))
	t.Cleanup(server.Close)
	ask := func(ctx context.Context) error {
		r, err := http.NewRequestWithContext(ctx, http.MethodGet, server.URL, http.NoBody)
		if err != nil {
			return err
		}
		res, err := http.DefaultClient.Do(r)
		if err != nil {
			return err
		}
		_, err = io.Copy(io.Discard, res.Body)
		_ = res.Body.Close()
		if res.StatusCode != http.StatusOK {
			return fmt.Errorf("status %d", res.StatusCode)
		}
		return err
	}
	first := make(chan error, 1)
	go func() { first <- ask(t.Context()) }()
	<-entered
	ctx, cancel := context.WithCancel(t.Context())
	second := make(chan error, 1)
	go func() { second <- ask(ctx) }()
	eventually(t, "one waits", func() bool { return keeper.Stats()[0].Waiting == 1 })
	cancel()
	if err := <-second; err == nil {
		t.Error("the request was answered")
	}
	eventually(t, "nobody waits", func() bool { return keeper.Stats()[0].Waiting == 0 })
	close(end)
	if err := <-first; err != nil {
		t.Error(err)
	}
	// The one that hung up was charged nothing: there is room for one more.
	go func() { <-entered }()
	if err := ask(t.Context()); err != nil {
		t.Error(err)
	}
}

// A request that meets the same bound twice in one process passes, and takes one permit.
func TestInProgressTwice(t *testing.T) {
	t.Parallel()
	limit, keeper := bounded(t, memory.New(), policy.InProgress{Limit: 1, Wait: policy.MaxWait}, nil)
	handler := limit(limit(http.HandlerFunc(func(http.ResponseWriter, *http.Request) {
		if n := keeper.InUse("all", ""); n != 1 {
			t.Errorf("%d permits are taken", n)
		}
	})))
	if code := statusOf(t, handler); code != http.StatusOK || keeper.InUse("all", "") != 0 {
		t.Errorf("status %d, and %d are left", code, keeper.InUse("all", ""))
	}
}

// lost is a store that does not answer.
type lost struct{}

func (lost) Take(context.Context, headgate.Op, []headgate.Check, []headgate.Decision) ([]headgate.Decision, error) {
	return nil, headgate.ErrUnavailable
}

// What is in progress is counted while the store does not answer, too.
func TestInProgressWithoutStore(t *testing.T) {
	t.Parallel()
	limit, keeper := bounded(t, lost{}, policy.InProgress{Limit: 1}, headgate.MustRule("all", headgate.PerHour(1)))
	var inner http.Handler
	handler := limit(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		if code := statusOf(t, inner); code != http.StatusServiceUnavailable {
			t.Errorf("a second request is answered with %d", code)
		}
		w.WriteHeader(http.StatusNoContent)
	}))
	inner = handler
	if code := statusOf(t, handler); code != http.StatusNoContent || keeper.InUse("all", "") != 0 {
		t.Errorf("status %d, and %d are left", code, keeper.InUse("all", ""))
	}
}

// Admit does not know when a request ends, and keeps nothing.
func TestInProgressAdmit(t *testing.T) {
	t.Parallel()
	set, err := policy.New([]policy.Rule{{Name: "all", InProgress: &policy.InProgress{Limit: 1}}})
	if err != nil {
		t.Fatal(err)
	}
	gate, err := httplimit.NewGate(memory.New(), httplimit.Policy(set))
	if err != nil {
		t.Fatal(err)
	}
	for range 3 {
		if !gate.Admit(httptest.NewRecorder(), httptest.NewRequest(http.MethodGet, "/", http.NoBody)) {
			t.Error("a request is refused")
		}
	}
}

// TestSharedBound: a bound over all processes needs a store with permits.
func TestSharedBound(t *testing.T) {
	t.Parallel()
	rule := policy.Rule{Name: "all", InProgress: &policy.InProgress{Limit: 1, Shared: true}}
	set, err := policy.New([]policy.Rule{rule})
	if err != nil {
		t.Fatal(err)
	}
	if _, err := httplimit.New(lost{}, httplimit.Policy(set)); err == nil {
		t.Error("a bound over all processes is taken by a store that has no permits")
	}
	if _, err := httplimit.New(memory.New(), httplimit.Policy(set), httplimit.InProgress(nil)); err == nil {
		t.Error("a keeper that is nil is taken")
	}
}
