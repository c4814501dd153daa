package httplimittest

import (
	"net/http"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/headgate/headgate"
	"github.com/headgate/headgate/httplimit"
	"github.com/headgate/headgate/policy"
)

// charged: rules that give back what ended in a status, or charge nothing else, and
// answers with status 200.
func charged(t *testing.T, mk Maker) {
	ok, notFound := policy.Statuses{{First: 200, Last: 299}}, policy.Statuses{{First: 404, Last: 404}}
	for _, c := range []struct {
		name string
		rule policy.Rule
		free bool
	}{
		{"gives back what succeeds", policy.Rule{GiveBackOn: ok}, true},
		{"gives back what is not found", policy.Rule{GiveBackOn: notFound}, false},
		{"charges what succeeds", policy.Rule{ChargeOn: ok}, false},
		{"charges what is not found", policy.Rule{ChargeOn: notFound}, true},
	} {
		c.rule.Limits = headgate.MustRule("r", headgate.Sliding(2, time.Hour))
		set, err := policy.New([]policy.Rule{c.rule})
		if err != nil {
			t.Fatal(err)
		}
		s := newSubject(t, mk, httplimit.Policy(set))
		for i := range 5 {
			if a := s.get(); (a.status == http.StatusTooManyRequests) != (i >= 2 && !c.free) {
				t.Errorf("a rule that %s: request %d is answered with %d", c.name, i+1, a.status)
			}
		}
	}
}

// settled: requests are let in at an estimate, and pay for the bytes of the answer.
func settled(t *testing.T, mk Maker) {
	var ends atomic.Int64
	s := newSubject(t, mk,
		httplimit.Limit(httplimit.Everyone(), headgate.MustRule("bytes", headgate.Sliding(100, time.Hour))),
		httplimit.Cost(func(*http.Request) int64 { return 10 }),
		httplimit.Settle(func(_ *http.Request, end httplimit.Response) int64 {
			ends.Add(1)
			if end.Status != http.StatusOK || end.Cost != -1 {
				t.Errorf("a request ended with %+v", end)
			}
			return end.Bytes
		}))
	for i, c := range []struct{ bytes, status int }{{2, 200}, {70, 200}, {18, 200}, {1, 200}, {1, 429}} {
		// 2, 72 and 90 are used, which leaves 10 for the fourth; after that 91 are,
		// and an estimate of 10 no longer fits.
		a := s.ask(http.MethodPost, "/echo", strings.Repeat("x", c.bytes))
		if a.status != c.status {
			t.Errorf("request %d is answered with %d %s", i+1, a.status, a.body)
		}
	}
	if ends.Load() != 4 {
		t.Errorf("the end of %d requests was told, want 4", ends.Load())
	}
}
