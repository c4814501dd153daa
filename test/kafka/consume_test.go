package kafka_test

import (
	"context"
	"fmt"
	"slices"
	"sync"
	"testing"

	"github.com/twmb/franz-go/pkg/kgo"

	"github.com/headgate/headgate/contrib/kafka"
)

// TestConsumer has one broker for all tests, because a broker takes five seconds of a processor to
// start. Each test has topics and groups of its own.
func TestConsumer(t *testing.T) {
	k := start(t)
	for _, test := range []struct {
		name string
		run  func(t *testing.T, k *cluster)
	}{
		// The broker reads all of its topics again after it was killed: it has few now.
		{"broker killed", brokerKilled},
		{"orders", orders},
		{"oldest first", oldestFirst},
		{"retry topics", retryTopics},
		{"in place", inPlace},
		{"letters that are too large", letterTooLarge},
		{"letters that are too large together", lettersTooLargeTogether},
		{"discarded", discard},
		{"stuck handler", stuckHandler},
		{"stuck partition", stuckPartition},
		{"thresholds", thresholds},
		{"memory", bounded},
		{"larger than the budget", largerThanBudget},
		{"keys", keys},
		{"many partitions", manyPartitions},
		{"rate", rate},
		{"permits", limited},
		{"behind", behind},
		{"topics that are missing", missingTopics},
		{"killed", killed},
		{"rebalances", rebalances},
		{"example", example},
	} {
		t.Run(test.name, func(t *testing.T) { test.run(t, k.of(t)) })
	}
}

// oldestFirst: of what may begin, the oldest does, so that what is done can be committed soon.
func oldestFirst(t *testing.T, k *cluster) {
	topic := k.topic("oldest-first", 1)
	const count = 200
	var records []*kgo.Record
	for i := range count {
		key := "busy" // of the first half
		if i >= count/2 {
			key = fmt.Sprint(i)
		}
		records = append(records, record(topic, 0, key, i))
	}
	k.produce(records...)
	var mu sync.Mutex
	var offsets []int64
	k.run(kafka.Config{
		Topics: []string{topic}, Workers: 1,
		Handle: func(_ context.Context, r *kgo.Record) error {
			mu.Lock()
			defer mu.Unlock()
			offsets = append(offsets, r.Offset)
			return nil
		},
	})
	await(t, "all records are handled", func() bool { mu.Lock(); defer mu.Unlock(); return len(offsets) >= count })
	mu.Lock()
	defer mu.Unlock()
	if !slices.IsSorted(offsets) {
		t.Errorf("records were handled in the order %v", offsets)
	}
}

func orders(t *testing.T, k *cluster) {
	for name, order := range map[string]kafka.Order{"by key": kafka.ByKey, "by partition": kafka.ByPartition, "unordered": kafka.Unordered} {
		t.Run(name, func(t *testing.T) {
			topic := k.topic(fmt.Sprintf("orders-%d", order), 2)
			const count, keys = 2000, 7
			var records []*kgo.Record
			for i := range count {
				records = append(records, record(topic, int32(i%2), fmt.Sprint(i%keys), i))
			}
			k.produce(records...)
			s := newSeen()
			var running [2]peak
			k := k.of(t)
			c := k.run(kafka.Config{
				Group: topic, Topics: []string{topic}, Order: order, Workers: 16,
				Handle: func(_ context.Context, r *kgo.Record) error {
					s.add(r)
					defer running[r.Partition].enter()()
					return nil
				},
			})
			await(t, "all records are handled", func() bool { return s.distinct() == count })
			if err := c.end(); err != nil {
				t.Fatal(err)
			}
			if got := k.committed(topic, topic); got != count {
				t.Errorf("%d records are committed, want %d", got, count)
			}
			for key, offsets := range s.order {
				if order == kafka.ByKey && !slices.IsSorted(offsets) {
					t.Errorf("records of key %s were handled in the order %v", key, offsets)
				}
			}
			for i := range running {
				if n := running[i].most.Load(); order == kafka.ByPartition && n != 1 {
					t.Errorf("%d records of partition %d were handled at a time, want 1", n, i)
				}
			}
		})
	}
}
