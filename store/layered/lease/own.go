package lease

import (
	"time"

	"github.com/headgate/headgate"
	"github.com/headgate/headgate/algorithm"
)

// ownUse is what this node alone has in use in a bucket: what it has charged, less what has been
// refilled since and what it has given back. The store has at least as much in use, because other
// nodes only add to it, and give back no more than they have in use themselves.
//
// It tells how many units of an unused lease may be given back. If those units had never been
// charged, the bucket would have been full for a part of the time, and would have refilled nothing
// then. Units that were refilled meanwhile are free already. They must not be given back, because
// others may have used them. So:
//
//	given back = min(unused, minimum in use since the charge)
//
// Refunds by callers may go through any node, so they are not included. The bucket can then get
// units back twice, but only units that such a refund may give back twice on its own.
type ownUse struct {
	state   algorithm.State  // at the time of the last event
	at      headgate.Instant // the time of the last event, on the store's clock
	updated time.Duration    // the same time, on this node's clock
	lows    []low            // both at and units ascend
}

// low says that from the previous entry's time on, no fewer than units were in use; at is the time
// at which so few were.
type low struct {
	at    headgate.Instant
	units int64
}

// mostLows bounds ownUse.lows.
const mostLows = 16

// advance brings the state up to a time on the store's clock.
func (u *ownUse) advance(l *headgate.Limit, at headgate.Instant) {
	u.state = algorithm.Advance(l, u.state, at)
	u.at = at
}

// atLeast returns how many units are in use, rounded down.
func (u *ownUse) atLeast() int64 {
	used := int64(u.state.Used)
	if u.at > u.state.Stamp {
		used-- // A part of the last unit has been refilled.
	}
	return max(0, used)
}

// fell records that only units were in use at a time. If there are too many records, the first two
// become one, with the smaller number of units.
func (u *ownUse) fell(at headgate.Instant, units int64) {
	n := len(u.lows)
	if n > 0 {
		at = max(at, u.lows[n-1].at)
	}
	for ; n > 0 && u.lows[n-1].units >= units; n-- {
		u.lows = u.lows[:n-1]
	}
	if len(u.lows) == mostLows {
		u.lows[1].units = u.lows[0].units
		u.lows = append(u.lows[:0], u.lows[1:]...)
	}
	u.lows = append(u.lows, low{at, units})
}

// charged records units that the store has charged. If the store then has less in use than this
// node alone, the key was reset, or units that this node has admitted were given back; ownUse is
// lowered accordingly.
func (u *ownUse) charged(l *headgate.Limit, d *headgate.Decision, units int64, now time.Duration) {
	u.advance(l, d.At)
	if others := int64(u.state.Used) - max(0, l.Capacity()-d.Remaining-units); others > 0 {
		u.state = algorithm.Refund(l, u.state, d.At, others, 0, 0)
	}
	u.fell(d.At, u.atLeast())
	u.state = algorithm.Charge(l, u.state, d.At, units)
	u.updated = now
}

// giveBack removes those of the unused units that are still in use, and returns their number. The
// units were charged at the given time. Their refund must name the returned time, at which this
// node's units alone would have filled the bucket. Then the store gives back no more than this node
// has in use when the refund arrives.
func (u *ownUse) giveBack(l *headgate.Limit, charged headgate.Instant, unused int64, now time.Duration) (units int64, at headgate.Instant) {
	if passed := now - u.updated; passed > 0 {
		u.advance(l, u.at+headgate.Instant(passed.Microseconds()))
		u.updated = now
	}
	units = min(unused, int64(u.state.Used))
	for i := range u.lows {
		if u.lows[i].at > charged {
			units = min(units, u.lows[i].units)
			break
		}
	}
	if units == 0 {
		return 0, 0
	}
	at = u.state.Stamp - headgate.Instant(fillTime(l, l.Capacity()-int64(u.state.Used)))
	if at <= 0 {
		return 0, 0 // The bucket takes longer to fill than the time since 1970.
	}
	u.state = algorithm.Refund(l, u.state, u.at, units, 0, 0)
	u.fell(u.at+1, u.atLeast())
	return units, at
}
