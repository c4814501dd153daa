package kafka

import (
	"context"
	"time"

	"github.com/twmb/franz-go/pkg/kgo"

	"github.com/headgate/headgate/internal/consume"
)

// overhead is the memory that a record takes in addition to its bytes: its struct, its item and its
// places in lists.
const overhead = 256

// item is one record in progress. The Consumer's lock guards it.
type item struct {
	consume.Item[*kgo.Record]
	of    *partition
	lane  *lane // nil if the record has no order
	size  int64
	since time.Time // when the record was accepted
	done  bool
}

// lane holds items that must be handled one after the other. Its first item is in progress, and the
// others wait for it.
type lane struct {
	key   string
	items []*item
}

// partition is one assignment of a partition. If the partition is revoked and assigned again, there
// is a new one. The Consumer's lock guards it.
type partition struct {
	topic  string
	number int32
	tier   int // the index of its topic in the tiers, or -1

	ctx    context.Context // of its handlers
	cancel context.CancelFunc

	// window has the records that were fetched and cannot be committed yet, by offset. Its first
	// item is not done. The whole window counts as held, which also bounds how many records may be
	// repeated.
	window []*item
	bytes  int64
	lanes  map[string]*lane

	running int           // the number of running handlers
	begun   int64         // the highest offset that was handled or is being handled
	gone    bool          // revoked, lost, or the Consumer stops
	over    bool          // gone, and nothing may begin any more
	idle    chan struct{} // closed when it is gone and everything to wait for has ended
	settled bool          // idle is closed

	// next is the offset to commit, and committed the last one committed. next.Offset is -1 at
	// first.
	next, committed kgo.EpochOffset
	// begin is the offset at which fetching began, and end the end of the partition in Kafka, as
	// last seen. They are negative if not known.
	begin, end int64

	paused   bool
	pausedAt time.Time // the beginning of the last pause
	// lowRecords and lowBytes say when to resume. They are set when the partition is paused.
	lowRecords int
	lowBytes   int64
	due        time.Time // when the first record of a tier is due; zero if none is waited for

	behind bool
	shed   uint64 // how many records sheds has looked at while the partition was behind
}

func newPartition(parent context.Context, topic string, number int32, tier int) *partition {
	p := &partition{
		topic: topic, number: number, tier: tier, begin: -1, end: -1, begun: -1,
		lanes: make(map[string]*lane), idle: make(chan struct{}),
		next: kgo.EpochOffset{Offset: -1}, committed: kgo.EpochOffset{Offset: -1},
	}
	p.ctx, p.cancel = context.WithCancel(parent)
	return p
}

func (p *partition) lag() int64 {
	switch {
	case p.end < 0:
		return -1
	case p.next.Offset >= 0:
		return max(p.end-p.next.Offset, 0)
	case len(p.window) > 0:
		return max(p.end-p.window[0].Message.Offset, 0)
	case p.begin >= 0:
		return max(p.end-p.begin, 0)
	}
	return -1
}

// add adds an item, and reports whether it may begin now. An item that is done already only waits
// for those before it.
func (p *partition) add(it *item, order Order) bool {
	p.window = append(p.window, it)
	p.bytes += it.size
	if it.done {
		return false
	}
	var key string
	switch {
	case order == Unordered, order == ByKey && it.Message.Key == nil:
		return true
	case order == ByKey:
		key = string(it.Message.Key)
	}
	l := p.lanes[key]
	if l == nil {
		l = &lane{key: key}
		p.lanes[key] = l
	}
	it.lane = l
	l.items = append(l.items, it)
	return len(l.items) == 1
}

// wants reports whether an item may still begin. When a partition is gone, only items before one
// that was handled already may. Otherwise they would hold back the commit, and the items that were
// handled after them would be handled again. Nobody waits then for an item's next try.
func (p *partition) wants(it *item) bool {
	return !p.gone || !p.over && !it.Parked && it.Message.Offset < p.begun
}

// runs and ran enclose the time in which an item asks the gate or runs.
func (p *partition) runs(it *item) {
	p.running++
	p.begun = max(p.begun, it.Message.Offset)
}

func (p *partition) ran() {
	p.running--
	p.settle()
}

// settle closes idle if there is nothing left to wait for.
func (p *partition) settle() {
	if !p.gone || p.settled || p.running > 0 {
		return
	}
	for _, it := range p.window {
		first := it
		if it.lane != nil && len(it.lane.items) > 0 {
			first = it.lane.items[0]
		}
		// An item that waits for its next try is not waited for, nor are those behind it in its
		// lane.
		if !it.done && !first.Parked && p.wants(it) {
			return
		}
	}
	p.settled = true
	close(p.idle)
}

// finish marks an item as done, and returns the item that was waiting for it, or nil.
func (p *partition) finish(it *item) *item {
	it.done = true
	l := it.lane
	if l == nil {
		return nil
	}
	l.items[0] = nil
	l.items = l.items[1:]
	if len(l.items) == 0 {
		delete(p.lanes, l.key)
		return nil
	}
	return l.items[0]
}

// advance removes the items at the beginning of the window that are done, and returns their number
// and size.
func (p *partition) advance() (records int, bytes int64) {
	for records < len(p.window) && p.window[records].done {
		it := p.window[records]
		bytes += it.size
		p.next = kgo.EpochOffset{Epoch: it.Message.LeaderEpoch, Offset: it.Message.Offset + 1}
		p.window[records] = nil
		records++
	}
	p.window = p.window[records:]
	if len(p.window) == 0 {
		p.window = nil // frees an array that may have grown large
	}
	p.bytes -= bytes
	return records, bytes
}

// size returns the size with which a record counts in MaxBytes.
func size(r *kgo.Record) int64 {
	n := overhead + len(r.Key) + len(r.Value)
	for _, h := range r.Headers {
		n += len(h.Key) + len(h.Value)
	}
	return int64(n)
}
