package policy

import (
	"fmt"
	"time"

	"github.com/headgate/headgate"
)

// MaxOverrides is how many overrides one rule may have.
const MaxOverrides = 10_000

// Override gives other limits to some of a rule's requests, whatever the rule and its tariff say.
// If several overrides match, the first counts.
type Override struct {
	// Match has the conditions that must all hold: at least one.
	Match []Condition
	// Limits are made for the rule's name, so that what was used stays used when the override
	// begins and ends. If nil, the rule's limits apply. Required, unless there is InProgress.
	Limits *headgate.Rule
	// InProgress is how much may be in progress under each key, 1 to headgate.MaxCount. If zero,
	// the rule's bound applies.
	InProgress int64
	// Until is when the override ends. The zero time is never.
	Until time.Time
	// Pos is where the override was written, for messages.
	Pos Position
}

func cloneOverrides(overrides []Override) []Override {
	all := append([]Override(nil), overrides...)
	for i := range all {
		all[i].Match = cloneConditions(all[i].Match)
	}
	return all
}

func (o *Override) check(field string, r *Rule, bad func(field, format string, args ...any)) {
	if len(o.Match) == 0 {
		bad(field, "the override has no conditions and would replace the rule's limits for all; write them as the rule's")
	}
	checkConditions(field+".match", o.Match, bad)
	switch {
	case o.Limits == nil && o.InProgress == 0:
		bad(field, "the override has no limits; make them with headgate.NewRule")
	case o.Limits != nil && o.Limits.Name() != r.Name:
		bad(field, "the name is %q but the limits of the override were made for %q; counters can be kept under one name only", r.Name, o.Limits.Name())
	}
	switch {
	case o.InProgress == 0:
	case r.InProgress == nil:
		bad(field+".in_progress", "the override lets %d be in progress, but the rule does not bound that; give the rule in_progress", o.InProgress)
	default:
		r.InProgress.checkPermits(field+".in_progress", "the limit", o.InProgress, bad)
	}
}

// checkConditions checks a list of conditions, and each of them under its place.
func checkConditions(field string, conditions []Condition, bad func(field, format string, args ...any)) {
	if len(conditions) > MaxConditions {
		bad(field, "there are %d conditions, must be at most %d", len(conditions), MaxConditions)
	}
	for i := range conditions {
		if p := conditions[i].check(); p != "" {
			bad(fmt.Sprintf("%s.%d", field, i), "%s", p)
		}
	}
}

// dated is a list of demands that may end.
type dated struct {
	demands []demand
	until   time.Time
}

// lists is many dated lists of demands, indexed.
type lists struct {
	lists []dated
	index index
}

// newLists compiles n lists of conditions. It returns nil if there are none.
func newLists(n int, at func(i int) ([]Condition, time.Time), h *hasher) *lists {
	if n == 0 {
		return nil
	}
	l := &lists{lists: make([]dated, n)}
	demands := make([]*[]demand, n)
	for i := range l.lists {
		conditions, until := at(i)
		l.lists[i] = dated{compileConditions(conditions, h), until}
		demands[i] = &l.lists[i].demands
	}
	l.index = newIndex(demands)
	return l
}

// find returns the first list whose conditions hold and that has not ended. The clock is read only
// for a list that has an end and whose conditions hold.
func (l *lists) find(d Descriptor, now func() time.Time) (int, bool) {
	if l == nil {
		return 0, false
	}
	var places candidates
	l.index.candidates(d, &places)
	for i, more := places.next(); more; i, more = places.next() {
		if one := &l.lists[i]; holdAll(one.demands, d) && !ended(one.until, now) {
			return int(i), true
		}
	}
	return 0, false
}

// ended reports whether something that ends at until has ended.
func ended(until time.Time, now func() time.Time) bool {
	return !until.IsZero() && !now().Before(until)
}
