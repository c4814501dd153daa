package resp

import (
	"fmt"
	"maps"
	"slices"
	"sync"
	"time"

	"github.com/headgate/headgate"
	"github.com/headgate/headgate/server/decide"
)

// ThrottleRule is the name of the rule under which CL.THROTTLE counts. If the policy has a rule of
// that name, the two would share counters, so CL.THROTTLE then fails.
const ThrottleRule = "cl.throttle"

// throttle is a limit in the terms of CL.THROTTLE. Its maxBurst does not include the first request,
// so maxBurst+1 units can pass at once.
type throttle struct{ maxBurst, count, period int64 }

// throttles caches the compiled rules of recent CL.THROTTLE commands.
type throttles struct {
	mu    sync.RWMutex // guards what follows
	known map[throttle]*headgate.Rule
	// periods has the periods that were asked for since the server began, in seconds. Each period has
	// its own counters, which only a rule with that period can reset. At most maxPeriods are kept;
	// further ones are not recorded.
	periods map[int64]bool
}

// maxPeriods is the maximum number of recorded periods, a few bytes each.
const maxPeriods = 1 << 16

// maxThrottles is the maximum number of cached rules. A dropped one is compiled again when it is
// needed; the store still has what was used.
const maxThrottles = 1024

func (t *throttles) rule(want throttle) (*headgate.Rule, error) {
	t.mu.RLock()
	r := t.known[want]
	t.mu.RUnlock()
	if r != nil {
		return r, nil
	}
	r, err := headgate.NewRule(ThrottleRule, headgate.Limit{
		Count:  want.count,
		Period: time.Duration(want.period) * time.Second,
		Burst:  want.maxBurst + 1,
	})
	if err != nil {
		return nil, err
	}
	t.mu.Lock()
	defer t.mu.Unlock()
	if other := t.known[want]; other != nil {
		return other, nil
	}
	if t.known == nil {
		t.known, t.periods = make(map[throttle]*headgate.Rule), make(map[int64]bool)
	}
	if len(t.periods) < maxPeriods {
		t.periods[want.period] = true
	}
	for some := range t.known {
		if len(t.known) < maxThrottles {
			break
		}
		delete(t.known, some)
	}
	t.known[want] = r
	return r, nil
}

// forgetting returns rules that together have a limit of every recorded period. Resetting a key
// under all of them resets all its counters. In stores that keep all counters of a key in one
// value, the first rule is enough, whatever its periods.
func (t *throttles) forgetting() ([]*headgate.Rule, error) {
	t.mu.RLock()
	periods := slices.Sorted(maps.Keys(t.periods))
	t.mu.RUnlock()
	if len(periods) == 0 {
		periods = []int64{1}
	}
	var rules []*headgate.Rule
	for some := range slices.Chunk(periods, headgate.MaxLimits) {
		limits := make([]headgate.Limit, len(some))
		for i, period := range some {
			limits[i] = headgate.Limit{Count: 1, Period: time.Duration(period) * time.Second}
		}
		r, err := headgate.NewRule(ThrottleRule, limits...)
		if err != nil {
			return nil, err
		}
		rules = append(rules, r)
	}
	return rules, nil
}

// del resets the keys of CL.THROTTLE for all recorded periods, and answers with the number of
// distinct keys, whether or not anything was used.
func (k *call) del() {
	server, keys := k.conn.server, k.args[1:]
	if len(keys) > headgate.MaxChecks {
		k.fail("ERR", fmt.Sprintf("%s: there are %d keys, must be at most %d", k.command.name, len(keys), headgate.MaxChecks))
		return
	}
	rules, err := server.throttles.forgetting()
	if err != nil {
		k.refuse(decide.Fail(k.ctx, err))
		return
	}
	for _, rule := range rules {
		r := &k.request
		k.begin()
		r.Policy, r.Op = server.decider.Policy(), headgate.OpReset
		for i, key := range keys {
			if !slices.Contains(keys[:i], key) {
				r.Checks = append(r.Checks, headgate.Check{Rule: rule, Key: key})
			}
		}
		if o := r.Take(k.ctx, server.decider); o.Kind != decide.Decided {
			k.refuse(o)
			return
		}
	}
	k.out = appendInt(k.out, int64(len(k.request.Checks)))
}

// throttle answers like redis-cell: limited (0 or 1), the limit, the remaining units, the seconds
// until a retry or -1, and the seconds until the limit is free again. A quantity of zero takes
// nothing. The retry is -1 if the request is allowed, or if the quantity can never fit.
func (k *call) throttle() {
	want, quantity := throttle{}, int64(1)
	const seconds = int64(headgate.MaxPeriod / time.Second)
	numbers := []struct {
		what        string
		least, most int64
		to          *int64
	}{
		{"max_burst", 0, headgate.MaxCount - 1, &want.maxBurst},
		{"count", 1, headgate.MaxCount, &want.count},
		{"period", 1, seconds, &want.period},
		{"quantity", 0, headgate.MaxCount, &quantity},
	}
	for i, text := range k.args[2:] {
		n := &numbers[i]
		if problem := whole(text, n.what, n.least, n.most, n.to); problem != "" {
			k.fail("ERR", k.command.name+": "+problem)
			return
		}
	}
	server, r := k.conn.server, &k.request
	r.Policy = server.decider.Policy()
	if r.Policy.Rule(ThrottleRule) != nil {
		k.fail("ERR", k.command.name+": the policy has a rule named "+ThrottleRule+", which is the name that CL.THROTTLE counts under")
		return
	}
	rule, err := server.throttles.rule(want)
	if err != nil {
		k.refuse(decide.Fail(k.ctx, err))
		return
	}
	r.Op = headgate.OpTake
	if quantity == 0 {
		r.Op = headgate.OpPeek
	}
	// The limit comes with the command, so the policy is not asked.
	r.Checks = append(r.Checks, headgate.Check{Rule: rule, Key: k.args[1], Cost: quantity})
	o := r.Take(k.ctx, server.decider)
	if o.Kind != decide.Decided {
		k.refuse(o)
		return
	}
	d := &o.Verdict.Decisions[0]
	limited, retry := int64(0), int64(-1)
	if !d.Allowed && quantity > 0 {
		limited, retry = 1, decide.Ceil(d.RetryAfter, time.Second)
	}
	b := appendInt(appendArray(k.out, 5), limited)
	b = appendInt(appendInt(b, want.maxBurst+1), d.Remaining)
	k.out = appendInt(appendInt(b, retry), decide.Ceil(d.ResetAfter, time.Second))
}
