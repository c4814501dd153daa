package notice

import (
	"math/rand/v2"
	"net/http"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/headgate/headgate"
	"github.com/headgate/headgate/store/memory"
)

// lines writes headers as they would be sent, sorted.
func lines(h http.Header) string {
	var out []string
	for name, values := range h {
		for _, v := range values {
			out = append(out, name+": "+v)
		}
	}
	slices.Sort(out)
	return strings.Join(out, "\n")
}

// decisionOf is a decision of the rule's nth limit.
func decisionOf(rule *headgate.Rule, n int, d headgate.Decision) headgate.Decision {
	d.Rule, d.Limit = rule, &rule.Limits()[n]
	return d
}

func TestWriteHeaders(t *testing.T) {
	t.Parallel()
	login := headgate.MustRule("login", headgate.Sliding(20, time.Minute), headgate.Sliding(5, 3*time.Second))
	bucket := headgate.MustRule("api", headgate.PerSecond(50).WithBurst(200))
	small := headgate.MustRule("slow", headgate.Per(100, time.Minute).WithBurst(10))
	odd := headgate.MustRule(`größe"%`, headgate.Limit{Algorithm: headgate.FixedWindow, Count: 7, Period: 1500 * time.Millisecond})
	mixed := headgate.MustRule("mixed",
		headgate.Sliding(9, time.Minute), headgate.PerMinute(3),
		headgate.Limit{Algorithm: headgate.FixedWindow, Count: 100, Align: headgate.AlignDay},
		headgate.Limit{Algorithm: headgate.FixedWindow, Count: 1000, Align: headgate.AlignMonth})
	slowest := headgate.MustRule("slowest", headgate.Limit{Count: 1, Period: headgate.MaxPeriod, Burst: 99})

	allowed := headgate.NewVerdict([]headgate.Decision{
		decisionOf(login, 0, headgate.Decision{Allowed: true, Remaining: 15, ResetAfter: 59_100 * time.Millisecond}),
		decisionOf(login, 1, headgate.Decision{Allowed: true, Remaining: 2, ResetAfter: 2400 * time.Millisecond}),
	})
	denied := headgate.NewVerdict([]headgate.Decision{
		decisionOf(login, 0, headgate.Decision{Allowed: true, Remaining: 15, ResetAfter: 59_100 * time.Millisecond}),
		decisionOf(login, 1, headgate.Decision{Remaining: 0, RetryAfter: 1_000_001 * time.Microsecond, ResetAfter: 2400 * time.Millisecond}),
	})
	never := headgate.NewVerdict([]headgate.Decision{
		decisionOf(bucket, 0, headgate.Decision{Remaining: 200, RetryAfter: headgate.Never}),
	})
	for _, tt := range []struct {
		name    string
		verdict headgate.Verdict
		dialect Dialect
		want    string
	}{
		{"allowed", allowed, XRateLimit, `
X-Ratelimit-Limit: 5
X-Ratelimit-Remaining: 2
X-Ratelimit-Reset: 3`},
		{"allowed", allowed, RateLimitTriple, `
Ratelimit-Limit: 5
Ratelimit-Remaining: 2
Ratelimit-Reset: 3`},
		{"allowed", allowed, Draft11, `
Ratelimit-Policy: "login per 1m";q=20;w=60, "login per 3s";q=5;w=3
Ratelimit: "login per 1m";r=15;t=60, "login per 3s";r=2;t=3`},
		{"allowed", allowed, NoHeaders, ``},
		{"denied", denied, XRateLimit, `
Cache-Control: no-store
Retry-After: 2
X-Ratelimit-Limit: 5
X-Ratelimit-Remaining: 0
X-Ratelimit-Reset: 3`},
		{"denied", denied, RateLimitTriple, `
Cache-Control: no-store
Ratelimit-Limit: 5
Ratelimit-Remaining: 0
Ratelimit-Reset: 2
Retry-After: 2`},
		{"denied", denied, Draft11, `
Cache-Control: no-store
Ratelimit-Policy: "login per 1m";q=20;w=60, "login per 3s";q=5;w=3
Ratelimit: "login per 1m";r=15;t=60, "login per 3s";r=0;t=2
Retry-After: 2`},
		{"denied", denied, NoHeaders, `
Cache-Control: no-store
Retry-After: 2`},
		{"never", never, XRateLimit, `
Cache-Control: no-store
X-Ratelimit-Limit: 200
X-Ratelimit-Remaining: 200
X-Ratelimit-Reset: 0`},
		{"never", never, Draft11, `
Cache-Control: no-store
Ratelimit-Policy: "api";q=200;w=4
Ratelimit: "api";r=200`},
		{"nothing bound it", headgate.NewVerdict(nil), XRateLimit, ``},
		{"the zero verdict denies", headgate.Verdict{}, XRateLimit, `
Cache-Control: no-store
Retry-After: 1`},
		// Five units are missing; the last is back in 3 s, the next in 0.6 s.
		{"a bucket's next unit", headgate.NewVerdict([]headgate.Decision{
			decisionOf(small, 0, headgate.Decision{Allowed: true, Remaining: 5, ResetAfter: 3 * time.Second}),
		}), Draft11, `
Ratelimit-Policy: "slow";q=10;w=6
Ratelimit: "slow";r=5;t=1`},
		{"the slowest bucket", headgate.NewVerdict([]headgate.Decision{
			decisionOf(slowest, 0, headgate.Decision{Allowed: true, Remaining: 0, ResetAfter: 98*headgate.MaxPeriod + time.Microsecond}),
		}), Draft11, `
Ratelimit-Policy: "slowest";q=99;w=3130617600
Ratelimit: "slowest";r=0;t=1`},
		{"a name that must be encoded", headgate.NewVerdict([]headgate.Decision{
			decisionOf(odd, 0, headgate.Decision{Allowed: true, Remaining: 6, ResetAfter: time.Second}),
		}), Draft11, `
Ratelimit-Policy: "gr%C3%B6%C3%9Fe%22%25";q=7;w=2
Ratelimit: "gr%C3%B6%C3%9Fe%22%25";r=6;t=1`},
		{"names of one rule", headgate.NewVerdict([]headgate.Decision{
			decisionOf(mixed, 0, headgate.Decision{Allowed: true}),
			decisionOf(mixed, 1, headgate.Decision{Allowed: true, Remaining: 3}),
			decisionOf(mixed, 2, headgate.Decision{Allowed: true}),
			decisionOf(mixed, 3, headgate.Decision{Allowed: true}),
		}), Draft11, `
Ratelimit-Policy: "mixed per 1m";q=9;w=60, "mixed per 1m 2";q=3;w=60, "mixed per calendar day";q=100;w=86400, "mixed per calendar month";q=1000;w=2678400
Ratelimit: "mixed per 1m";r=0, "mixed per 1m 2";r=3, "mixed per calendar day";r=0, "mixed per calendar month";r=0`},
		{"one rule under three keys", headgate.NewVerdict([]headgate.Decision{
			decisionOf(bucket, 0, headgate.Decision{Allowed: true, Remaining: 200}),
			decisionOf(bucket, 0, headgate.Decision{Allowed: true, Remaining: 200, Check: 1}),
			decisionOf(bucket, 0, headgate.Decision{Allowed: true, Remaining: 200, Check: 2}),
		}), Draft11, `
Ratelimit-Policy: "api";q=200;w=4, "api key 2";q=200;w=4, "api key 3";q=200;w=4
Ratelimit: "api";r=200, "api key 2";r=200, "api key 3";r=200`},
		{"more than an integer of the draft holds", headgate.NewVerdict([]headgate.Decision{
			decisionOf(headgate.MustRule("most", headgate.PerMinute(headgate.MaxCount)), 0, headgate.Decision{Allowed: true, Remaining: headgate.MaxCount}),
		}), Draft11, `
Ratelimit-Policy: "most";q=999999999999999;w=60
Ratelimit: "most";r=999999999999999`},
		{"too many to list", headgate.NewVerdict(append(
			slices.Repeat([]headgate.Decision{decisionOf(bucket, 0, headgate.Decision{Allowed: true, Remaining: 9})}, maxItems),
			decisionOf(small, 0, headgate.Decision{Allowed: true, Remaining: 5, ResetAfter: 3 * time.Second}))), Draft11, `
Ratelimit-Policy: "slow";q=10;w=6
Ratelimit: "slow";r=5;t=1`},
	} {
		t.Run(tt.name+"/"+tt.dialect.String(), func(t *testing.T) {
			t.Parallel()
			h := http.Header{}
			WriteHeaders(h, tt.dialect, &tt.verdict)
			if got := lines(h); got != strings.TrimPrefix(tt.want, "\n") {
				t.Errorf("got\n%s\nwant%s", got, tt.want)
			}
		})
	}
}

func TestRetryAfterIsNeverEarly(t *testing.T) {
	t.Parallel()
	for _, tt := range []struct {
		after time.Duration
		want  string
	}{
		{time.Microsecond, "1"},
		{time.Second - time.Microsecond, "1"},
		{time.Second, "1"},
		{time.Second + time.Microsecond, "2"},
		{time.Duration(1<<63 - 1), "9223372037"},
	} {
		h := http.Header{}
		WriteHeaders(h, NoHeaders, &headgate.Verdict{RetryAfter: tt.after})
		if got := h.Get("Retry-After"); got != tt.want {
			t.Errorf("%v: Retry-After %s, want %s", tt.after, got, tt.want)
		}
	}
}

// A bucket has another unit after untilMore, and not yet 2 µs before.
func TestUntilMore(t *testing.T) {
	t.Parallel()
	rng := rand.New(rand.NewPCG(1, 2))
	for range 2000 {
		var clock atomic.Int64
		clock.Store(1_763_712_000_000_000)
		store := memory.New(memory.Clock(clock.Load))
		limit := headgate.Limit{
			Algorithm: []headgate.Algorithm{headgate.TokenBucket, headgate.LeakyBucket}[rng.IntN(2)],
			Count:     1 + rng.Int64N(1000),
			Period:    time.Duration(1+rng.Int64N(1_000_000)) * time.Microsecond,
			Burst:     1 + rng.Int64N(50),
		}
		rule := headgate.MustRule("rule", limit)
		look := func(op headgate.Op, cost int64) headgate.Decision {
			d, err := store.Take(t.Context(), op, []headgate.Check{{Rule: rule, Cost: cost}}, nil)
			if err != nil {
				t.Fatal(err)
			}
			return d[0]
		}
		for range 3 {
			d := look(headgate.OpTake, 1+rng.Int64N(limit.Burst))
			if !d.Allowed {
				continue
			}
			more := untilMore(&d)
			before := max(0, more-2*time.Microsecond)
			clock.Add(before.Microseconds())
			if early := look(headgate.OpPeek, 1); early.Remaining > d.Remaining && before > 0 {
				t.Fatalf("%s %v: %d left, %d already %v before %v", limit.Algorithm, &limit, d.Remaining, early.Remaining, more-before, more)
			}
			clock.Add((more - before).Microseconds())
			if now := look(headgate.OpPeek, 1); now.Remaining <= d.Remaining {
				t.Fatalf("%s %v: %d left, and still %d after %v", limit.Algorithm, &limit, d.Remaining, now.Remaining, more)
			}
		}
	}
}

func TestDialectNames(t *testing.T) {
	t.Parallel()
	for d := range dialects {
		if got, err := ParseDialect(d.String()); err != nil || got != d {
			t.Errorf("ParseDialect(%q) = %v, %v", d.String(), got, err)
		}
	}
	if _, err := ParseDialect("x-rate-limit"); err == nil || !strings.Contains(err.Error(), "ratelimit-triple") {
		t.Errorf("an unknown dialect: %v", err)
	}
}

// Limits that only count are no business of the client's: neither headers nor
// the problem tell of them.
func TestShadowsAreNotTold(t *testing.T) {
	t.Parallel()
	trial := headgate.MustRule("trial", headgate.PerMinute(1))
	strict := headgate.MustRule("strict", headgate.PerMinute(5))
	shadow := decisionOf(trial, 0, headgate.Decision{Shadow: true, RetryAfter: time.Minute, ResetAfter: time.Minute})
	for _, allowed := range []bool{true, false} {
		d := decisionOf(strict, 0, headgate.Decision{Allowed: allowed, ResetAfter: time.Second})
		if !allowed {
			d.RetryAfter = time.Second
		}
		v := headgate.NewVerdict([]headgate.Decision{shadow, d})
		for dialect := range dialects {
			h := make(http.Header)
			WriteHeaders(h, dialect, &v)
			if text := lines(h); strings.Contains(text, "trial") || strings.Contains(text, "60") && dialect != Draft11 {
				t.Errorf("%v, allowed %t:\n%s", dialect, allowed, text)
			}
		}
		if p := QuotaExceeded(&v); !allowed && !slices.Equal(p.ViolatedPolicies, []string{"strict"}) {
			t.Errorf("violated policies are %q", p.ViolatedPolicies)
		}
	}
	none := make(http.Header)
	v := headgate.NewVerdict([]headgate.Decision{shadow})
	if WriteHeaders(none, Draft11, &v); len(none) != 0 {
		t.Errorf("a shadow alone is told: %v", none)
	}
}
