package kafka

import (
	"context"
	"math"
	"time"
)

// tick is how often pauses and sizes of fetches are updated, even if no records come.
const tick = 100 * time.Millisecond

// regulator updates pauses and sizes of fetches until the context ends.
func (c *Consumer) regulator(ctx context.Context) {
	ticker := time.NewTicker(tick)
	defer ticker.Stop()
	var fetch int32
	for {
		select {
		case <-ticker.C:
		case <-ctx.Done():
			return
		}
		whole, partition := fetchSize(c.config.MaxBytes, len(c.client.DiscoveredBrokers()), math.Float64frombits(c.expansion.Load()))
		if whole != fetch {
			fetch = whole
			c.client.UpdateFetchMaxBytes(whole, partition)
		}
		c.engine.Lock()
		c.regulate(time.Now())
		c.engine.Unlock()
	}
}

// regulate pauses and resumes partitions. The caller holds the lock. The client is told only under
// the lock: a pause after the partition was revoked would outlast the assignment.
func (c *Consumer) regulate(now time.Time) {
	var pause, resume []*partition
	for _, p := range c.partitions {
		switch {
		case !p.due.IsZero():
			if !now.Before(p.due.Add(-hold / 2)) {
				p.due = time.Time{}
				if !p.paused {
					resume = append(resume, p)
				}
			}
		case p.paused:
			if c.mayResume(p, now) {
				p.paused = false
				resume = append(resume, p)
				c.notify(c.config.Hooks.Resumed, p)
			}
		case c.mustPause(p, now):
			p.paused, p.pausedAt = true, now
			c.counts.Pauses++
			pause = append(pause, p)
			c.notify(c.config.Hooks.Paused, p)
		}
	}
	if len(pause) > 0 {
		c.client.PauseFetchPartitions(listed(pause))
	}
	if len(resume) > 0 {
		c.client.ResumeFetchPartitions(listed(resume))
	}
}

func (c *Consumer) notify(hook func(topic string, partition int32), p *partition) {
	if hook != nil {
		c.engine.Tell(func() { hook(p.topic, p.number) })
	}
}

// A partition with fewer records and bytes is not worth a pause.
const (
	fewRecords = 10
	fewBytes   = 16 << 10
)

// mustPause reports whether to pause the partition, and sets when to resume it.
func (c *Consumer) mustPause(p *partition, now time.Time) bool {
	s := &c.config.Pause
	if len(p.window) == 0 || now.Sub(p.pausedAt) < s.Every {
		return false
	}
	// Without a threshold, a partition may hold as much as is left for all others. So there is room
	// for one more, however much some of them hold. It may always hold half of an equal share. A
	// partition that has the consumer to itself need not leave room.
	records, bytes := s.Records, s.Bytes
	if n := len(c.partitions); n > 1 {
		if records == 0 {
			records = max(c.config.MaxRecords-c.records, c.config.MaxRecords/2/n, fewRecords)
		}
		if bytes == 0 {
			bytes = max(c.byteRoom(), c.config.MaxBytes/2/int64(n), fewBytes)
		}
	}
	p.lowRecords, p.lowBytes = part(records, s.Resume), part(bytes, s.Resume)
	return records > 0 && len(p.window) >= records || bytes > 0 && p.bytes >= bytes ||
		s.Age > 0 && p.held(now) >= s.Age
}

func (c *Consumer) mayResume(p *partition, now time.Time) bool {
	s := &c.config.Pause
	return now.Sub(p.pausedAt) >= s.Dwell &&
		(p.lowRecords < 0 || len(p.window) <= p.lowRecords) && (p.lowBytes < 0 || p.bytes <= p.lowBytes) &&
		(s.Age == 0 || p.held(now) <= part(s.Age, s.Resume))
}

// held returns how long the oldest record has been here.
func (p *partition) held(now time.Time) time.Duration {
	if len(p.window) == 0 {
		return 0
	}
	return now.Sub(p.window[0].since)
}

// part returns the value at which to resume, given a threshold; it is -1 if there is no threshold.
func part[N int | int64 | time.Duration](threshold N, resume float64) N {
	if threshold == 0 {
		return -1
	}
	return N(float64(threshold) * resume)
}
