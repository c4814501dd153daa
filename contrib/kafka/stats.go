package kafka

import (
	"slices"
	"strings"
	"time"

	"github.com/twmb/franz-go/pkg/kgo"
)

// Hooks are called as things happen. Any of them may be nil. They run in goroutines of
// the Consumer, several at a time, and must be quick; they may call Stats.
type Hooks struct {
	// Error is called with errors that do not belong to one record: of brokers, the group, commits,
	// or the gate. The Consumer continues by itself.
	Error func(err error)
	// Assigned and Revoked are called with the partitions of each rebalance, by topic. Revoked is
	// called after the handlers of their records have ended.
	Assigned, Revoked func(partitions map[string][]int32)
	// Paused and Resumed are called for each partition.
	Paused, Resumed func(topic string, partition int32)
	// Handled is called after each attempt, with its error and how long it took.
	Handled func(r *kgo.Record, err error, took time.Duration)
	// Retried is called when a record will be tried again after the delay: in place if topic is
	// empty, otherwise from that retry topic.
	Retried func(r *kgo.Record, topic string, delay time.Duration, err error)
	// DeadLettered is called when a record has gone to the dead-letter topic, and Discarded when it
	// was given up without one.
	DeadLettered, Discarded func(r *kgo.Record, err error)
	// Shed is called when a record is skipped or detoured because its partition is behind.
	Shed func(r *kgo.Record)
}

// Stats is a snapshot of a Consumer.
type Stats struct {
	// Running is how many records are being handled. Records and Bytes are the records that wait or
	// are being handled, as MaxRecords and MaxBytes count them. Fetched is what the client has
	// fetched in addition, in bytes.
	Running, Records int
	Bytes, Fetched   int64
	// Partitions are the assigned partitions, by topic and number.
	Partitions []PartitionStats
	Counts
}

// Counts count since the Consumer was made.
type Counts struct {
	// Handled counts attempts, and Failed those that ended in an error. Retried counts retries in
	// place, and Delayed records that went to a retry topic.
	Handled, Failed, Retried, Delayed uint64
	// DeadLettered and Discarded count records whose attempts have all failed. Skipped and Detoured
	// count those that were shed because their partition was behind.
	DeadLettered, Discarded, Skipped, Detoured uint64
	// Pauses counts pauses because of a lack of room. Waits counts waits of retry topics whose
	// first record was not due.
	Pauses, Waits uint64
	// Refused counts refusals by the gate. The record waits and is tried again.
	Refused uint64
	// Abandoned counts records whose handlers did not end in time when their partition was taken
	// away. They may be handled twice, and out of order.
	Abandoned uint64
	// CommitErrors counts commits that failed. Each is repeated.
	CommitErrors uint64
}

// PartitionStats is the state of an assigned partition.
type PartitionStats struct {
	Topic     string
	Partition int32
	// Lag is the number of records from the first that is not done to the end of the partition, as
	// last seen; it is -1 if the end is not known. It counts offsets, so gaps because of compaction
	// and transactions count too.
	Lag int64
	// Oldest is the age of the oldest record that waits or is being handled, by its timestamp. Held
	// is how long it has been here. Both are 0 if there is none.
	Oldest, Held time.Duration
	// Running is how many of its records are being handled; Records and Bytes are as in
	// Stats.
	Running, Records int
	Bytes            int64
	// Paused says that the partition is not fetched, and Behind that its records are shed.
	Paused, Behind bool
}

// Stats is a snapshot.
func (c *Consumer) Stats() Stats {
	now := time.Now()
	c.engine.Lock()
	defer c.engine.Unlock()
	s := Stats{Running: c.engine.Running, Records: c.records, Bytes: c.bytes, Counts: c.counts}
	e := &c.engine.Counts
	s.Handled, s.Failed, s.Retried, s.Delayed = e.Handled, e.Failed, e.Retried, e.Delayed
	s.DeadLettered, s.Discarded, s.Refused = e.DeadLettered, e.Discarded, e.Refused
	if c.client != nil {
		s.Fetched = c.client.BufferedFetchBytes()
	}
	for _, p := range c.partitions {
		ps := PartitionStats{
			Topic: p.topic, Partition: p.number, Lag: p.lag(), Running: p.running,
			Records: len(p.window), Bytes: p.bytes, Paused: p.paused || !p.due.IsZero(), Behind: p.behind,
		}
		if len(p.window) > 0 {
			first := p.window[0]
			ps.Oldest, ps.Held = max(now.Sub(first.Message.Timestamp), 0), now.Sub(first.since)
		}
		s.Partitions = append(s.Partitions, ps)
	}
	slices.SortFunc(s.Partitions, func(a, b PartitionStats) int {
		if by := strings.Compare(a.Topic, b.Topic); by != 0 {
			return by
		}
		return int(a.Partition - b.Partition)
	})
	return s
}
