package algorithm

import (
	"time"

	"github.com/headgate/headgate"
)

// Of a penalty's Extra the lower bits count blocks, and the others are the longest block
// of the lists of limits that have counted denials in it, in seconds, rounded up: a list
// whose blocks are shorter must not shorten those of another one.
const (
	blocksBits = 6
	blocksMask = 1<<blocksBits - 1
	maxBlocks  = 32 // 2^32 milliseconds are more than any block
)

// seconds is the longest block of a penalty in seconds, rounded up.
func seconds(l *headgate.Limit) uint32 {
	return uint32((max(l.Block, l.MaxBlock) + time.Second - 1) / time.Second)
}

// longestBlock is the longest block that a penalty of state s can be in.
func longestBlock(l *headgate.Limit, s State) Micros {
	if kept := s.Extra >> blocksBits; kept != 0 && kept != seconds(l) {
		return Micros(kept) * 1e6
	}
	return Micros(max(l.Block, l.MaxBlock).Microseconds())
}

// advancePenalty forgets a key that was not denied for as long as the longest
// block. A clock that has stepped back blocks nobody for longer than that.
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
	return int64(s.Used) >= l.Count && now < s.Stamp
}

// Punish counts a denial by another limit of the rule in the state of a penalty
// that was advanced to now and does not block.
func Punish(l *headgate.Limit, s State, now headgate.Instant) State {
	if now >= s.Stamp {
		s.Stamp, s.Used = plus(now, periodOf(l)), 0
	}
	blocks := s.Extra & blocksMask
	s.Extra = blocks | max(s.Extra>>blocksBits, seconds(l))<<blocksBits
	if s.Used++; int64(s.Used) < l.Count {
		return s
	}
	s.Used = uint32(l.Count)
	// The bound is halved before the block is doubled, which would be too large for an
	// integer after some blocks of half an hour and more.
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
		d.Remaining = max(0, l.Count-int64(s.Used))
	}
	if !d.Allowed {
		d.RetryAfter = minus(s.Stamp, now).Duration()
	}
}
