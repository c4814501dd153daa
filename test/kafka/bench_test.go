package kafka_test

import (
	"context"
	"errors"
	"fmt"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"github.com/IBM/sarama"
	"github.com/twmb/franz-go/pkg/kadm"
	"github.com/twmb/franz-go/pkg/kgo"

	"github.com/headgate/headgate/contrib/kafka"
	"github.com/headgate/headgate/test/servers"
)

// BenchmarkConsumers has consumers read one topic from its beginning to its end: ours, and
// the loops that the examples of franz-go and sarama show. Each begins a group of its own,
// and joining it counts. Handlers do nothing, or take a millisecond.
// With -short there are few records, and the figures mean nothing.
func BenchmarkConsumers(b *testing.B) {
	k := servers.StartKafka(b)
	client, err := kgo.NewClient(kgo.SeedBrokers(k.Addr()), kgo.RecordPartitioner(kgo.ManualPartitioner()))
	if err != nil {
		b.Fatal(err)
	}
	defer client.Close()
	const partitions = 4
	for _, load := range []struct {
		name   string
		count  int
		handle func()
	}{
		{"nothing", 200_000, func() {}},
		{"1ms", 4_000, func() { time.Sleep(time.Millisecond) }},
	} {
		if testing.Short() {
			load.count /= 20
		}
		if _, err := kadm.NewClient(client).CreateTopic(servers.Bounded(b), partitions, 1, nil, load.name); err != nil {
			b.Fatal(err)
		}
		records := make([]*kgo.Record, load.count)
		for i := range records {
			records[i] = &kgo.Record{Topic: load.name, Partition: int32(i % partitions), Key: fmt.Append(nil, i%5000), Value: make([]byte, 100)}
		}
		if err := client.ProduceSync(servers.Bounded(b), records...).FirstErr(); err != nil {
			b.Fatal(err)
		}
		for _, c := range []struct {
			name string
			run  consume
		}{
			{"franz-go, a loop", franzLoop},
			{"sarama, a group", saramaGroup},
			{"Headgate, by partition", ours(kafka.ByPartition)},
			{"Headgate, by key", ours(kafka.ByKey)},
			{"Headgate, unordered", ours(kafka.Unordered)},
		} {
			b.Run(load.name+"/"+c.name, func(b *testing.B) {
				begin, cpu := time.Now(), processorTime(b)
				for round := 0; b.Loop(); round++ {
					var handled atomic.Int64
					ctx, done := context.WithTimeout(b.Context(), within)
					err := c.run(ctx, k.Addr(), fmt.Sprintf("%s-%d-%d", b.Name(), round, begin.UnixNano()), load.name, func() {
						load.handle()
						if handled.Add(1) == int64(load.count) {
							done()
						}
					})
					done()
					if err != nil || handled.Load() < int64(load.count) {
						b.Fatalf("%d of %d records: %v", handled.Load(), load.count, err)
					}
				}
				n := float64(b.N * load.count)
				b.ReportMetric(n/time.Since(begin).Seconds(), "records/s")
				b.ReportMetric(float64((processorTime(b)-cpu).Microseconds())/n, "CPU-µs/record")
			})
		}
	}
}

// consume handles the records of a topic as a group, until the context ends.
type consume func(ctx context.Context, broker, group, topic string, handle func()) error

func ours(order kafka.Order) consume {
	return func(ctx context.Context, broker, group, topic string, handle func()) error {
		c, err := kafka.New(kafka.Config{
			Brokers: []string{broker}, Group: group, Topics: []string{topic}, Order: order, Workers: 64, Exhausted: kafka.Block,
			Handle: func(context.Context, *kgo.Record) error { handle(); return nil },
		})
		if err != nil {
			return err
		}
		return c.Run(ctx)
	}
}

func franzLoop(ctx context.Context, broker, group, topic string, handle func()) error {
	client, err := kgo.NewClient(kgo.SeedBrokers(broker), kgo.ConsumerGroup(group), kgo.ConsumeTopics(topic), kgo.DisableAutoCommit(),
		kgo.ConsumeResetOffset(kgo.NewOffset().AtStart()))
	if err != nil {
		return err
	}
	defer client.Close()
	for ctx.Err() == nil {
		client.PollFetches(ctx).EachRecord(func(*kgo.Record) { handle() })
		if err := client.CommitUncommittedOffsets(context.WithoutCancel(ctx)); err != nil {
			return err
		}
	}
	return nil
}

func saramaGroup(ctx context.Context, broker, group, topic string, handle func()) error {
	config := sarama.NewConfig()
	config.Consumer.Offsets.Initial = sarama.OffsetOldest
	g, err := sarama.NewConsumerGroup([]string{broker}, group, config)
	if err != nil {
		return err
	}
	var failures error
	for ctx.Err() == nil && failures == nil {
		failures = g.Consume(ctx, []string{topic}, claims{handle})
	}
	if errors.Is(failures, context.Canceled) {
		failures = nil
	}
	return errors.Join(failures, g.Close())
}

// claims handles the partitions that sarama has claimed, each in a goroutine of its own.
type claims struct{ handle func() }

func (claims) Setup(sarama.ConsumerGroupSession) error   { return nil }
func (claims) Cleanup(sarama.ConsumerGroupSession) error { return nil }

func (c claims) ConsumeClaim(session sarama.ConsumerGroupSession, claim sarama.ConsumerGroupClaim) error {
	for {
		select {
		case m, ok := <-claim.Messages():
			if !ok {
				return nil
			}
			c.handle()
			session.MarkMessage(m, "")
		case <-session.Context().Done():
			return nil
		}
	}
}

// processorTime is what this process has used of the processors.
func processorTime(b *testing.B) time.Duration {
	b.Helper()
	var u syscall.Rusage
	if err := syscall.Getrusage(syscall.RUSAGE_SELF, &u); err != nil {
		b.Fatal(err)
	}
	return time.Duration(u.Utime.Nano() + u.Stime.Nano())
}
