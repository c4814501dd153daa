package kafka

import (
	"context"
	"time"

	"github.com/twmb/franz-go/pkg/kgo"
)

// overhead is what a record costs besides its bytes: its struct, its item and the places
// where it is listed.
const overhead = 256

// item is one record on its way. The Consumer's lock guards it, except that whoever
// runs it may read the record, the letter and alone.
type item struct {
	record *kgo.Record
	of     *partition
	lane   *lane // nil if the record has no order
	size   int64
	since  time.Time // when it came here
	tries  int       // that have failed
	done   bool
	parked bool // until it is tried again
	// letter is what to produce instead of handling the record, and sent what to count
	// then.
	letter *kgo.Record
	sent   func()
	alone  bool // the letter must be alone in its batch
}

// lane is what must be handled one after the other. Its first item is on its way, the
// others wait for it.
type lane struct {
	key   string
	items []*item
}

// partition is one assignment of a partition. When it is revoked and assigned again,
// there is a new one. The Consumer's lock guards it.
type partition struct {
	topic  string
	number int32
	tier   int // the place of its topic among the tiers, or -1

	ctx    context.Context // of its handlers
	cancel context.CancelFunc

	// window is what has been fetched and not committed, by offset: its first item is
	// not done. All of it counts as held, which also bounds what may come twice.
	window []*item
	bytes  int64
	lanes  map[string]*lane

	running int           // handlers
	begun   int64         // the last offset that was handled, or is being
	gone    bool          // revoked, lost, or the Consumer stops
	over    bool          // gone, and nothing may begin any more
	idle    chan struct{} // closed when it is gone and all has ended that is waited for
	settled bool          // idle is closed

	// next is what to commit, and committed what was. next.Offset is -1 at first.
	next, committed kgo.EpochOffset
	// begin is where fetching began and end is the end of the partition in Kafka, as last
	// seen. They are negative if that is not known.
	begin, end int64

	paused   bool
	pausedAt time.Time // the last one's beginning
	// low is where to resume, decided when it was paused.
	lowRecords int
	lowBytes   int64
	due        time.Time // when the first record of a tier is due; zero unless waiting for it

	behind bool
	shed   uint64 // how many records were looked at while it was behind
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
		return max(p.end-p.window[0].record.Offset, 0)
	case p.begin >= 0:
		return max(p.end-p.begin, 0)
	}
	return -1
}

// add takes an item in, and reports whether it may go on its way now. An item that is
// done already only waits for those before it.
func (p *partition) add(it *item, order Order) bool {
	p.window = append(p.window, it)
	p.bytes += it.size
	if it.done {
		return false
	}
	var key string
	switch {
	case order == Unordered, order == ByKey && it.record.Key == nil:
		return true
	case order == ByKey:
		key = string(it.record.Key)
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

// wants reports whether an item may still begin. When a partition is gone, only what
// comes before something that was handled already may: it would hold back the commit, and
// what was handled after it would be handled again.
func (p *partition) wants(it *item) bool {
	return !p.gone || !p.over && it.record.Offset < p.begun
}

// settle closes idle if there is nothing to wait for any more.
func (p *partition) settle() {
	if !p.gone || p.settled || p.running > 0 {
		return
	}
	for _, it := range p.window {
		first := it
		if it.lane != nil && len(it.lane.items) > 0 {
			first = it.lane.items[0]
		}
		// What is tried again later is not waited for, nor what comes after that.
		if !it.done && !first.parked && p.wants(it) {
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

// advance drops what is done from the beginning of the window, and returns how many
// records and bytes that were.
func (p *partition) advance() (records int, bytes int64) {
	for records < len(p.window) && p.window[records].done {
		it := p.window[records]
		bytes += it.size
		p.next = kgo.EpochOffset{Epoch: it.record.LeaderEpoch, Offset: it.record.Offset + 1}
		p.window[records] = nil
		records++
	}
	p.window = p.window[records:]
	if len(p.window) == 0 {
		p.window = nil // what was appended to may be much larger
	}
	p.bytes -= bytes
	return records, bytes
}

// size is what a record counts with in MaxBytes.
func size(r *kgo.Record) int64 {
	n := overhead + len(r.Key) + len(r.Value)
	for _, h := range r.Headers {
		n += len(h.Key) + len(h.Value)
	}
	return int64(n)
}
