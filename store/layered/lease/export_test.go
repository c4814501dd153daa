package lease

import (
	"time"

	"github.com/headgate/headgate"
)

// HeldOf is how many units of a key are held.
func (l *Layer) HeldOf(rule *headgate.Rule, key string) int64 {
	return l.heldUnits(&headgate.Check{Rule: rule, Key: key})
}

// Enforced is what the store is asked to enforce for a rule that is leased.
func (l *Layer) Enforced(rule *headgate.Rule) *headgate.Rule { return l.plans.Of(rule).strict }

// Hold is for how long units of a rule may be held.
func (l *Layer) Hold(rule *headgate.Rule) time.Duration { return l.plans.Of(rule).hold }

// OwnUse is how many units of a watched key's first limit, a bucket, this node has in use.
func (l *Layer) OwnUse(rule *headgate.Rule, key string) int64 {
	s, k, _ := l.lock(&headgate.Check{Rule: rule, Key: key})
	defer s.mu.Unlock()
	if k != nil {
		return k.own[0].state.Used
	}
	return -1
}
