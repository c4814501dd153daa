package kafka

import (
	"context"
	"errors"
	"fmt"
	"math"
	"time"

	"github.com/twmb/franz-go/pkg/kgo"

	"github.com/headgate/headgate/internal/consume"
)

// errBehind is the reason of records in the side topic.
var errBehind = errors.New("the partition is too far behind")

// poll fetches and accepts records until the context ends. It never waits for a handler, only for
// records and for room. While there is no room, the client fetches ahead as much as fetchSize
// allows. The group's heartbeats continue, because they do not need this loop.
func (c *Consumer) poll(ctx context.Context) error {
	for ctx.Err() == nil {
		n := c.hasRoom(ctx)
		if n == 0 {
			break
		}
		fetches := c.client.PollRecords(ctx, n)
		if ctx.Err() == nil {
			// Rebalances are blocked from the poll until here, so that records that were fetched
			// under one assignment are not accepted under another.
			c.accept(fetches)
		}
		c.client.AllowRebalance()
		if fetches.IsClientClosed() {
			return kgo.ErrClientClosed
		}
	}
	return nil
}

// hasRoom waits until records may be accepted, and returns how many. It returns 0 if the context
// has ended.
func (c *Consumer) hasRoom(ctx context.Context) int {
	for {
		c.engine.Lock()
		n, bytes := c.config.MaxRecords-c.records, c.byteRoom()
		c.engine.Unlock()
		if n > 0 && bytes >= 0 {
			// Only half of the room is used, so that the first partition cannot take all of it
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

// byteRoom returns how many bytes may still be held; if negative, none. It keeps the size of a
// fetch free twice: for what the client has fetched, and for what it fetches after that was
// accepted.
func (c *Consumer) byteRoom() int64 {
	return c.config.MaxBytes - 2*c.config.MaxBytes/fetchPart - c.bytes
}

// accept takes over the fetched records. Rebalances are blocked.
func (c *Consumer) accept(fetches kgo.Fetches) {
	back := make(map[string]map[int32]kgo.EpochOffset)
	c.engine.Lock()
	now := time.Now()
	fetches.EachPartition(func(t kgo.FetchTopicPartition) {
		if t.Err != nil {
			if t.Topic == "" { // an error that belongs to no topic
				c.engine.Trouble(fmt.Errorf("kafka: consuming as group %q: %w", c.config.Group, t.Err))
			} else {
				c.engine.Trouble(fmt.Errorf("kafka: fetching partition %d of %q: %w", t.Partition, t.Topic, t.Err))
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
	c.engine.Unlock()
	// This must not run under the lock, for which callbacks of the client may wait.
	c.client.SetOffsets(back)
}

// takeIn adds one record to its partition. The caller holds the lock.
func (c *Consumer) takeIn(p *partition, r *kgo.Record, now time.Time) {
	it := &item{Item: consume.Item[*kgo.Record]{Message: r, Tier: p.tier + 1}, of: p, size: size(r), since: now}
	shed := c.sheds(p, r)
	it.done = shed && c.config.Behind.Topic == ""
	c.records++
	c.bytes += it.size
	if shed {
		if h := c.config.Hooks.Shed; h != nil {
			c.engine.Tell(func() { h(r) })
		}
		if it.done {
			c.counts.Skipped++
		} else {
			c.engine.Forward(it, consume.Letter{To: c.config.Behind.Topic}, errBehind, func() { c.counts.Detoured++ })
		}
	}
	c.engine.Enter(it)
	if p.add(it, c.config.Order) {
		c.submit(it)
	}
}

// release frees the room of records that are done.
func (c *Consumer) release(p *partition) {
	records, bytes := p.advance()
	if records > 0 && !p.gone { // a partition that is gone does not count any more
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

// hold is how long before its time a record of a retry topic is accepted; it then waits here. A
// record that is due later stays in Kafka.
const hold = time.Second

// until returns how long a record of a retry topic still has to wait.
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

// putOff makes the partition of a retry topic continue with record r when r is due. All records of
// a tier have the same delay, so later records are not due earlier.
func (c *Consumer) putOff(p *partition, r *kgo.Record, back map[string]map[int32]kgo.EpochOffset) {
	p.due = time.Now().Add(c.until(p, r, time.Now()))
	c.counts.Waits++
	c.client.PauseFetchPartitions(listed([]*partition{p}))
	if back[p.topic] == nil {
		back[p.topic] = make(map[int32]kgo.EpochOffset)
	}
	back[p.topic][p.number] = kgo.EpochOffset{Epoch: -1, Offset: r.Offset}
}

// Fetches that are under way may take 1/fetchPart of MaxBytes. As much again is kept free for what
// a fetch brings before the next one is sized.
const fetchPart = 8

const (
	minFetch     = 32 << 10
	maxFetch     = 50 << 20
	maxPartition = 1 << 20
)

// fetchSize returns how many bytes a fetch may have, so that the records of all fetches together
// take no more memory than budget. Compressed and small records take many times the bytes that the
// broker sends.
func fetchSize(budget int64, brokers int, expansion float64) (whole, partition int32) {
	n := float64(budget) / fetchPart / float64(max(brokers, 1)) / max(expansion, 1)
	w := int32(min(max(n, minFetch), maxFetch))
	// Several partitions must fit into a fetch.
	return w, min(w/4, maxPartition)
}

// expansion is a hook of the client that measures how much more memory records take than the bytes
// that the broker sends.
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
		// The value rises at once, because memory is at stake, and falls by a hundredth of the
		// difference.
		after := max(now, before+(now-before)/100)
		if e.c.expansion.CompareAndSwap(bits, math.Float64bits(after)) {
			return
		}
	}
}
