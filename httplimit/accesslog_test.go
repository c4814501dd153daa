package httplimit_test

import (
	"bufio"
	"compress/gzip"
	"encoding/json"
	"fmt"
	"net/http"
	"net/http/httptest"
	"net/url"
	"os"
	"regexp"
	"slices"
	"sync/atomic"
	"testing"
	"time"

	"github.com/headgate/headgate"
	"github.com/headgate/headgate/httplimit"
	"github.com/headgate/headgate/store/memory"
)

// visit is one line of an access log.
type visit struct {
	at                   time.Time
	client, method, path string
}

var combined = regexp.MustCompile(`^(\S+) \S+ \S+ \[([^]]+)\] "(\S+) (\S+)`)

// visits reads the log, in the order in which a server saw the requests: it
// writes a line when a request ends.
func visits(t *testing.T) []visit {
	t.Helper()
	f, err := os.Open("testdata/access.log.gz")
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	z, err := gzip.NewReader(f)
	if err != nil {
		t.Fatal(err)
	}
	var all []visit
	for s := bufio.NewScanner(z); s.Scan(); {
		m := combined.FindStringSubmatch(s.Text())
		if m == nil {
			t.Fatalf("a line is not in combined format: %s", s.Text())
		}
		at, err := time.Parse("02/Jan/2006:15:04:05 -0700", m[2])
		if err != nil {
			t.Fatal(err)
		}
		all = append(all, visit{at, m[1], m[3], m[4]})
	}
	if len(all) != 2000 {
		t.Fatalf("the log has %d lines, want 2000", len(all))
	}
	slices.SortStableFunc(all, func(a, b visit) int { return a.at.Compare(b.at) })
	return all
}

// window is a limit as the oracle knows it.
type window struct {
	count  int
	period time.Duration
}

// oracle decides by looking through lists of all admissions.
type oracle map[string][]time.Time

// ask returns how long the request would have to wait, 0 if it is admitted, and
// then counts it under every key. The keys' windows must all have room.
func (o oracle) ask(now time.Time, windows map[string][]window) (wait time.Duration) {
	for key, ws := range windows {
		for _, w := range ws {
			var inside []time.Time
			for _, at := range o[key] {
				if now.Sub(at) < w.period {
					inside = append(inside, at)
				}
			}
			if len(inside) >= w.count {
				// It fits when so many have left that one place is free.
				leaves := inside[len(inside)-w.count].Add(w.period)
				wait = max(wait, leaves.Sub(now))
			}
		}
	}
	if wait == 0 {
		for key := range windows {
			o[key] = append(o[key], now)
		}
	}
	return wait
}

// Real traffic through the middleware, request by request: the slow oracle must
// agree on every decision and on every time to wait.
func TestAccessLog(t *testing.T) {
	t.Parallel()
	var (
		perClient = []window{{15, time.Minute}, {4, 5 * time.Second}}
		perPage   = []window{{2, 30 * time.Second}}
		everyone  = []window{{100, time.Minute}}
	)
	rule := func(name string, windows []window) *headgate.Rule {
		var limits []headgate.Limit
		for _, w := range windows {
			limits = append(limits, headgate.Sliding(int64(w.count), w.period))
		}
		return headgate.MustRule(name, limits...)
	}
	var now atomic.Int64
	denials := make(map[string]int)
	limit, err := httplimit.New(memory.New(memory.Clock(now.Load)),
		httplimit.Limit(httplimit.ByIP(), rule("client", perClient)),
		httplimit.Limit(httplimit.Combine(httplimit.ByIP(), httplimit.ByRoute()), rule("page", perPage)),
		httplimit.Limit(httplimit.Everyone(), rule("everyone", everyone)),
		httplimit.TrustProxies(httplimit.XForwardedFor, "127.0.0.1"),
		httplimit.Observe(httplimit.Hooks{Denied: func(_ *http.Request, v headgate.Verdict) {
			for _, d := range v.Decisions {
				if !d.Allowed {
					denials[d.Rule.Name()+" "+d.Limit.String()]++
				}
			}
		}}))
	if err != nil {
		t.Fatal(err)
	}
	h := limit(http.HandlerFunc(func(http.ResponseWriter, *http.Request) {}))
	truth := make(oracle)
	denied, refused := 0, []string(nil)
	for i, v := range visits(t) {
		now.Store(v.at.UnixMicro())
		u, err := url.ParseRequestURI(v.path)
		if err != nil {
			t.Fatal(err)
		}
		r := httptest.NewRequest(v.method, "/", nil)
		r.URL = u
		r.RemoteAddr = "127.0.0.1:4711"
		r.Header.Set("X-Forwarded-For", fmt.Sprintf("192.0.2.%d, %s", i%256, v.client))
		w := httptest.NewRecorder()
		h.ServeHTTP(w, r)
		if w.Code == http.StatusBadRequest {
			// The pages are counted by their paths, which servers read alike but for few.
			refused = append(refused, v.path)
			continue
		}

		wait := truth.ask(v.at, map[string][]window{
			"client " + v.client: perClient,
			"page " + v.client + " " + v.method + " " + u.Path: perPage,
			"everyone": everyone,
		})
		var problem httplimit.Problem
		switch {
		case wait == 0 && w.Code != http.StatusOK, wait > 0 && w.Code != http.StatusTooManyRequests:
			t.Fatalf("request %d of %s at %v: %d, but the oracle has it wait %v", i+1, v.client, v.at, w.Code, wait)
		case wait == 0:
			continue
		}
		denied++
		if v.method == http.MethodHead {
			continue
		}
		if err := json.Unmarshal(w.Body.Bytes(), &problem); err != nil || problem.RetryAfterMS != wait.Milliseconds() {
			t.Fatalf("request %d of %s at %v: retry after %d ms (%v), but the oracle has it wait %v", i+1, v.client, v.at, problem.RetryAfterMS, err, wait)
		}
	}
	if want := []string{"/projects/xdotool/+++++++++++++++++++++Result:+chosen+nickname+%22awarovadoms%22;sent;"}; !slices.Equal(refused, want) {
		t.Errorf("refused are %q, want %q", refused, want)
	}
	t.Logf("%d of 2000 denied: %v", denied, denials)
	for _, name := range []string{"client 15 per 1m", "client 4 per 5s", "page 2 per 30s", "everyone 100 per 1m"} {
		if denials[name] == 0 {
			t.Errorf("the log does not try the limit %q", name)
		}
	}
}
