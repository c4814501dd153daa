package envoyrls

import (
	"fmt"
	"sync"
	"time"

	pb "github.com/envoyproxy/go-control-plane/envoy/service/ratelimit/v3"

	"github.com/headgate/headgate"
	"github.com/headgate/headgate/server/decide"
)

// OverrideRule is the name of the rule that limits which come with descriptors
// are counted under.
const OverrideRule = decide.BroughtRule

// maxOverrides bounds the limits that callers bring: each is a label of metrics.
const maxOverrides = 1000

// errOverrides says that there are too many different ones.
var errOverrides = fmt.Errorf("callers have sent more than %d different limits; use fewer, or rules", maxOverrides)

// overrides are the rules made of limits that came with descriptors.
type overrides struct {
	rules sync.Map // headgate.Limit → *headgate.Rule

	mu sync.Mutex // Guards n.
	n  int
}

// rule returns the rule for a limit that came with a descriptor, nil if it admits
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

// unitLength is the length of a unit, which the protocol has two enumerations of:
// one lacks the week, and else they agree. A month is 30 days to
// envoyproxy/ratelimit, and a year 365.
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
