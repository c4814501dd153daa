package lint

import (
	"testing"

	"github.com/headgate/headgate"
	"github.com/headgate/headgate/policy"
)

// TestLintDefaultBuckets: only limits for long periods are warned of, which are buckets because
// nobody has said what they are.
func TestLintDefaultBuckets(t *testing.T) {
	const told = `limit "5 per 15m" has no algorithm, so it is a token bucket, which admits up to 9 units in the first 15m: 5 at once, and then one more every 3m; write algorithm: sliding_window if 5 is a promise, or algorithm: token_bucket if this is meant`
	for _, c := range []struct {
		limit string
		named bool
		want  string
	}{
		{"token_bucket: 5 per 15m", false, told},
		{"token_bucket: 5 per 15m", true, ""},
		{"token_bucket: 5 per 15m burst 5", false, ""},
		{"token_bucket: 1 per 15m", false, ""},
		{"token_bucket: 60 per 1m", false, ""},
		{"fixed_window: 5 per calendar day", false, ""},
		{"token_bucket: 100 per 2m", false, `limit "100 per 2m" has no algorithm, so it is a token bucket, which admits up to 199 units in the first 2m: 100 at once, and then one more every 1.2s; write algorithm: sliding_window if 100 is a promise, or algorithm: token_bucket if this is meant`},
		{"token_bucket: 1000 per 1d", false, `limit "1000 per 1d" has no algorithm, so it is a token bucket, which admits up to 1999 units in the first 1d: 1000 at once, and then one more every 1m26.4s; write algorithm: sliding_window if 1000 is a promise, or algorithm: token_bucket if this is meant`},
		{"token_bucket: 9007199254740991 per 1d", false, `limit "9007199254740991 per 1d" has no algorithm, so it is a token bucket, which admits up to 18014398509481981 units in the first 1d: 9007199254740991 at once, and then 104249991374 more every second; write algorithm: sliding_counter if 9007199254740991 is a promise, or algorithm: token_bucket if this is meant`},
	} {
		pos := policy.Position{File: "p.yml", Line: 7, Column: 14}
		r := policy.Rule{Limits: headgate.MustRule("r", headgate.PerSecond(1), limit(t, c.limit))}
		r.Written = map[string]policy.Written{"limits.0": {Default: true}, "limits.1": {Pos: pos, Default: !c.named}}
		got := ""
		for _, w := range Warnings(mustNew(t, []policy.Rule{r})) {
			if w.Code == DefaultBucket {
				if got += w.Text; w.Pos != pos {
					t.Errorf("%s: the warning is at %v, want %v", c.limit, w.Pos, pos)
				}
			}
		}
		if got != c.want {
			t.Errorf("%s:\ngot  %s\nwant %s", c.limit, got, c.want)
		}
	}
}
