package httplimit_test

import (
	"net/http"
	"net/http/httptest"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/headgate/headgate"
	"github.com/headgate/headgate/httplimit"
	"github.com/headgate/headgate/store/memory"
	"github.com/headgate/headgate/store/storetest"
)

// TestPenaltyAnswers: a penalty that does not block is not told, and one that does is
// told as a wait and in words.
func TestPenaltyAnswers(t *testing.T) {
	clock := storetest.NewClock(storetest.Epoch)
	rule := headgate.MustRule("login", headgate.Sliding(2, 10*time.Second), headgate.Blocking(2, time.Minute, 5*time.Minute, 0))
	for dialect, want := range map[httplimit.Dialect][]string{
		httplimit.XRateLimit: {
			"200 X-Ratelimit-Limit=2 X-Ratelimit-Remaining=1 X-Ratelimit-Reset=10",
			"200 X-Ratelimit-Limit=2 X-Ratelimit-Remaining=0 X-Ratelimit-Reset=10",
			"429 X-Ratelimit-Limit=2 X-Ratelimit-Remaining=0 X-Ratelimit-Reset=10 Retry-After=10",
			"429 X-Ratelimit-Limit=2 X-Ratelimit-Remaining=0 X-Ratelimit-Reset=300 Retry-After=300",
		},
		httplimit.Draft11: {
			`200 Ratelimit-Policy="login per 10s";q=2;w=10 Ratelimit="login per 10s";r=1;t=10`,
			`200 Ratelimit-Policy="login per 10s";q=2;w=10 Ratelimit="login per 10s";r=0;t=10`,
			`429 Ratelimit-Policy="login per 10s";q=2;w=10 Ratelimit="login per 10s";r=0;t=10 Retry-After=10`,
			`429 Ratelimit-Policy="login per 10s";q=2;w=10 Ratelimit="login per 10s";r=0;t=300 Retry-After=300`,
		},
	} {
		limit, err := httplimit.New(memory.New(memory.Clock(clock.Now)), httplimit.Limit(httplimit.Everyone(), rule), httplimit.Headers(dialect))
		if err != nil {
			t.Fatal(err)
		}
		h := limit(http.HandlerFunc(func(http.ResponseWriter, *http.Request) {}))
		for i, line := range want {
			w := httptest.NewRecorder()
			h.ServeHTTP(w, httptest.NewRequest(http.MethodGet, "/", nil))
			got := []string{strconv.Itoa(w.Code)}
			for _, name := range []string{"X-Ratelimit-Limit", "X-Ratelimit-Remaining", "X-Ratelimit-Reset", "Ratelimit-Policy", "Ratelimit", "Retry-After"} {
				if v := w.Header()[name]; v != nil {
					got = append(got, name+"="+v[0])
				}
			}
			if text := strings.Join(got, " "); text != line {
				t.Errorf("%v, request %d: %s\nwant %s", dialect, i+1, text, line)
			}
			if body := w.Body.String(); i == 3 && !strings.Contains(body, `blocks who was denied too often (2 denials per 1m block 5m); the block ends in 5m0s.`) {
				t.Errorf("%v: the answer is %s", dialect, body)
			}
		}
	}
}
