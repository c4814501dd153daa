package notice

import (
	"github.com/headgate/headgate"
	"github.com/headgate/headgate/policy"
)

// The names are in the canonical form of http.Header.
const (
	xWarning       = "X-Ratelimit-Warning"
	tripleWarning  = "Ratelimit-Warning"
	warningsListed = 16
)

// WriteWarning tells a client that an admitted request has brought limits to the
// percentage from which their rules warn (soft): X-RateLimit-Warning or, in the
// dialects without an X, RateLimit-Warning, with the names of those limits as
// [Draft11] has them, each in quotes. Without such a limit, for a denial, and in
// the dialect [NoHeaders] it writes nothing. The rules are those of the set.
func WriteWarning(h map[string][]string, dialect Dialect, v *headgate.Verdict, set *policy.Set) {
	if !v.Allowed || dialect == NoHeaders || !set.Warns() {
		return
	}
	var buf [128]byte
	b, listed := buf[:0], 0
	for i := range v.Decisions {
		// What never denies is nothing to warn clients of.
		d := &v.Decisions[i]
		if d.Shadow || listed == warningsListed || !set.Soft(d) {
			continue
		}
		if listed++; listed > 1 {
			b = append(b, ", "...)
		}
		b = append(appendName(append(b, '"'), v.Decisions, i), '"')
	}
	if listed == 0 {
		return
	}
	name := tripleWarning
	if dialect == XRateLimit {
		name = xWarning
	}
	h[name] = []string{string(b)}
}
