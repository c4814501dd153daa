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

// ThrottleRule is the name of the rule that CL.THROTTLE counts under. A policy with
// a rule of that name would count in the same place, so that CL.THROTTLE does not
// work beside it.
const ThrottleRule = "cl.throttle"

// throttle is a limit as CL.THROTTLE has it. Its burst is what may come beyond the
// first request, so that one more passes at once.
type throttle struct{ maxBurst, count, period int64 }

// throttles keeps the rules that CL.THROTTLE was asked for lately, compiled.
type throttles struct {
	mu    sync.RWMutex // guards what follows
	known map[throttle]*headgate.Rule
	// periods are those that were asked for since the server began, in seconds: each has
	// counters of its own, which only a rule with that period can forget. There are no more
	// than maxPeriods; after that nothing is noted.
	periods map[int64]bool
}

// maxPeriods bounds the periods that are remembered, a few bytes each.
const maxPeriods = 1 << 16

// maxThrottles bounds the known rules. One that is forgotten is compiled again when
// it is asked for; what was used under it is with the store.
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

// forgetting returns rules that have a limit of every period which was asked for. To reset
// all of them for a key forgets all of its counters. Stores that keep them in one value do so
// with the first, whatever the periods.
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

// del forgets what was used of keys of CL.THROTTLE, whatever the period, and answers with their
// number. Nobody knows whether anything was used.
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

// throttle answers as redis-cell does: limited or not, the limit, what remains,
// the seconds to wait or -1, and the seconds until all is free again. A quantity of
// zero looks and takes nothing. Of a quantity that can never fit, the seconds to
// wait are -1 too.
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
	// The caller brings the limit, so that there is nothing to look for in the policy.
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
