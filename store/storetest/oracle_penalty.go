package storetest

import (
	"math"
	"time"

	"github.com/headgate/headgate"
)

// obviousPenalty is a count of denials that ends at a time, or a block that does.
type obviousPenalty struct {
	denials, until int64
	times          int           // it has blocked
	most           time.Duration // the longest block of those who counted, in whole seconds
}

// longest is the longest block, in µs: the limit's own unless others have counted as well.
func (s *obviousPenalty) longest(l *headgate.Limit) int64 {
	if own := max(l.Block, l.MaxBlock); s.most == 0 || s.most == upToSecond(own) {
		return own.Microseconds()
	}
	return s.most.Microseconds()
}

func upToSecond(d time.Duration) time.Duration {
	if part := d % time.Second; part > 0 {
		d += time.Second - part
	}
	return d
}

// at is the penalty as it stands at now.
func (s *obviousPenalty) at(l *headgate.Limit, now int64) obviousPenalty {
	if quiet := now - s.until; quiet >= s.longest(l) {
		return obviousPenalty{}
	}
	return *s
}

func (s *obviousPenalty) blocks(l *headgate.Limit, now int64) bool {
	p := s.at(l, now)
	return p.denials >= l.Count && now < p.until
}

func (s *obviousPenalty) left(l *headgate.Limit, now int64) int64 {
	if p := s.at(l, now); now < p.until {
		return max(0, l.Count-p.denials)
	}
	return l.Count
}

func (s *obviousPenalty) punish(l *headgate.Limit, now int64) {
	*s = s.at(l, now)
	if now >= s.until {
		s.denials, s.until = 0, now+l.Period.Microseconds()
	}
	s.denials++
	s.most = max(s.most, upToSecond(max(l.Block, l.MaxBlock)))
	if s.denials < l.Count {
		return
	}
	s.denials = l.Count
	block, most := l.Block.Microseconds(), max(l.Block, l.MaxBlock).Microseconds()
	for range s.times {
		block = min(2*block, most)
	}
	s.until, s.times = now+block, s.times+1
}

// free is anything while the penalty does not block, and nothing while it does.
func (s *obviousPenalty) free(l *headgate.Limit, now int64) int64 {
	if s.blocks(l, now) {
		return 0
	}
	return math.MaxInt64
}

// charge and refund leave it as it is, and forget what is over.
func (s *obviousPenalty) charge(l *headgate.Limit, now, _ int64)       { *s = s.at(l, now) }
func (s *obviousPenalty) refund(l *headgate.Limit, now, _, _, _ int64) { *s = s.at(l, now) }

// follow: a block never lasts longer than it may from now.
func (s *obviousPenalty) follow(l *headgate.Limit, now int64) {
	if s.denials > 0 {
		s.until = min(s.until, now+max(s.longest(l), l.Period.Microseconds()))
	}
}

func (s *obviousPenalty) busy(l *headgate.Limit, now int64) int64 {
	if p := s.at(l, now); p.denials > 0 {
		return p.until + p.longest(l) - now
	}
	return 0
}
