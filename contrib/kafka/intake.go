package kafka

import (
	"context"
	"errors"
	"fmt"
	"math"
	"time"

	"github.com/twmb/franz-go/pkg/kgo"
)

// errBehind is the reason of records in the side topic.
var errBehind = errors.New("the partition is too far behind")

// poll fetches and takes in until the context ends. It never waits for a handler: only
// for records to come, and for room. While there is no room the client fetches ahead as
// much as fetchSize allows, and the group's heartbeats go on, which do not need the
// loop.
func (c *Consumer) poll(ctx context.Context) error {
	for ctx.Err() == nil {
		n := c.hasRoom(ctx)
		if n == 0 {
			break
		}
		fetches := c.client.PollRecords(ctx, n)
		if ctx.Err() == nil {
			// Rebalances are blocked from the poll until here, so that what was fetched
			// under one assignment is not taken for another's.
			c.accept(fetches)
		}
		c.client.AllowRebalance()
		if fetches.IsClientClosed() {
			return kgo.ErrClientClosed
		}
	}
	return nil
}

// hasRoom waits until records may be taken in, and returns how many; 0 if the context has
// ended.
func (c *Consumer) hasRoom(ctx context.Context) int {
	for {
		c.lock()
		n, bytes := c.config.MaxRecords-c.records, c.byteRoom()
		c.unlock()
		if n > 0 && bytes >= 0 {
			// Half of it, so that the first partition that comes does not take all
			// before it can be paused.
			return max(n/2, min(n, c.config.MaxRecords/100), 1)
		}
		select {
		case <-c.room:
		case <-ctx.Done():
			return 0
		}
	}
}

// byteRoom is how many bytes may still be held, if negative none. What a fetch may bring is
// kept free twice: for what the client has, and for what it asks for once that is taken.
func (c *Consumer) byteRoom() int64 {
	return c.config.MaxBytes - 2*c.config.MaxBytes/fetchPart - c.bytes
}

// accept takes in what was fetched. Rebalances are blocked.
func (c *Consumer) accept(fetches kgo.Fetches) {
	back := make(map[string]map[int32]kgo.EpochOffset)
	c.lock()
	now := time.Now()
	fetches.EachPartition(func(t kgo.FetchTopicPartition) {
		if t.Err != nil {
			if t.Topic == "" { // it is of none
				c.trouble(fmt.Errorf("kafka: consuming as group %q: %w", c.config.Group, t.Err))
			} else {
				c.trouble(fmt.Errorf("kafka: fetching partition %d of %q: %w", t.Partition, t.Topic, t.Err))
			}
		}
		p := c.partitions[place{t.Topic, t.Partition}]
		if p == nil {
			return
		}
		if len(t.Records) > 0 {
			p.end = t.HighWatermark
		}
		for _, r := range t.Records {
			if c.until(p, r, now) > hold {
				c.putOff(p, r, back)
				break
			}
			c.takeIn(p, r, now)
		}
		c.release(p)
	})
	c.regulate(now)
	c.unlock()
	// Not under the lock, which callbacks of the client may wait for.
	c.client.SetOffsets(back)
}

// takeIn takes one record in. The caller holds the lock.
func (c *Consumer) takeIn(p *partition, r *kgo.Record, now time.Time) {
	it := &item{record: r, of: p, size: size(r), since: now}
	shed := c.sheds(p, r)
	it.done = shed && c.config.Behind.Topic == ""
	c.records++
	c.bytes += it.size
	if shed {
		if h := c.config.Hooks.Shed; h != nil {
			c.tell(func() { h(r) })
		}
		if it.done {
			c.counts.Skipped++
		} else {
			it.letter = c.letter(it, c.config.Behind.Topic, errBehind, time.Time{})
			it.sent = func() { c.counts.Detoured++ }
		}
	}
	if p.add(it, c.config.Order) {
		c.submit(it)
	}
}

// release gives back the room of what is done.
func (c *Consumer) release(p *partition) {
	records, bytes := p.advance()
	if records > 0 && !p.gone { // what is gone does not count any more
		c.records -= records
		c.bytes -= bytes
		c.signal()
	}
}

// sheds reports whether a record is to be skipped or detoured.
func (c *Consumer) sheds(p *partition, r *kgo.Record) bool {
	b := &c.config.Behind
	if b.Lag == 0 || p.tier >= 0 {
		return false
	}
	lag := p.end - r.Offset
	switch {
	case lag >= b.Lag:
		p.behind = true
	case lag <= b.Until:
		p.behind = false
	}
	if !p.behind || b.Keep != nil && b.Keep(r) {
		return false
	}
	if b.Sample == 0 {
		return true
	}
	p.shed++
	return (p.shed-1)%uint64(b.Sample) != 0
}

// hold is how early a record of a retry topic may be taken in; it then waits here. One
// that is due later is left to Kafka.
const hold = time.Second

// until is how long a record of a retry topic has to wait for its delay.
func (c *Consumer) until(p *partition, r *kgo.Record, now time.Time) time.Duration {
	if p.tier < 0 {
		return 0
	}
	due := r.Timestamp.Add(c.config.Retry.Tiers[p.tier].Delay)
	if o, ok := OriginOf(r); ok && o.Due.Before(due) {
		due = o.Due
	}
	return due.Sub(now)
}

// putOff has the partition of a retry topic fetched again from a record on, when that is
// due. All records of a tier have the same delay, so those after it are due no sooner.
func (c *Consumer) putOff(p *partition, r *kgo.Record, back map[string]map[int32]kgo.EpochOffset) {
	p.due = time.Now().Add(c.until(p, r, time.Now()))
	c.counts.Waits++
	c.client.PauseFetchPartitions(listed([]*partition{p}))
	if back[p.topic] == nil {
		back[p.topic] = make(map[int32]kgo.EpochOffset)
	}
	back[p.topic][p.number] = kgo.EpochOffset{Epoch: -1, Offset: r.Offset}
}

// fetchPart is the part of MaxBytes that what is being fetched may take: an eighth. As
// much is kept free for what a fetch brings before the next one is sized.
const fetchPart = 8

const (
	minFetch     = 32 << 10
	maxFetch     = 50 << 20
	maxPartition = 1 << 20
)

// fetchSize says how many bytes a fetch may have so that the records in it do not take
// more memory than all fetches together may: compressed records and small ones take
// many times what the broker sends.
func fetchSize(budget int64, brokers int, expansion float64) (whole, partition int32) {
	n := float64(budget) / fetchPart / float64(max(brokers, 1)) / max(expansion, 1)
	w := int32(min(max(n, minFetch), maxFetch))
	// Several partitions shall have a place in a fetch.
	return w, min(w/4, maxPartition)
}

// expansion is a hook of the client that learns how much larger records are than what
// the broker sends.
type expansion struct{ c *Consumer }

// OnFetchBatchRead implements [kgo.HookFetchBatchRead]. It is called by the client's
// goroutines.
func (e expansion) OnFetchBatchRead(_ kgo.BrokerMetadata, _ string, _ int32, m kgo.FetchBatchMetrics) {
	if m.CompressedBytes <= 0 {
		return
	}
	now := float64(m.UncompressedBytes+overhead*m.NumRecords) / float64(m.CompressedBytes)
	for {
		bits := e.c.expansion.Load()
		before := math.Float64frombits(bits)
		// Up at once, since memory is at stake; down by a hundredth of the way.
		after := max(now, before+(now-before)/100)
		if e.c.expansion.CompareAndSwap(bits, math.Float64bits(after)) {
			return
		}
	}
}
