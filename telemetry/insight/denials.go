package insight

import (
	"time"

	"github.com/headgate/headgate"
)

// Denial is one denial and its reason.
type Denial struct {
	// Seq counts the denials of this node that have an event, from 1.
	Seq int64 `json:"seq"`
	// Node is the recorder that it comes from; see [Recorder.Node].
	Node string `json:"node"`
	// At is when it was decided, in milliseconds since 1970, on the store's clock.
	At int64 `json:"at"`
	// Rule, Limit and Tier are what denied. Limit is as it is written in rules.
	Rule  string `json:"rule"`
	Limit string `json:"limit"`
	Tier  string `json:"tier,omitempty"`
	// Key is whom it denied.
	Key Name `json:"key"`
	// Shadow says that the denial did not count.
	Shadow bool `json:"shadow,omitempty"`
	// Cost is what was asked for, Remaining what was left, and Capacity how much the limit
	// admits at once.
	Cost      int64 `json:"cost"`
	Remaining int64 `json:"remaining"`
	Capacity  int64 `json:"capacity"`
	// RetryAfterMS is how long it takes until the cost fits, in milliseconds, rounded up;
	// -1 if it never does.
	RetryAfterMS int64 `json:"retry_after_ms"`
	// Version is that of the policy; zero if it is not known.
	Version int64 `json:"version,omitempty"`
	// Door is where the request came from.
	Door string `json:"door,omitempty"`
	// Source is who decided, such as "store".
	Source string `json:"source"`
	// Times is how many denials of the key by the rule there were since the event before,
	// this one among them.
	Times int64 `json:"times"`
}

// event is a Denial as it is remembered.
type event struct {
	record
	denial
	key   []byte
	tier  string
	times int64
	when  int64 // milliseconds
}

// denials remembers the last denials. Its memory is that of the slots and their keys,
// none of which is longer than headgate.MaxKey.
type denials struct {
	slots  []event
	events int64 // so many there were
	recent [recentKeys]recentKey
}

// recentKeys is how many keys are known to have been denied within the second. There are
// no more events than that in a second.
const recentKeys = 1024

type recentKey struct {
	hash   uint64
	second int64
	times  int64 // since the last event
}

// denied remembers a denial, if the key has none within the second.
func (r *Recorder) denied(of *record, more *denial, hash uint64, key []byte, k known) {
	now := r.options.Now()
	hash ^= of.rule.ID()
	recent := &r.recent[hash%recentKeys]
	second := now.Unix()
	same := recent.hash == hash
	if recent.second == second {
		// Another key that has the same place has to wait for the next second, too.
		if same {
			recent.times++
		}
		r.left.Events++
		return
	}
	times := int64(1)
	if same {
		times += recent.times
	}
	*recent = recentKey{hash: hash, second: second}
	to := &r.slots[r.events%int64(len(r.slots))]
	r.events++
	to.record, to.denial, to.times = *of, *more, times
	to.key = append(to.key[:0], key...)
	to.tier = ""
	if k.figures != nil {
		to.tier = k.figures.tierName(k.tier)
	}
	// A store's clock may be far from this machine's: a memory store goes by the monotonic clock,
	// which stands still while the machine is suspended.
	if to.when = more.at / 1000; max(to.when-now.UnixMilli(), now.UnixMilli()-to.when) > apart.Milliseconds() {
		to.when = now.UnixMilli()
	}
}

// apart is how far the clock of a store may be from this machine's for its times to be shown.
const apart = time.Minute

// Denials returns the oldest denials after the one with that number, at most so many, and
// how many there were after it that are no longer remembered. Zero begins with the oldest
// that is remembered; -1 with the last ones.
func (r *Recorder) Denials(after int64, most int) (list []Denial, lost int64) {
	r.flush()
	r.mu.Lock()
	defer r.mu.Unlock()
	oldest := max(r.events-int64(len(r.slots)), 0)
	switch {
	case after < 0:
		after = max(oldest, r.events-int64(most))
	case after > r.events:
		after = r.events
	case after < oldest:
		if after > 0 {
			lost = oldest - after
		}
		after = oldest
	}
	for n := after; n < r.events && len(list) < most; n++ {
		list = append(list, r.denial(n))
	}
	return list, lost
}

// Search returns the last denials that fit, the newest first, at most so many.
func (r *Recorder) Search(fits func(rule, key string) bool, most int) (list []Denial) {
	r.flush()
	r.mu.Lock()
	defer r.mu.Unlock()
	for n := r.events - 1; n >= max(r.events-int64(len(r.slots)), 0) && len(list) < most; n-- {
		if e := &r.slots[n%int64(len(r.slots))]; fits(e.rule.Name(), string(e.key)) {
			list = append(list, r.denial(n))
		}
	}
	return list
}

func (r *Recorder) denial(n int64) Denial {
	e := &r.slots[n%int64(len(r.slots))]
	d := Denial{
		Seq: n + 1, Node: r.node, At: e.when,
		Rule: e.rule.Name(), Limit: e.limit.String(), Tier: e.tier, Key: Name{Raw: string(e.key)}, Shadow: e.outcome == wasShadow,
		Cost: e.cost, Remaining: e.remaining, Capacity: e.limit.Capacity(), RetryAfterMS: -1,
		Version: e.version, Source: e.source.String(), Times: e.times,
	}
	if int(e.door) < len(r.doors) {
		d.Door = r.doors[e.door].name
	}
	if after := time.Duration(e.retryAfter); after != headgate.Never {
		d.RetryAfterMS = int64((after + time.Millisecond - 1) / time.Millisecond)
	}
	return d
}
