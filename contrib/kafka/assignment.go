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

// listed are partitions as the client wants them.
func listed(partitions []*partition) map[string][]int32 {
	by := make(map[string][]int32)
	for _, p := range partitions {
		by[p.topic] = append(by[p.topic], p.number)
	}
	return by
}

// assigned is called by the client, never while a poll is taken in.
func (c *Consumer) assigned(_ context.Context, _ *kgo.Client, added map[string][]int32) {
	if len(added) == 0 {
		return
	}
	c.lock()
	defer c.unlock()
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
		c.tell(func() { h(added) })
	}
}

// begins is told by the client where it will begin, which is what the lag is counted
// from until a record was handled.
func (c *Consumer) begins(_ context.Context, offsets map[string]map[int32]kgo.Offset) (map[string]map[int32]kgo.Offset, error) {
	c.lock()
	defer c.unlock()
	for topic, numbers := range offsets {
		for n, offset := range numbers {
			if p := c.partitions[place{topic, n}]; p != nil {
				p.begin = offset.EpochOffset().Offset // below 0 where it is not a number yet
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

// grace is for how long handlers may take to end once their contexts have.
const grace = time.Second

// remove ends an assignment: what is being handled is waited for, so that the next owner
// handles nothing before it is done here, and so is what came before it, so that all that
// was handled can be committed. What else waits is dropped. Nothing is committed of
// partitions that are lost.
func (c *Consumer) remove(removed map[string][]int32, ours bool) {
	if len(removed) == 0 {
		return
	}
	gone := c.forget(removed, ours)
	timeout := time.NewTimer(c.config.Drain)
	defer timeout.Stop()
	if !ours {
		// Nobody waits for these handlers: the next owner has begun.
		timeout.Reset(0)
	}
	waitIdle(gone, timeout.C)
	c.lock()
	for _, p := range gone {
		p.over = true
		p.settle()
		p.cancel()
	}
	c.unlock()
	last := time.NewTimer(grace)
	defer last.Stop()
	waitIdle(gone, last.C)

	c.lock()
	for _, p := range gone {
		c.counts.Abandoned += uint64(p.running)
	}
	c.unlock()
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

// forget takes partitions out of the state, with everything that was counted and paused
// for them.
func (c *Consumer) forget(removed map[string][]int32, ours bool) []*partition {
	var gone []*partition
	c.lock()
	defer c.unlock()
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
			// Where the next owner has begun already there is nothing to finish.
			p.gone, p.over = true, !ours
			p.settle()
			gone = append(gone, p)
		}
	}
	// A pause would outlive the assignment, and nobody would resume the next one.
	c.client.ResumeFetchPartitions(removed)
	c.signal()
	return gone
}

// waitIdle waits until no handler of the partitions runs, or until the time has come.
func waitIdle(partitions []*partition, end <-chan time.Time) {
	for _, p := range partitions {
		select {
		case <-p.idle:
		case <-end:
			return
		}
	}
}

// committer commits what is done until the context ends. What is done after that is
// committed when the partitions are given up.
func (c *Consumer) committer(ctx context.Context) {
	ticker := time.NewTicker(c.config.CommitEvery)
	defer ticker.Stop()
	for {
		select {
		case <-ticker.C:
		case <-ctx.Done():
			return
		}
		// One that has begun goes on when the consumer ends.
		within, cancel := context.WithTimeout(context.WithoutCancel(ctx), closing)
		c.commit(within, c.assignment)
		cancel()
	}
}

// assignment is every partition. The caller holds the lock.
func (c *Consumer) assignment() []*partition {
	all := make([]*partition, 0, len(c.partitions))
	for _, p := range c.partitions {
		all = append(all, p)
	}
	return all
}

// commitAgain is the wait before the last commit of partitions is tried again.
const commitAgain = 50 * time.Millisecond

// commit commits what is done of partitions, which are asked for under the lock. It
// reports whether trying again may help.
func (c *Consumer) commit(ctx context.Context, of func() []*partition) (again bool) {
	c.committing.Lock()
	defer c.committing.Unlock()
	offsets := make(map[string]map[int32]kgo.EpochOffset)
	byPlace := make(map[place]*partition)
	c.lock()
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
	c.unlock()
	if len(offsets) == 0 {
		return false
	}
	c.client.CommitOffsetsSync(ctx, offsets, func(_ *kgo.Client, _ *kmsg.OffsetCommitRequest, answer *kmsg.OffsetCommitResponse, err error) {
		c.lock()
		defer c.unlock()
		if err != nil {
			c.counts.CommitErrors++
			c.trouble(fmt.Errorf("kafka: committing: %w", err))
			return
		}
		for _, t := range answer.Topics {
			for _, a := range t.Partitions {
				if err := kerr.ErrorForCode(a.ErrorCode); errors.Is(err, kerr.RebalanceInProgress) {
					again = true // what stays is committed in a moment
				} else if err != nil {
					again = again || kerr.IsRetriable(err)
					c.counts.CommitErrors++
					c.trouble(fmt.Errorf("kafka: committing partition %d of %q: %w", a.Partition, t.Topic, err))
				} else if p := byPlace[place{t.Topic, a.Partition}]; p != nil {
					p.committed = offsets[t.Topic][a.Partition]
				}
			}
		}
	})
	return again
}

// lookAtEnds is how often the ends of partitions are asked for: fetches tell them too, but
// not of partitions that are paused, or while there is no room.
const lookAtEnds = 5 * time.Second

// watchEnds asks for the ends of the assigned partitions until the context ends.
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
		c.lock()
		topics := make(map[string]bool)
		for at := range c.partitions {
			topics[at.topic] = true
		}
		c.unlock()
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
		c.lock()
		if err != nil {
			c.trouble(fmt.Errorf("kafka: asking for the ends of partitions: %w", err))
		}
		ends.Each(func(o kadm.ListedOffset) {
			if p := c.partitions[place{o.Topic, o.Partition}]; p != nil && o.Err == nil {
				p.end = max(p.end, o.Offset)
			}
		})
		c.unlock()
	}
}
