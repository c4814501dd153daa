package accesslog

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"math"
	"slices"
	"time"
)

// Next returns the next requests, ordered by time, and io.EOF after the last. The caller must
// release the stretch before the next call.
func (l *Log) Next() (*Stretch, error) {
	for {
		if err := l.ctx.Err(); err != nil {
			return nil, context.Cause(l.ctx)
		}
		src, err := l.behind()
		if err != nil {
			return nil, err
		}
		if src != nil {
			if err := l.take(src); err != nil {
				return nil, err
			}
		}
		if l.emit(src == nil) {
			return &l.out, nil
		}
		if src == nil && len(l.pending) == 0 {
			return nil, io.EOF
		}
	}
}

// behind returns the file whose reading has progressed the least in time, or nil if all were read.
func (l *Log) behind() (*source, error) {
	for {
		var least *source
		for _, s := range l.open {
			if least == nil || s.frontier < least.frontier {
				least = s
			}
		}
		if n := len(l.waiting); n > 0 && (least == nil || l.waiting[n-1].at <= least.frontier+l.slack()) {
			if err := l.begin(); err != nil {
				return nil, err
			}
			continue
		}
		return least, nil
	}
}

func (l *Log) slack() int64 { return max(0, l.options.Slack.Microseconds()) }

// take adds the next block of a file to the pending requests.
func (l *Log) take(src *source) error {
	var b *Batch
	var more bool
	select {
	case b, more = <-src.batches:
	case <-l.ctx.Done():
		return context.Cause(l.ctx)
	}
	if !more {
		l.open = slices.DeleteFunc(l.open, func(s *source) bool { return s == src })
		if f := src.file; f.broken != nil {
			l.stats.Broken = append(l.stats.Broken, fmt.Sprintf("%s: %v", f.name, f.broken))
		}
		return errors.Join(src.err, src.file.end())
	}
	select {
	case <-b.ready:
	case <-l.ctx.Done():
		return context.Cause(l.ctx)
	}
	for i := range b.bad {
		if len(l.stats.Samples) < maxBad {
			b.bad[i].Line += src.file.lines
			b.bad[i].File = src.file.name
			l.stats.Samples = append(l.stats.Samples, b.bad[i])
		}
	}
	src.file.lines += int64(b.lines + b.tooLong)
	l.found |= b.found
	l.stats.Lines += int64(b.lines + b.tooLong)
	l.stats.Unreadable += int64(b.badAll + b.tooLong)
	src.frontier = max(src.frontier, b.newest)
	if len(b.records) == 0 {
		l.free <- b
		return nil
	}
	old := len(l.pending)
	for n := range b.records {
		i := b.sorted(n)
		l.pending = append(l.pending, Request{Record: &b.records[i], batch: b, index: int32(i)})
	}
	l.blocks++
	if first := l.pending[old].Time; old > 0 && l.pending[old-1].Time > first {
		from, _ := slices.BinarySearchFunc(l.pending[:old], first+1, func(r Request, at int64) int { return cmp.Compare(r.Time, at) })
		slices.SortStableFunc(l.pending[from:], func(a, b Request) int { return cmp.Compare(a.Time, b.Time) })
	}
	return nil
}

// emit moves pending requests before which no other can come any more to the stretch. It reports
// whether there are any.
func (l *Log) emit(all bool) bool {
	if len(l.pending) == 0 {
		return false
	}
	horizon := int64(math.MaxInt64)
	for _, s := range l.open {
		horizon = min(horizon, s.frontier)
	}
	if n := len(l.waiting); n > 0 {
		horizon = min(horizon, l.waiting[n-1].at)
	}
	if horizon != math.MaxInt64 && l.slack() > 0 {
		horizon -= l.slack()
	}
	n := len(l.pending)
	switch {
	case all:
	case l.blocks > maxPending:
		n /= 2
	default:
		// A second can be spread only when all of its requests are known.
		edge := horizon
		if edge != math.MaxInt64 {
			edge -= modulo(edge, second)
		}
		n, _ = slices.BinarySearchFunc(l.pending, edge, func(r Request, edge int64) int { return cmp.Compare(r.Time, edge) })
	}
	if n == 0 {
		return false
	}
	l.out.Requests = append(l.out.Requests[:0], l.pending[:n]...)
	l.pending = l.pending[:copy(l.pending, l.pending[n:])]
	l.place(l.out.Requests)
	return true
}

const second = int64(time.Second / time.Microsecond)

// place spreads the requests of each second, and updates the counts.
func (l *Log) place(requests []Request) {
	for i := 0; i < len(requests); {
		at := requests[i].Time
		n := i + 1
		for n < len(requests) && requests[n].Time == at {
			n++
		}
		group := requests[i:n]
		step := int64(0)
		if !group[0].Fine {
			step = second
		}
		for j := range group {
			r := &group[j]
			if r.Time < l.clock {
				l.stats.Late++
				r.Time = l.clock
			}
			if l.clock = r.Time; !r.Fine {
				l.stats.Coarse++
			}
			r.Spread = max(l.spread, r.Time+step*int64(j)/int64(len(group)))
			l.spread = r.Spread
			if r.batch.left--; r.batch.left == 0 {
				l.out.release = append(l.out.release, r.batch)
				l.blocks--
			}
		}
		i = n
	}
}

// modulo is never negative.
func modulo(a, m int64) int64 {
	if a %= m; a < 0 {
		a += m
	}
	return a
}
