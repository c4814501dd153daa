package algorithm

import "github.com/headgate/headgate"

// advancePenalty forgets a key that was not denied for as long as the longest
// block. A clock that has stepped back blocks nobody for longer than that.
func advancePenalty(l *headgate.Limit, s State, now int64) State {
	longest := l.Longest().Microseconds()
	if now >= s.Stamp+longest {
		return State{}
	}
	if reach := max(longest, l.Micros()); s.Stamp > now+reach {
		s.Stamp = now + reach
	}
	return s
}

// blocked reports whether a penalty denies at now. The state must have been
// advanced to now.
func blocked(l *headgate.Limit, s State, now int64) bool {
	return int64(s.Used) >= l.Count && now < s.Stamp
}

// Punish counts a denial by another limit of the rule in the state of a penalty
// that was advanced to now and does not block.
func Punish(l *headgate.Limit, s State, now int64) State {
	if now >= s.Stamp {
		s.Stamp, s.Used = now+l.Micros(), 0
	}
	if s.Used++; int64(s.Used) < l.Count {
		return s
	}
	s.Used = uint32(l.Count)
	// The bound is halved before the block is doubled, which would be too large for an
	// integer after some blocks of half an hour and more.
	block := l.Longest().Microseconds()
	if first := l.Block.Microseconds(); first <= block>>s.Extra {
		block = first << s.Extra
	}
	s.Stamp = now + block
	s.Extra = min(s.Extra+1, 32) // 2^32 milliseconds are more than any block
	return s
}

func describePenalty(d *headgate.Decision, l *headgate.Limit, s State, now int64) {
	d.Allowed = !blocked(l, s, now)
	d.Remaining, d.ResetAfter = l.Count, 0
	if s.IsZero() {
		return
	}
	d.ResetAfter = micros(s.Stamp + l.Longest().Microseconds() - now)
	if now < s.Stamp {
		d.Remaining = max(0, l.Count-int64(s.Used))
	}
	if !d.Allowed {
		d.RetryAfter = micros(s.Stamp - now)
	}
}
