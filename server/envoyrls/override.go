package envoyrls

import (
	"fmt"
	"sync"
	"time"

	pb "github.com/envoyproxy/go-control-plane/envoy/service/ratelimit/v3"

	"github.com/headgate/headgate"
	"github.com/headgate/headgate/server/decide"
)

// OverrideRule is the name of the rule under which limits that come with descriptors are counted.
const OverrideRule = decide.BroughtRule

// maxOverrides is the maximum number of different limits that callers bring, because each becomes a
// label of metrics.
const maxOverrides = 1000

// errOverrides is the error beyond maxOverrides.
var errOverrides = fmt.Errorf("callers have sent more than %d different limits; use fewer, or rules", maxOverrides)

// overrides caches the rules for limits that came with descriptors.
type overrides struct {
	rules sync.Map // headgate.Limit → *headgate.Rule

	mu sync.Mutex // guards n
	n  int
}

// rule returns the rule for a limit that came with a descriptor. It is nil if the limit admits
// nothing.
func (o *overrides) rule(l *override) (*headgate.Rule, error) {
	unit, err := unitLength(l.unit)
	if err != nil {
		return nil, err
	}
	multiplier := time.Duration(1)
	if l.hasMultiplier {
		multiplier = time.Duration(l.multiplier)
	}
	if multiplier < 1 || multiplier > headgate.MaxPeriod/unit {
		return nil, invalid(fmt.Sprintf("the unit_multiplier of the limit is %d, must be 1 to %d", multiplier, headgate.MaxPeriod/unit))
	}
	if l.count == 0 {
		return nil, nil
	}
	limit := headgate.Limit{
		Algorithm: headgate.FixedWindow,
		Count:     min(int64(l.count), headgate.MaxCount),
		Period:    unit * multiplier,
	}
	if known, ok := o.rules.Load(limit); ok {
		return known.(*headgate.Rule), nil
	}
	made, err := headgate.NewRule(OverrideRule, limit)
	if err != nil {
		return nil, err
	}
	o.mu.Lock()
	defer o.mu.Unlock()
	if known, ok := o.rules.Load(limit); ok {
		return known.(*headgate.Rule), nil
	}
	if o.n == maxOverrides {
		return nil, errOverrides
	}
	o.n++
	o.rules.Store(limit, made)
	return made, nil
}

// unitLength returns the length of a unit. The protocol has two enumerations of units, which agree
// except that one has no week. As in envoyproxy/ratelimit, a month is 30 days and a year is 365
// days.
func unitLength(number int32) (time.Duration, error) {
	for _, u := range units() {
		if int32(u.unit) == number {
			return u.length, nil
		}
	}
	return 0, invalid(fmt.Sprintf("the unit of the limit is %s, must be SECOND to YEAR or WEEK", pb.RateLimitResponse_RateLimit_Unit(number)))
}

func invalid(problem string) error {
	return headgate.Invalid("descriptor", "limit", "%s", problem)
}
