package lease

import (
	"time"

	"github.com/headgate/headgate"
	"github.com/headgate/headgate/algorithm"
)

// ownUse is what this node alone has in use of a bucket: what it has charged, less what has
// been refilled since and what it has given back. The store has at least as much in use, as
// other nodes only add to it, and give back no more than is in use of their own units.
//
// It says how much of a lease that ends unused may be given back. Had those units never been
// charged, the bucket would have been full for a part of the time, and would have refilled
// nothing then. What was refilled meanwhile is free already and must not be given back, since
// others may have used it. What is left is the least that was in use since the charge:
//
//	given back = min(unused, least in use since the charge)
//
// Refunds of callers, which may go through any node, are not in it. The units that a bucket
// then gets back twice are part of those that such a refund may give it twice by itself.
type ownUse struct {
	state algorithm.State // at the time of the last event, on the store's clock
	at    int64           // that time
	heard time.Duration   // the same on this node's clock
	lows  []low           // in the order of time and of units
}

// low says that no less than some units were in use after all earlier times.
type low struct{ at, units int64 }

// mostLows bounds ownUse.lows.
const mostLows = 16

// advance goes on to a time on the store's clock.
func (u *ownUse) advance(l *headgate.Limit, at int64) {
	u.state = algorithm.Advance(l, u.state, at)
	u.at = at
}

// atLeast is how many units are in use, rounded down.
func (u *ownUse) atLeast() int64 {
	used := int64(u.state.Used)
	if u.at > u.state.Stamp {
		used-- // A part of the last one has been refilled.
	}
	return max(0, used)
}

// fell notes that only so many units were in use at a time. If there are too many notes, the
// second one is made to say as little as the first, which goes.
func (u *ownUse) fell(at, units int64) {
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

// charged notes units that the store has charged. If it then had less in use than this node
// alone, somebody has reset the key, or given back what this node has admitted.
func (u *ownUse) charged(l *headgate.Limit, d *headgate.Decision, units int64, now time.Duration) {
	u.advance(l, int64(d.At))
	if others := int64(u.state.Used) - max(0, l.Capacity()-d.Remaining-units); others > 0 {
		u.state = algorithm.Refund(l, u.state, int64(d.At), others, 0, 0)
	}
	u.fell(int64(d.At), u.atLeast())
	u.state = algorithm.Charge(l, u.state, int64(d.At), units)
	u.heard = now
}

// giveBack takes those of the unused units off that are still in use, and returns how many
// they are. The units were charged at the given time. A refund of them names the time that is
// returned, at which this node's units would have made the bucket full. So the store gives
// back no more than this node has in use when the refund arrives.
func (u *ownUse) giveBack(l *headgate.Limit, charged headgate.Instant, unused int64, now time.Duration) (units int64, at headgate.Instant) {
	if passed := now - u.heard; passed > 0 {
		u.advance(l, u.at+passed.Microseconds())
		u.heard = now
	}
	units = min(unused, int64(u.state.Used))
	for i := range u.lows {
		if u.lows[i].at > int64(charged) {
			units = min(units, u.lows[i].units)
			break
		}
	}
	if units == 0 {
		return 0, 0
	}
	at = headgate.Instant(u.state.Stamp - fillTime(l, l.Capacity()-int64(u.state.Used)))
	if at <= 0 {
		return 0, 0 // It takes longer to refill than there have been years.
	}
	u.state = algorithm.Refund(l, u.state, u.at, units, 0, 0)
	u.fell(u.at+1, u.atLeast())
	return units, at
}
