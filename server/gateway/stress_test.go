package gateway

import (
	"context"
	"fmt"
	"io"
	"math/rand/v2"
	"net/http"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/headgate/headgate"
	"github.com/headgate/headgate/config/gatewayfile"
	"github.com/headgate/headgate/policy"
	"github.com/headgate/headgate/server/decide"
	"github.com/headgate/headgate/store/memory"
)

// Whatever comes at the same time, every client gets its own answer, and nothing
// stays behind.
func TestEverythingAtOnce(t *testing.T) {
	t.Parallel()
	up := upstream(t, func(w http.ResponseWriter, r *http.Request) {
		w.Header().Set("X-Echo", r.Header.Get("X-Id"))
		switch r.URL.Path {
		case "/cut":
			_, _ = io.WriteString(w, "half")
			w.(http.Flusher).Flush()
			panic(http.ErrAbortHandler)
		case "/hang":
			<-r.Context().Done()
			return
		case "/stream":
			for range 5 {
				_, _ = io.WriteString(w, r.Header.Get("X-Id")+" ")
				w.(http.Flusher).Flush()
			}
			return
		case "/500":
			w.WriteHeader(http.StatusInternalServerError)
		}
		n, _ := io.Copy(io.Discard, r.Body)
		fmt.Fprint(w, r.Header.Get("X-Id"), " ", n)
	})
	var versions atomic.Int64
	sets := make([]*policy.Set, 2)
	for i := range sets {
		rule := perKey(int64(200 * (i + 1)))
		rule.GiveBackOn = policy.Statuses{{First: 500, Last: 599}}
		set, err := policy.New([]policy.Rule{rule, {Match: []policy.Condition{policy.Equal("route", "GET /stream")}, Limits: headgate.MustRule("streams", headgate.PerHour(100))}})
		if err != nil {
			t.Fatal(err)
		}
		sets[i] = set
	}
	d := &decide.Over{Rules: func() decide.Policy {
		v := versions.Load()
		return decide.Policy{Set: sets[v%2], Version: v + 1}
	}, Store: memory.New()}
	o := to(up.URL, up.URL+"/", closedTarget(t))
	o.Upstreams[0].Balance = gatewayfile.LeastConnections
	o.MaxBody = 1000
	o.Concurrency = []gatewayfile.Concurrency{{Name: "in-progress", Per: []policy.Part{{Entry: "api_key"}}, Limit: 6}}
	g := serveGateway(t, d, o)
	clients := []*http.Client{client(t), plainH2(t)}
	var all sync.WaitGroup
	var good atomic.Int64
	for n := range 12 {
		all.Go(func() {
			random := rand.New(rand.NewPCG(uint64(n), 7))
			for i := range 60 {
				id := fmt.Sprint("id-", n, "-", i)
				path := []string{"/", "/cut", "/hang", "/stream", "/500", "/large"}[random.IntN(6)]
				ctx, cancel := context.WithTimeout(t.Context(), within)
				var body io.Reader = http.NoBody
				method := http.MethodGet
				switch path {
				case "/hang":
					ctx, cancel = context.WithTimeout(t.Context(), time.Duration(random.IntN(20))*time.Millisecond)
				case "/large":
					method, body = http.MethodPost, io.MultiReader(strings.NewReader(strings.Repeat("x", random.IntN(2000))))
				}
				r, err := http.NewRequestWithContext(ctx, method, g.url+path, body)
				if err != nil {
					t.Error(err)
				}
				r.Header.Set("X-Id", id)
				r.Header.Set("X-API-Key", fmt.Sprint("k", n%2))
				res, err := clients[n%2].Do(r)
				if err == nil {
					text, err := io.ReadAll(res.Body)
					_ = res.Body.Close()
					if res.StatusCode == 200 && err == nil {
						good.Add(1)
						if res.Header.Get("X-Echo") != id || !strings.HasPrefix(string(text), id+" ") {
							t.Errorf("%s %s got the answer %q of %s", path, id, text, res.Header.Get("X-Echo"))
						}
					}
				}
				cancel()
				if random.IntN(20) == 0 {
					versions.Add(1)
				}
			}
		})
	}
	all.Wait()
	if good.Load() == 0 {
		t.Error("nothing was answered well")
	}
	eventually(t, "nothing is in progress", func() bool {
		n := g.counts.inFlight.Load()
		for _, target := range g.current.Load().pools[0].targets {
			n += target.inFlight.Load()
		}
		shards := &g.current.Load().watchers.shards // a copy would be read without the locks
		for i := range shards {
			s := &shards[i]
			s.mu.Lock()
			if s.first != nil {
				n++
			}
			s.mu.Unlock()
		}
		return n == 0
	})
	for _, s := range g.own.Stats() {
		if s.Keys != 0 {
			t.Errorf("the permits of %d keys are not back", s.Keys)
		}
	}
}
