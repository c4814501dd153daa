package algorithm

import (
	"time"

	"github.com/headgate/headgate"
)

// The lower bits of a penalty's Extra count blocks. The other bits hold the longest block, in
// seconds, rounded up, of all lists of limits that have counted denials in this state. So a list
// with shorter blocks does not shorten those of another list.
const (
	blocksBits = 6
	blocksMask = 1<<blocksBits - 1
	maxBlocks  = 32 // 2^32 ms is longer than any block
)

// seconds returns the longest block of a limit in seconds, rounded up.
func seconds(l *headgate.Limit) int64 {
	return int64((max(l.Block, l.MaxBlock) + time.Second - 1) / time.Second)
}

// longestBlock returns the longest block that a penalty with state s can be in.
func longestBlock(l *headgate.Limit, s State) Micros {
	if kept := s.Extra >> blocksBits; kept != 0 && kept != seconds(l) {
		return Micros(kept) * 1e6
	}
	return Micros(max(l.Block, l.MaxBlock).Microseconds())
}

// advancePenalty clears the state once the longest block has passed since the last period or block
// ended. If the clock has stepped back, the period or block ends no later than the longest block,
// or a period if that is longer, after now.
func advancePenalty(l *headgate.Limit, s State, now headgate.Instant) State {
	longest := longestBlock(l, s)
	if now >= plus(s.Stamp, longest) {
		return State{}
	}
	s.Stamp = min(s.Stamp, plus(now, max(longest, periodOf(l))))
	return s
}

// blocked reports whether a penalty denies at now. The state must have been
// advanced to now.
func blocked(l *headgate.Limit, s State, now headgate.Instant) bool {
	return s.Used >= l.Count && now < s.Stamp
}

// Punish counts a denial by another limit of the rule. s is the state of the penalty, which must
// have been advanced to now and must not block.
func Punish(l *headgate.Limit, s State, now headgate.Instant) State {
	if now >= s.Stamp {
		s.Stamp, s.Used = plus(now, periodOf(l)), 0
	}
	blocks := s.Extra & blocksMask
	s.Extra = blocks | max(s.Extra>>blocksBits, seconds(l))<<blocksBits
	if s.Used++; s.Used < l.Count {
		return s
	}
	s.Used = l.Count
	// This halves the bound instead of doubling the block. After some blocks of half an hour or
	// more, the doubled block would overflow an integer.
	block := max(l.Block, l.MaxBlock).Microseconds()
	if first := l.Block.Microseconds(); first <= block>>blocks {
		block = first << blocks
	}
	s.Stamp = plus(now, Micros(block))
	if blocks < maxBlocks {
		s.Extra++
	}
	return s
}

func describePenalty(d *headgate.Decision, l *headgate.Limit, s State, now headgate.Instant) {
	d.Allowed = !blocked(l, s, now)
	d.Remaining, d.ResetAfter = l.Count, 0
	if s.IsZero() {
		return
	}
	d.ResetAfter = (minus(s.Stamp, now) + longestBlock(l, s)).Duration()
	if now < s.Stamp {
		d.Remaining = max(0, l.Count-s.Used)
	}
	if !d.Allowed {
		d.RetryAfter = minus(s.Stamp, now).Duration()
	}
}
