package kafka

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/twmb/franz-go/pkg/kadm"
	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kgo"
	"github.com/twmb/franz-go/pkg/kmsg"
)

// listed returns partitions in the form that the client expects.
func listed(partitions []*partition) map[string][]int32 {
	by := make(map[string][]int32)
	for _, p := range partitions {
		by[p.topic] = append(by[p.topic], p.number)
	}
	return by
}

// assigned is called by the client, but never while accept takes in what a poll returned.
func (c *Consumer) assigned(_ context.Context, _ *kgo.Client, added map[string][]int32) {
	if len(added) == 0 {
		return
	}
	c.engine.Lock()
	defer c.engine.Unlock()
	for topic, numbers := range added {
		tier := -1
		if i, ok := c.tiers[topic]; ok {
			tier = i
		}
		for _, n := range numbers {
			c.partitions[place{topic, n}] = newPartition(c.life, topic, n, tier)
		}
	}
	if h := c.config.Hooks.Assigned; h != nil {
		c.engine.Tell(func() { h(added) })
	}
}

// begins is called by the client with the offsets at which it begins. The lag counts from there
// until a record was handled.
func (c *Consumer) begins(_ context.Context, offsets map[string]map[int32]kgo.Offset) (map[string]map[int32]kgo.Offset, error) {
	c.engine.Lock()
	defer c.engine.Unlock()
	for topic, numbers := range offsets {
		for n, offset := range numbers {
			if p := c.partitions[place{topic, n}]; p != nil {
				p.begin = offset.EpochOffset().Offset // negative if the offset is not known yet
			}
		}
	}
	return offsets, nil
}

// revoked is called by the client before other members get the partitions.
func (c *Consumer) revoked(_ context.Context, _ *kgo.Client, removed map[string][]int32) {
	c.remove(removed, true)
}

// lost is called by the client when other members may have the partitions already.
func (c *Consumer) lost(_ context.Context, _ *kgo.Client, removed map[string][]int32) {
	c.remove(removed, false)
}

// grace is how long handlers may take to return after their contexts have ended.
const grace = time.Second

// remove ends an assignment. It waits for records that are being handled, so that they have ended
// before the next owner begins. It also waits for earlier records of their partitions, so that all
// handled records can be committed. Other waiting records are dropped. ours says that the
// partitions still belong to this consumer; nothing is committed for partitions that are lost.
func (c *Consumer) remove(removed map[string][]int32, ours bool) {
	if len(removed) == 0 {
		return
	}
	gone := c.forget(removed, ours)
	timeout := time.NewTimer(c.engine.Config.Drain)
	defer timeout.Stop()
	if !ours {
		// Waiting for these handlers is of no use, because the next owner has begun.
		timeout.Reset(0)
	}
	waitIdle(gone, timeout.C)
	c.engine.Lock()
	for _, p := range gone {
		p.over = true
		p.settle()
		p.cancel()
	}
	c.engine.Unlock()
	last := time.NewTimer(grace)
	defer last.Stop()
	waitIdle(gone, last.C)

	c.engine.Lock()
	for _, p := range gone {
		c.counts.Abandoned += uint64(p.running)
	}
	c.engine.Unlock()
	if ours {
		ctx, cancel := context.WithTimeout(context.Background(), closing)
		defer cancel()
		for c.commit(ctx, func() []*partition { return gone }) && ctx.Err() == nil {
			time.Sleep(commitAgain)
		}
	}
	if h := c.config.Hooks.Revoked; h != nil {
		h(removed)
	}
}

// forget removes partitions from the state, with everything that is counted or paused for them.
func (c *Consumer) forget(removed map[string][]int32, ours bool) []*partition {
	var gone []*partition
	c.engine.Lock()
	defer c.engine.Unlock()
	for topic, numbers := range removed {
		for _, n := range numbers {
			at := place{topic, n}
			p := c.partitions[at]
			if p == nil {
				continue
			}
			delete(c.partitions, at)
			c.records -= len(p.window)
			c.bytes -= p.bytes
			// If the next owner has begun already, nothing needs to be finished.
			p.gone, p.over = true, !ours
			p.settle()
			gone = append(gone, p)
		}
	}
	// Otherwise the pause would outlast this assignment, and the next one would never be resumed.
	c.client.ResumeFetchPartitions(removed)
	c.signal()
	return gone
}

// waitIdle waits until no handler of the partitions runs, or until end.
func waitIdle(partitions []*partition, end <-chan time.Time) {
	for _, p := range partitions {
		select {
		case <-p.idle:
		case <-end:
			return
		}
	}
}

// committer commits regularly until the context ends. Records that are done later are committed
// when their partitions are given up.
func (c *Consumer) committer(ctx context.Context) {
	ticker := time.NewTicker(c.config.CommitEvery)
	defer ticker.Stop()
	for {
		select {
		case <-ticker.C:
		case <-ctx.Done():
			return
		}
		// A commit that has begun continues when the consumer ends.
		within, cancel := context.WithTimeout(context.WithoutCancel(ctx), closing)
		c.commit(within, c.assignment)
		cancel()
	}
}

// assignment returns all assigned partitions. The caller holds the lock.
func (c *Consumer) assignment() []*partition {
	all := make([]*partition, 0, len(c.partitions))
	for _, p := range c.partitions {
		all = append(all, p)
	}
	return all
}

// commitAgain is the wait before the last commit of partitions is repeated.
const commitAgain = 50 * time.Millisecond

// commit commits the records that are done in some partitions. of returns these partitions and is
// called under the lock. commit reports whether it may help to try again.
func (c *Consumer) commit(ctx context.Context, of func() []*partition) (again bool) {
	c.committing.Lock()
	defer c.committing.Unlock()
	offsets := make(map[string]map[int32]kgo.EpochOffset)
	byPlace := make(map[place]*partition)
	c.engine.Lock()
	for _, p := range of() {
		if p.next.Offset <= p.committed.Offset {
			continue
		}
		if offsets[p.topic] == nil {
			offsets[p.topic] = make(map[int32]kgo.EpochOffset)
		}
		offsets[p.topic][p.number] = p.next
		byPlace[place{p.topic, p.number}] = p
	}
	c.engine.Unlock()
	if len(offsets) == 0 {
		return false
	}
	c.client.CommitOffsetsSync(ctx, offsets, func(_ *kgo.Client, _ *kmsg.OffsetCommitRequest, answer *kmsg.OffsetCommitResponse, err error) {
		c.engine.Lock()
		defer c.engine.Unlock()
		if err != nil {
			c.counts.CommitErrors++
			c.engine.Trouble(fmt.Errorf("kafka: committing: %w", err))
			return
		}
		for _, t := range answer.Topics {
			for _, a := range t.Partitions {
				if err := kerr.ErrorForCode(a.ErrorCode); errors.Is(err, kerr.RebalanceInProgress) {
					again = true // the partitions that stay are committed in a moment
				} else if err != nil {
					again = again || kerr.IsRetriable(err)
					c.counts.CommitErrors++
					c.engine.Trouble(fmt.Errorf("kafka: committing partition %d of %q: %w", a.Partition, t.Topic, err))
				} else if p := byPlace[place{t.Topic, a.Partition}]; p != nil {
					p.committed = offsets[t.Topic][a.Partition]
				}
			}
		}
	})
	return again
}

// lookAtEnds is how often the ends of partitions are asked for. Fetches tell them too, but not for
// paused partitions, nor while there is no room.
const lookAtEnds = 5 * time.Second

// watchEnds asks for the ends of the assigned partitions regularly until the context ends.
func (c *Consumer) watchEnds(ctx context.Context) {
	ticker := time.NewTicker(lookAtEnds)
	defer ticker.Stop()
	admin := kadm.NewClient(c.client)
	for {
		select {
		case <-ticker.C:
		case <-ctx.Done():
			return
		}
		c.engine.Lock()
		topics := make(map[string]bool)
		for at := range c.partitions {
			topics[at.topic] = true
		}
		c.engine.Unlock()
		names := make([]string, 0, len(topics))
		for topic := range topics {
			names = append(names, topic)
		}
		if len(names) == 0 {
			continue
		}
		within, cancel := context.WithTimeout(ctx, closing)
		ends, err := admin.ListEndOffsets(within, names...)
		cancel()
		if ctx.Err() != nil {
			return
		}
		c.engine.Lock()
		if err != nil {
			c.engine.Trouble(fmt.Errorf("kafka: asking for the ends of partitions: %w", err))
		}
		ends.Each(func(o kadm.ListedOffset) {
			if p := c.partitions[place{o.Topic, o.Partition}]; p != nil && o.Err == nil {
				p.end = max(p.end, o.Offset)
			}
		})
		c.engine.Unlock()
	}
}
