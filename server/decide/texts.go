package decide

import (
	"sync/atomic"
	"time"

	"github.com/headgate/headgate"
	"github.com/headgate/headgate/policy"
)

// LimitText are the parts of the answers about one limit that never change.
type LimitText struct {
	Rule, Limit, Algorithm string
	// Capacity is the largest cost that fits at once, and PeriodMS the period in
	// milliseconds, rounded up.
	Capacity, PeriodMS int64
}

// NewLimitText describes a limit of a rule.
func NewLimitText(rule *headgate.Rule, limit *headgate.Limit) LimitText {
	return LimitText{
		Rule: rule.Name(), Limit: limit.String(), Algorithm: limit.Algorithm.String(),
		Capacity: limit.Capacity(), PeriodMS: Millis(time.Duration(limit.Micros()) * time.Microsecond),
	}
}

// Texts keeps the [LimitText] of each limit of the policy in force, in the form T in which a door
// sends it. It is safe for concurrent use. Make one with [NewTexts].
type Texts[T any] struct {
	write func(LimitText) T
	now   atomic.Pointer[policyTexts[T]]
}

// policyTexts are the texts of one policy. It is immutable.
type policyTexts[T any] struct {
	set     *policy.Set
	byLimit map[*headgate.Limit]*T
}

// NewTexts returns Texts whose form is made by write.
func NewTexts[T any](write func(LimitText) T) *Texts[T] { return &Texts[T]{write: write} }

// Of returns the text of the decision's limit. When the policy has changed, the texts of all its
// limits are made again. If a store answers with a limit that is not in the policy, its text is
// made for this call only.
func (t *Texts[T]) Of(set *policy.Set, d *headgate.Decision) *T {
	now := t.now.Load()
	if now == nil || now.set != set {
		now = t.all(set)
		t.now.Store(now)
	}
	if text := now.byLimit[d.Limit]; text != nil {
		return text
	}
	text := t.write(NewLimitText(d.Rule, d.Limit))
	return &text
}

func (t *Texts[T]) all(set *policy.Set) *policyTexts[T] {
	made := &policyTexts[T]{set: set, byLimit: make(map[*headgate.Limit]*T)}
	rules := set.Rules()
	for i := range rules {
		for r := range rules[i].EachLimits() {
			limits := r.Limits()
			for j := range limits {
				text := t.write(NewLimitText(r, &limits[j]))
				made.byLimit[&limits[j]] = &text
			}
		}
	}
	return made
}
