package headgate_test

import (
	"testing"
	"time"

	"github.com/headgate/headgate"
)

// decision is short for tables of verdicts.
func decision(allowed bool, remaining int64, retry, delay time.Duration) headgate.Decision {
	return headgate.Decision{Allowed: allowed, Remaining: remaining, RetryAfter: retry, Delay: delay}
}

func TestVerdict(t *testing.T) {
	shadow := func(d headgate.Decision) headgate.Decision { d.Shadow = true; return d }
	for name, c := range map[string]struct {
		decisions    []headgate.Decision
		allowed      bool
		retry, delay time.Duration
		deciding     int
	}{
		"nothing":              {nil, true, 0, 0, -1},
		"the zero decision":    {[]headgate.Decision{{}}, false, 0, 0, 0},
		"one admits":           {[]headgate.Decision{decision(true, 3, 0, 0)}, true, 0, 0, 0},
		"the least remaining":  {[]headgate.Decision{decision(true, 3, 0, 0), decision(true, 2, 0, 0), decision(true, 2, 0, 0)}, true, 0, 0, 1},
		"the longest delay":    {[]headgate.Decision{decision(true, 1, 0, 0), decision(true, 9, 0, 5), decision(true, 5, 0, 7)}, true, 0, 7, 2},
		"one denies":           {[]headgate.Decision{decision(true, 0, 0, 9), decision(false, 5, 4, 0)}, false, 4, 0, 1},
		"the longest retry":    {[]headgate.Decision{decision(false, 0, 3, 0), decision(false, 0, 9, 0), decision(false, 0, 4, 0), decision(true, 1, 0, 0)}, false, 9, 0, 1},
		"never":                {[]headgate.Decision{decision(false, 0, 3, 0), decision(false, 0, headgate.Never, 0), decision(false, 0, 9, 0)}, false, headgate.Never, 0, 1},
		"never first":          {[]headgate.Decision{decision(false, 0, headgate.Never, 0), decision(false, 0, headgate.Never, 0), decision(false, 0, 9, 0)}, false, headgate.Never, 0, 0},
		"shadows":              {[]headgate.Decision{shadow(decision(false, 0, headgate.Never, 0)), decision(true, 4, 0, 2), shadow(decision(true, 0, 0, 9))}, true, 0, 2, 1},
		"nothing but a shadow": {[]headgate.Decision{shadow(decision(false, 0, 3, 0))}, true, 0, 0, -1},
	} {
		v := headgate.NewVerdict(c.decisions)
		if v.Allowed != c.allowed || v.RetryAfter != c.retry || v.Delay != c.delay {
			t.Errorf("%s: allowed %t, retry after %v, delay %v; want %+v", name, v.Allowed, v.RetryAfter, v.Delay, c)
		}
		d := v.Deciding()
		if c.deciding < 0 && d != nil || c.deciding >= 0 && d != &v.Decisions[c.deciding] {
			t.Errorf("%s: %+v decided, want decision %d", name, d, c.deciding)
		}
	}
}
