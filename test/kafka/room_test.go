package kafka_test

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/twmb/franz-go/pkg/kgo"

	"github.com/headgate/headgate"
	"github.com/headgate/headgate/contrib/kafka"
	"github.com/headgate/headgate/test/servers"
)

// stuckHandler has a handler that never returns: other keys go on, and Run ends in time.
func stuckHandler(t *testing.T, k *cluster) {
	topic := k.topic("stuck-handler", 1)
	release := make(chan struct{})
	var others atomic.Int32
	c := k.run(kafka.Config{
		Topics: []string{topic}, Workers: 4, Drain: 200 * time.Millisecond,
		Handle: func(_ context.Context, r *kgo.Record) error {
			if string(r.Key) == "stuck" {
				<-release // whatever its context says
				return nil
			}
			others.Add(1)
			return nil
		},
	})
	k.produce(record(topic, 0, "stuck", 0))
	for i := range 50 {
		k.produce(record(topic, 0, "other", i))
	}
	await(t, "the other key is done", func() bool { return others.Load() == 50 && c.Stats().Running == 1 })
	if err := c.end(); !errors.Is(err, kafka.ErrAbandoned) {
		t.Errorf("Run returned %v, want that a handler was abandoned", err)
	}
	if n := c.Stats().Abandoned; n != 1 {
		t.Errorf("%d records were abandoned, want 1", n)
	}
	close(release)
	if n := k.committed(topic, topic); n > 0 {
		t.Errorf("offset %d is committed, although the first record is not done", n)
	}
	await(t, "the handler has ended", func() bool { return c.Stats().Running == 0 })
}

// stuckPartition has partitions whose records are never done until later: the others must
// have room, and those must be paused, resumed, and not be paused for the next owner.
func stuckPartition(t *testing.T, k *cluster) {
	topic := k.topic("stuck-partition", 4)
	var stuck atomic.Bool
	stuck.Store(true)
	var fourth atomic.Int32
	config := kafka.Config{
		Topics: []string{topic}, MaxBytes: 1 << 20, MaxRecords: 1000, Order: kafka.ByPartition,
		Retry: kafka.Retry{Backoff: time.Millisecond, MaxBackoff: 20 * time.Millisecond},
		// Members hear by a heartbeat that another one has come.
		Options: []kgo.Opt{kgo.HeartbeatInterval(200 * time.Millisecond)},
		Handle: func(_ context.Context, r *kgo.Record) error {
			if r.Partition < 3 && stuck.Load() {
				return errPartner
			}
			if r.Partition == 3 {
				fourth.Add(1)
			}
			return nil
		},
	}
	c := k.run(config)
	var records []*kgo.Record
	for i := range 3000 {
		records = append(records, record(topic, int32(i%3), "k", i))
	}
	k.produce(records...)
	paused := func(s kafka.Stats) (n int) {
		for _, p := range s.Partitions {
			if p.Paused {
				n++
			}
		}
		return n
	}
	await(t, "what is stuck is paused", func() bool { return paused(c.Stats()) >= 2 })
	records = records[:0]
	for i := range 500 {
		records = append(records, record(topic, 3, "k", i))
	}
	k.produce(records...)
	await(t, "the partition that is not stuck is done", func() bool { return fourth.Load() == 500 })
	if s := c.Stats(); s.Bytes > 1<<20 || s.Records > 1000 {
		t.Errorf("%d records with %d bytes are held, want 1000 and 1 MiB at most", s.Records, s.Bytes)
	}
	// Another member takes some of them over, and this one gets them back.
	other := k.run(config)
	await(t, "the other member has partitions", func() bool { return len(other.Stats().Partitions) > 0 })
	if err := other.end(); err != nil {
		t.Error(err)
	}
	await(t, "all partitions are back", func() bool { return len(c.Stats().Partitions) == 4 })
	stuck.Store(false)
	await(t, "all is done", func() bool { return k.committed(topic, topic) == 3500 })
	await(t, "nothing is paused any more", func() bool { return paused(c.Stats()) == 0 })
}

// thresholds pauses by records, by bytes and by age.
func thresholds(t *testing.T, k *cluster) {
	for name, pause := range map[string]kafka.Pause{
		"records": {Records: 100}, "bytes": {Bytes: 50_000}, "age": {Age: 50 * time.Millisecond},
	} {
		t.Run(name, func(t *testing.T) {
			k := k.of(t)
			topic := k.topic("threshold-"+name, 1)
			release := make(chan struct{})
			// However slow this machine is, it is paused once.
			pause.Dwell, pause.Every = time.Millisecond, time.Hour
			var pauses, resumes atomic.Int32
			c := k.run(kafka.Config{
				Topics: []string{topic}, Pause: pause,
				Handle: func(context.Context, *kgo.Record) error { <-release; return nil },
				Hooks: kafka.Hooks{
					Paused:  func(string, int32) { pauses.Add(1) },
					Resumed: func(string, int32) { resumes.Add(1) },
				},
			})
			var records []*kgo.Record
			for i := range 2000 {
				records = append(records, record(topic, 0, "k", i))
			}
			k.produce(records...)
			await(t, "the partition is paused", func() bool { return pauses.Load() == 1 })
			close(release)
			await(t, "it is resumed, and all is done", func() bool {
				return resumes.Load() == 1 && k.committed(topic, topic) == 2000
			})
			if n := c.Stats().Pauses; n != 1 || pauses.Load() != 1 {
				t.Errorf("%d pauses within an hour, want 1", n)
			}
		})
	}
}

// bounded has more to fetch than there is room for: large records, tiny ones, and ones that
// are compressed well.
func bounded(t *testing.T, k *cluster) {
	for name, value := range map[string][]byte{"large": noise(20_000), "tiny": nil, "compressed": bytes.Repeat([]byte("headgate"), 1000)} {
		t.Run(name, func(t *testing.T) {
			k := k.of(t)
			topic := k.topic("memory-"+name, 3)
			count, budget := 12<<20/(len(value)+256), int64(3<<20)
			var records []*kgo.Record
			for i := range count {
				records = append(records, &kgo.Record{Topic: topic, Partition: int32(i % 3), Key: fmt.Append(nil, i%100), Value: value})
			}
			for chunk := range slices.Chunk(records, 500) { // a batch each, which is fetched whole
				k.produce(chunk...)
			}
			var handled atomic.Int32
			c := k.run(kafka.Config{
				Topics: []string{topic}, MaxBytes: budget, MaxRecords: 1_000_000, Workers: 100,
				Handle: func(context.Context, *kgo.Record) error {
					if n := handled.Add(1); n%100 == 0 {
						time.Sleep(5 * time.Millisecond)
					}
					return nil
				},
			})
			var most int64
			await(t, "all is handled", func() bool {
				s := c.Stats()
				most = max(most, s.Bytes+s.Fetched)
				return int(handled.Load()) >= count
			})
			t.Logf("%d records: at most %.2f of the budget", count, float64(most)/float64(budget))
			if float64(most) > 1.1*float64(budget) {
				t.Errorf("%d bytes were held at most, the budget is %d", most, budget)
			}
		})
	}
}

// largerThanBudget has a record that is larger than all memory that there is: it passes
// alone.
func largerThanBudget(t *testing.T, k *cluster) {
	topic := k.topic("larger", 1, "max.message.bytes", "5000000")
	client, err := kgo.NewClient(kgo.SeedBrokers(k.Addr()), kgo.ProducerBatchMaxBytes(5_000_000))
	if err != nil {
		t.Fatal(err)
	}
	defer client.Close()
	for _, value := range [][]byte{[]byte("before"), noise(3 << 20), []byte("after")} {
		if err := client.ProduceSync(servers.Bounded(t), &kgo.Record{Topic: topic, Key: []byte("k"), Value: value}).FirstErr(); err != nil {
			t.Fatal(err)
		}
	}
	var handled atomic.Int32
	k.run(kafka.Config{
		Topics: []string{topic}, MaxBytes: 1 << 20, MaxRecords: 1,
		Handle: func(context.Context, *kgo.Record) error { handled.Add(1); return nil },
	})
	await(t, "all are done", func() bool { return k.committed(topic, topic) == 3 })
}

// keys has records with an empty key, which have an order, and without a key, which have none.
func keys(t *testing.T, k *cluster) {
	topic := k.topic("keys", 1)
	var running peak
	var null atomic.Int32
	wait := make(chan struct{})
	var once sync.Once
	c := k.run(kafka.Config{
		Topics: []string{topic},
		Handle: func(_ context.Context, r *kgo.Record) error {
			if r.Key == nil {
				if null.Add(1) == 5 {
					once.Do(func() { close(wait) })
				}
				<-wait // until all of them are being handled
				return nil
			}
			defer running.enter()()
			time.Sleep(time.Millisecond)
			return nil
		},
	})
	for range 5 {
		k.produce(&kgo.Record{Topic: topic, Value: []byte("v")}, &kgo.Record{Topic: topic, Key: []byte{}, Value: nil})
	}
	await(t, "all are done", func() bool { return k.committed(topic, topic) == 10 })
	if n := running.most.Load(); n != 1 {
		t.Errorf("%d records with the empty key were handled at a time, want 1", n)
	}
	if s := c.Stats(); s.Records != 0 || s.Bytes != 0 || s.Running != 0 {
		t.Errorf("when all is done there are %+v", s)
	}
}

// manyPartitions has more partitions than there is room for records.
func manyPartitions(t *testing.T, k *cluster) {
	const partitions = 100
	began := time.Now()
	topic := k.topic("many", partitions)
	var records []*kgo.Record
	for i := range 5 * partitions {
		records = append(records, record(topic, int32(i%partitions), fmt.Sprint(i), i))
	}
	k.produce(records...)
	t.Logf("produced after %v", time.Since(began).Round(time.Millisecond))
	s := newSeen()
	c := k.run(kafka.Config{
		Topics: []string{topic}, MaxBytes: 1 << 20, MaxRecords: partitions / 2,
		Handle: func(_ context.Context, r *kgo.Record) error { s.add(r); return nil },
	})
	await(t, "all are assigned", func() bool { return len(c.Stats().Partitions) == partitions })
	t.Logf("assigned after %v", time.Since(began).Round(time.Millisecond))
	await(t, "all are handled", func() bool { return s.distinct() == len(records) })
	t.Logf("handled after %v; %d pauses", time.Since(began).Round(time.Millisecond), c.Stats().Pauses)
	if err := c.end(); err != nil {
		t.Error(err)
	}
	if n := k.committed(topic, topic); n != int64(len(records)) {
		t.Errorf("%d of %d records are committed", n, len(records))
	}
}

// missingTopics are refused, each with the field that names it.
func missingTopics(t *testing.T, k *cluster) {
	topic := k.topic("there", 1)
	c := k.run(kafka.Config{
		Topics: []string{topic, "not-there"}, DeadLetter: "nor-this",
		Handle: func(context.Context, *kgo.Record) error { return nil },
	})
	<-c.done
	invalid, ok := errors.AsType[*headgate.InvalidError](c.err)
	if !ok || len(invalid.Problems) != 2 {
		t.Fatalf("Run returned %v, want that two topics are missing", c.err)
	}
	fields := map[string]bool{invalid.Problems[0].Field: true, invalid.Problems[1].Field: true}
	if !fields["topics[1]"] || !fields["dead_letter"] {
		t.Errorf("fields %v", fields)
	}
}
