package load

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/headgate/headgate"
	"github.com/headgate/headgate/httplimit"
	"github.com/headgate/headgate/store/memory"
)

// audited is what an audit finds of each thing, in order: admitted, retry_after, remaining,
// reset.
func audited(t *testing.T, h http.Handler, o AuditOptions) (out []string, a *Audit) {
	t.Helper()
	bubble(t, h, Options{}, func(t *testing.T, c *Client) {
		var err error
		if a, err = c.Audit(t.Context(), o); err != nil {
			t.Fatal(err)
		}
		for _, f := range a.Findings {
			out = append(out, f.Outcome)
		}
	})
	return out, a
}

// TestAuditOfHeadgate: whatever the algorithm and the dialect, our own limits are honest.
func TestAuditOfHeadgate(t *testing.T) {
	ok := http.HandlerFunc(func(http.ResponseWriter, *http.Request) {})
	for name, limits := range map[string][]headgate.Limit{
		"token bucket":    {headgate.PerMinute(30)},
		"sliding window":  {headgate.Sliding(10, 20*time.Second)},
		"fixed window":    {{Algorithm: headgate.FixedWindow, Count: 10, Period: 30 * time.Second}},
		"sliding counter": {{Algorithm: headgate.SlidingCounter, Count: 10, Period: 20 * time.Second}},
		"two windows":     {headgate.Sliding(10, 20*time.Second), headgate.Sliding(4, 3*time.Second)},
	} {
		for _, dialect := range []httplimit.Dialect{httplimit.XRateLimit, httplimit.RateLimitTriple, httplimit.Draft11, httplimit.NoHeaders} {
			t.Run(name+" "+dialect.String(), func(t *testing.T) {
				rule, err := headgate.NewRule("all", limits...)
				if err != nil {
					t.Fatal(err)
				}
				limit, err := httplimit.New(memory.New(), httplimit.Limit(httplimit.Everyone(), rule), httplimit.Headers(dialect))
				if err != nil {
					t.Fatal(err)
				}
				out, a := audited(t, limit(ok), AuditOptions{})
				if !a.Honest || out[1] != True || dialect != httplimit.NoHeaders && (out[0] != True || out[2] != True) {
					t.Errorf("found %+v", a)
				}
			})
		}
	}
}

// TestAuditOfRoundedWaits: a request that is admitted before a wait in whole seconds is over has taken
// the units that were to be there at its end.
func TestAuditOfRoundedWaits(t *testing.T) {
	ok := http.HandlerFunc(func(http.ResponseWriter, *http.Request) {})
	rule := headgate.MustRule("all", headgate.Limit{Count: 10, Period: 5 * time.Second, Burst: 10})
	limit, err := httplimit.New(memory.New(), httplimit.Limit(httplimit.Everyone(), rule),
		httplimit.Cost(func(*http.Request) int64 { return 3 }))
	if err != nil {
		t.Fatal(err)
	}
	for range 3 { // what is left when the rounds begin differs
		if out, a := audited(t, limit(ok), AuditOptions{Cost: 3}); !a.Honest || out[1] != True {
			t.Errorf("found %+v", a)
		}
	}
}

// window is a limiter of requests in windows of fixed length that says of itself what it is
// told to say.
type window20 struct {
	mu   sync.Mutex
	from time.Time
	used int
	tell func(h http.Header, left int, reset time.Duration)
}

func (l *window20) ServeHTTP(w http.ResponseWriter, _ *http.Request) {
	const limit, period = 10, 20 * time.Second
	l.mu.Lock()
	defer l.mu.Unlock()
	now := time.Now()
	if now.Sub(l.from) >= period {
		l.from, l.used = now, 0
	}
	status := http.StatusOK
	if l.used++; l.used > limit {
		status = http.StatusTooManyRequests
	}
	l.tell(w.Header(), max(limit-l.used, 0), l.from.Add(period).Sub(now))
	w.WriteHeader(status)
}

func TestAuditOfLiars(t *testing.T) {
	say := func(h http.Header, limit, left int, reset, retry time.Duration) {
		h.Set("X-RateLimit-Limit", fmt.Sprint(limit))
		h.Set("X-RateLimit-Remaining", fmt.Sprint(left))
		h.Set("X-RateLimit-Reset", fmt.Sprint(int(reset/time.Second)))
		h.Set("Retry-After", fmt.Sprint(int(retry/time.Second)))
	}
	up := func(d time.Duration) time.Duration { return d + time.Second - 1 }
	for name, tt := range map[string]struct {
		tell func(h http.Header, left int, reset time.Duration)
		want string
		text string
	}{
		"honest":       {func(h http.Header, left int, reset time.Duration) { say(h, 10, left, up(reset), up(reset)) }, "true true true true", ""},
		"says nothing": {func(http.Header, int, time.Duration) {}, "true unknown unknown unknown", "of 10 per 20"},
		"too early":    {func(h http.Header, left int, reset time.Duration) { say(h, 10, left, up(reset), 3*time.Second) }, "true wrong true true", "in 3 of 3 rounds a request was denied"},
		"rounds down": {func(h http.Header, left int, reset time.Duration) {
			say(h, 10, left, up(reset), up(reset)-2*time.Second)
		}, "true wrong true true", ""},
		"later than true": {func(h http.Header, left int, reset time.Duration) { say(h, 10, left, up(reset), 3*reset) }, "true true true true", "in 1 of 1, halfway as well"},
		"has more left":   {func(h http.Header, left int, reset time.Duration) { say(h, 10, left+5, up(reset), up(reset)) }, "true true wrong true", "said that more was left"},
		"resets later":    {func(h http.Header, left int, reset time.Duration) { say(h, 10, left, 5*time.Second, up(reset)) }, "true true true wrong", "when the time of reset"},
		"admits more":     {func(h http.Header, left int, reset time.Duration) { say(h, 4, max(left-6, 0), up(reset), up(reset)) }, "wrong true true", "advertised less"},
		"is for ever":     {func(h http.Header, left int, _ time.Duration) { say(h, 10, left, 24*time.Hour, 24*time.Hour) }, "true unknown true unknown", "86400.0 s, which is longer than the audit waits"},
		"a date long ago": {func(h http.Header, _ int, _ time.Duration) { h.Set("Retry-After", "Sun, 22 Nov 2020 09:00:30 GMT") }, "unknown unknown", ""},
	} {
		t.Run(name, func(t *testing.T) {
			out, a := audited(t, &window20{tell: tt.tell}, AuditOptions{})
			text := ""
			for _, f := range a.Findings {
				text += f.Text + "\n"
			}
			if got := strings.Join(out, " "); !strings.HasPrefix(got, tt.want) || !strings.Contains(text, tt.text) || a.Honest == strings.Contains(got, Wrong) {
				t.Errorf("found %s, want %s:\n%s", got, tt.want, text)
			}
		})
	}
}

// TestAuditOfStatuses: what is a denial, and what says nothing, is as the caller says.
func TestAuditOfStatuses(t *testing.T) {
	honest := func() http.Handler {
		return &window20{tell: func(h http.Header, left int, reset time.Duration) {
			h.Set("X-RateLimit-Limit", "10")
			h.Set("X-RateLimit-Remaining", fmt.Sprint(left))
			h.Set("X-RateLimit-Reset", fmt.Sprint(int((reset+time.Second-1)/time.Second)))
		}}
	}
	// A denial with headers that say so would be known without being told.
	of := &window20{tell: func(http.Header, int, time.Duration) {}}
	forbids := http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) { of.ServeHTTP(&instead{w, 429, 403}, r) })
	// Every third request does not get to the limiter.
	guarded := func() http.Handler {
		h, n := honest(), new(atomic.Int64)
		return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			if n.Add(1)%3 == 0 {
				w.WriteHeader(http.StatusUnauthorized)
				return
			}
			h.ServeHTTP(w, r)
		})
	}
	ten := Promise{Count: 10, Period: 20 * time.Second}
	if out, a := audited(t, forbids, AuditOptions{Most: 100}); !strings.HasPrefix(a.Findings[0].Text, "no request was denied, of 100; the last was answered with 403") {
		t.Errorf("403 is no denial: %s, %+v", out, a)
	}
	out, a := audited(t, forbids, AuditOptions{Limit: ten, Denied: []string{"403"}})
	if out[0] != True || !a.Honest || a.Rounds[1].Denied != "403" || a.Held.Over+a.Held.Early > 0 {
		t.Errorf("403 is a denial: %s, %+v", out, a)
	}
	if out, a := audited(t, guarded(), AuditOptions{Limit: ten}); a.Honest || a.Held.Over == 0 {
		t.Errorf("401 was admitted: %s, %+v", out, a.Held)
	}
	if out, a := audited(t, guarded(), AuditOptions{Limit: ten, Undecided: []string{"401"}}); !a.Honest || a.Held.Over > 0 || a.Rounds[0].Admitted != 10 {
		t.Errorf("401 says nothing: %s, %+v", out, a)
	}
	bubble(t, http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) { w.WriteHeader(http.StatusUnauthorized) }), Options{}, func(t *testing.T, c *Client) {
		if _, err := c.Audit(t.Context(), AuditOptions{Undecided: []string{"401"}}); !errors.Is(err, ErrUnreachable) {
			t.Errorf("nothing but 401: %v", err)
		}
	})
}

// instead answers with one status in place of another one.
type instead struct {
	http.ResponseWriter
	of, to int
}

func (i *instead) WriteHeader(status int) {
	if status == i.of {
		status = i.to
	}
	i.ResponseWriter.WriteHeader(status)
}

// TestAuditEnds: without a limit, with a broken service, and when it is interrupted.
func TestAuditEnds(t *testing.T) {
	out, a := audited(t, http.HandlerFunc(func(http.ResponseWriter, *http.Request) {}), AuditOptions{Most: 100})
	if strings.Join(out, " ") != "unknown unknown unknown unknown" || len(a.Rounds) != 1 || a.Rounds[0].Admitted != 100 {
		t.Errorf("without a limit: %+v", a)
	}
	bubble(t, http.HandlerFunc(func(http.ResponseWriter, *http.Request) { panic(http.ErrAbortHandler) }), Options{}, func(t *testing.T, c *Client) {
		if _, err := c.Audit(t.Context(), AuditOptions{}); err == nil {
			t.Error("there is no error of a service that does not answer")
		}
	})
	bubble(t, &window20{tell: func(h http.Header, _ int, _ time.Duration) { h.Set("Retry-After", "100") }}, Options{}, func(t *testing.T, c *Client) {
		ctx, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		if a, err := c.Audit(ctx, AuditOptions{}); err == nil || len(a.Rounds) != 1 {
			t.Errorf("interrupted: %+v, %v", a, err)
		}
	})
}
