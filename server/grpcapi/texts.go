package grpcapi

import (
	"sync/atomic"
	"time"

	"google.golang.org/protobuf/encoding/protowire"

	"github.com/headgate/headgate"
	"github.com/headgate/headgate/server/decide"
)

// texts holds what is always the same in the decisions of one policy, so that an
// answer is put together from parts that are there already.
type texts struct{ current atomic.Pointer[policyTexts] }

// policyTexts are the texts of one policy. It is immutable.
type policyTexts struct {
	policy  decide.Policy
	byLimit map[*headgate.Limit]*limitText
}

// limitText is what is always the same about one limit.
type limitText struct {
	rule, limit, algorithm string
	capacity, periodMS     int64
	wire                   []byte // the fields above, as they begin a Decision
}

// of returns the texts for a policy, which are made anew when it was changed.
func (t *texts) of(p decide.Policy) *policyTexts {
	now := t.current.Load()
	if now == nil || now.policy != p {
		now = newPolicyTexts(p)
		t.current.Store(now)
	}
	return now
}

func newPolicyTexts(p decide.Policy) *policyTexts {
	t := &policyTexts{policy: p, byLimit: make(map[*headgate.Limit]*limitText)}
	add := func(r *headgate.Rule) {
		if r == nil {
			return
		}
		limits := r.Limits()
		for i := range limits {
			t.byLimit[&limits[i]] = newLimitText(r, &limits[i])
		}
	}
	rules := p.Rules()
	for i := range rules {
		r := &rules[i]
		add(r.Limits)
		if r.Tariff != nil {
			add(r.Tariff.Other)
			for j := range r.Tariff.Tiers {
				add(r.Tariff.Tiers[j].Limits)
			}
		}
		for j := range r.Overrides {
			add(r.Overrides[j].Limits)
		}
	}
	return t
}

// limit returns the text of the decision's limit. A store may answer with a limit
// that is not one of the policy's own: its text is made for the occasion.
func (t *policyTexts) limit(d *headgate.Decision) *limitText {
	if found, ok := t.byLimit[d.Limit]; ok {
		return found
	}
	return newLimitText(d.Rule, d.Limit)
}

func newLimitText(rule *headgate.Rule, limit *headgate.Limit) *limitText {
	t := &limitText{
		rule:      rule.Name(),
		limit:     limit.String(),
		algorithm: limit.Algorithm.String(),
		capacity:  limit.Capacity(),
		periodMS:  ceilMillis(time.Duration(limit.Micros()) * time.Microsecond),
	}
	b := appendText(nil, decisionRule, t.rule)
	b = appendText(b, decisionLimit, t.limit)
	b = appendText(b, decisionAlgorithm, t.algorithm)
	b = appendInt(b, decisionCapacity, t.capacity)
	t.wire = appendInt(b, decisionPeriodMS, t.periodMS)
	return t
}

// ceilMillis is d in milliseconds, rounded up so that waiting that long is
// enough. Never stays -1.
func ceilMillis(d time.Duration) int64 {
	if d == headgate.Never {
		return -1
	}
	ms := d / time.Millisecond
	if d%time.Millisecond > 0 {
		ms++
	}
	return int64(ms)
}

// sourceText is who decided, where that is not the store.
func sourceText(s headgate.Source) string {
	if s == headgate.SourceStore {
		return ""
	}
	return s.String()
}

// The fields of the messages that are written by hand.
const (
	decisionRule         protowire.Number = 1
	decisionLimit        protowire.Number = 2
	decisionAlgorithm    protowire.Number = 3
	decisionCapacity     protowire.Number = 4
	decisionPeriodMS     protowire.Number = 5
	decisionAllowed      protowire.Number = 6
	decisionRemaining    protowire.Number = 7
	decisionRetryAfterMS protowire.Number = 8
	decisionResetAfterMS protowire.Number = 9
	decisionShadow       protowire.Number = 10
	decisionSoft         protowire.Number = 11
	decisionSource       protowire.Number = 12

	verdictAllowed      protowire.Number = 1
	verdictDeniedBy     protowire.Number = 2
	verdictRetryAfterMS protowire.Number = 3
	verdictDelayMS      protowire.Number = 4
	verdictAt           protowire.Number = 5
	verdictDecisions    protowire.Number = 6

	deniedByRule  protowire.Number = 1
	deniedByLimit protowire.Number = 2
	deniedByList  protowire.Number = 3
)
