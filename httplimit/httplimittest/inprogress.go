package httplimittest

import (
	"encoding/json"
	"net/http"
	"sync/atomic"
	"testing"
	"time"

	"github.com/headgate/headgate"
	"github.com/headgate/headgate/flow"
	"github.com/headgate/headgate/httplimit"
	"github.com/headgate/headgate/policy"
	"github.com/headgate/headgate/policy/inprogress"
)

// Cases about what may be in progress at the same time.

// bounded is a server with a bound on what is in progress, and what keeps the bound.
type bounded struct {
	*subject
	keeper *inprogress.Keeper
	busy   atomic.Int64 // requests that the hook was told of
}

func newBounded(t *testing.T, mk Maker, rule policy.Rule) *bounded {
	t.Helper()
	rule.Name = "reports"
	set, err := policy.New([]policy.Rule{rule})
	if err != nil {
		t.Fatal(err)
	}
	b := &bounded{keeper: inprogress.New(inprogress.Options{})}
	b.subject = newSubject(t, mk, httplimit.Policy(set), httplimit.InProgress(b.keeper),
		httplimit.Observe(httplimit.Hooks{Busy: func(*http.Request, *inprogress.Refusal) { b.busy.Add(1) }}))
	return b
}

// begin sends a request that is in progress until it is ended, and returns its answer
// then.
func (b *bounded) begin(header ...string) <-chan reply {
	answer := make(chan reply, 1)
	go func() {
		defer close(answer)
		if a, err := b.send(http.MethodGet, "/items/"+slow, "", header...); err != nil {
			b.t.Error(err)
		} else {
			answer <- a
		}
	}()
	return answer
}

// stats waits until the numbers are as wanted.
func (b *bounded) stats(what string, as func(s inprogress.Stats) bool) {
	b.t.Helper()
	deadline := time.Now().Add(time.Minute)
	for {
		s := b.keeper.Stats()[0]
		if as(s) {
			return
		}
		if time.Now().After(deadline) {
			b.t.Fatalf("waiting until %s: %+v", what, s)
		}
		time.Sleep(time.Millisecond)
	}
}

func (b *bounded) holds(n int64) {
	b.t.Helper()
	b.stats("permits are held", func(s inprogress.Stats) bool { return s.InUse == n })
}

// busyBounds: what is beyond the bound is refused and charged nothing, until what is in
// progress has ended.
func busyBounds(t *testing.T, mk Maker) {
	for _, tt := range []struct {
		name   string
		per    []policy.Part
		status int
		kind   string
		others int // what a client is answered that has nothing in progress
	}{
		{"a client's", []policy.Part{{Entry: "api_key"}}, http.StatusTooManyRequests, httplimit.TypeQuotaExceeded, http.StatusOK},
		{"everybody's", nil, http.StatusServiceUnavailable, httplimit.TypeReducedCapacity, http.StatusServiceUnavailable},
		{"a route's", []policy.Part{{Entry: "method"}}, http.StatusServiceUnavailable, httplimit.TypeReducedCapacity, http.StatusServiceUnavailable},
	} {
		t.Run(tt.name, func(t *testing.T) {
			b := newBounded(t, mk, policy.Rule{
				Per: tt.per, InProgress: &policy.InProgress{Limit: 1},
				Limits: headgate.MustRule("reports", headgate.PerHour(10)),
			})
			first := b.begin("X-Api-Key", "k1")
			b.holds(1)
			for range 3 {
				a := b.get("X-Api-Key", "k1")
				var p httplimit.Problem
				if err := json.Unmarshal([]byte(a.body), &p); err != nil {
					t.Fatalf("%v: %s", err, a.body)
				}
				if a.status != tt.status || p.Status != tt.status || p.Type != tt.kind || len(p.ViolatedPolicies) != 1 || p.ViolatedPolicies[0] != "reports" || p.RetryAfterMS <= 0 || a.header.Get("Retry-After") == "" {
					t.Errorf("beyond the bound: %d %s\n%s", a.status, a.body, a.lines())
				}
			}
			if a := b.get("X-Api-Key", "k2"); a.status != tt.others {
				t.Errorf("another client is answered with %d, want %d", a.status, tt.others)
			}
			b.site.end()
			if a := <-first; a.status != http.StatusOK || a.header.Get("X-Ratelimit-Remaining") != "9" {
				t.Errorf("what was in progress is answered with %d\n%s", a.status, a.lines())
			}
			b.holds(0)
			// Only the first request and this one were charged.
			if a := b.get("X-Api-Key", "k1"); a.status != http.StatusOK || a.header.Get("X-Ratelimit-Remaining") != "8" {
				t.Errorf("after it has ended: %d\n%s", a.status, a.lines())
			}
			if n := b.busy.Load(); n != 3 && tt.others == http.StatusOK || n != 4 && tt.others != http.StatusOK {
				t.Errorf("the hook was told of %d requests", n)
			}
		})
	}
}

// busyWaits: a request waits for its permit, and no more of them than may.
func busyWaits(t *testing.T, mk Maker) {
	b := newBounded(t, mk, policy.Rule{
		Per: []policy.Part{{Entry: "api_key"}}, InProgress: &policy.InProgress{Limit: 1, Wait: 10 * time.Minute, Queue: 1},
	})
	first := b.begin("X-Api-Key", "k1")
	b.holds(1)
	second := b.begin("X-Api-Key", "k1")
	b.stats("one waits", func(s inprogress.Stats) bool { return s.Waiting == 1 })
	if a := b.get("X-Api-Key", "k1"); a.status != http.StatusTooManyRequests {
		t.Errorf("beyond the queue: %d %s", a.status, a.body)
	}
	b.stats("the refusal is counted", func(s inprogress.Stats) bool { return s.Refused[flow.ReasonQueueFull] == 1 })
	for _, answer := range []<-chan reply{first, second} {
		b.site.end()
		if a := <-answer; a.status != http.StatusOK {
			t.Errorf("%d %s", a.status, a.body)
		}
	}
	b.stats("nothing is left", func(s inprogress.Stats) bool { return s.InUse == 0 && s.Waiting == 0 && s.Keys == 0 })
}

// busyRollsBack: a request that a rate denies holds no permit.
func busyRollsBack(t *testing.T, mk Maker) {
	b := newBounded(t, mk, policy.Rule{InProgress: &policy.InProgress{Limit: 1}, Limits: one("reports")})
	b.want([]int{200, 429, 429})
	b.holds(0)
	b.stats("all had permits", func(s inprogress.Stats) bool { return s.Admitted == 3 })
}

// busyByTariff: the limit depends on who asks, and a rule in shadow only measures.
func busyByTariff(t *testing.T, mk Maker) {
	b := newBounded(t, mk, policy.Rule{
		Per: []policy.Part{{Entry: "api_key"}}, InProgress: &policy.InProgress{Entry: "api_key", Values: map[string]int64{"pro": 2}, Limit: 1},
	})
	var all []<-chan reply
	for i, key := range []string{"pro", "pro", "free"} {
		all = append(all, b.begin("X-Api-Key", key))
		b.holds(int64(i + 1))
	}
	for _, key := range []string{"pro", "free"} {
		if a := b.get("X-Api-Key", key); a.status != http.StatusTooManyRequests {
			t.Errorf("%s is answered with %d", key, a.status)
		}
	}
	for range all {
		b.site.end() // whichever came first: those that have their permits may come in any order
	}
	for _, answer := range all {
		<-answer
	}

	b = newBounded(t, mk, policy.Rule{Mode: policy.ModeShadow, InProgress: &policy.InProgress{Limit: 1}})
	first := b.begin()
	b.holds(1)
	b.want([]int{200, 200})
	b.site.end()
	<-first
	b.stats("what would have been refused is counted", func(s inprogress.Stats) bool {
		return s.InUse == 0 && s.ShadowRefused[flow.ReasonBusy] == 2 && s.Refused[flow.ReasonBusy] == 0
	})
	if b.busy.Load() != 0 {
		t.Error("the hook was told of what a shadow would have refused")
	}
}
