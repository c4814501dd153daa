// Package kafka consumes Kafka topics with bounded memory, in order, as fast as a gate allows,
// without losing records.
//
// # Basics
//
//	consumer, err := kafka.New(kafka.Config{
//		Brokers: []string{"127.0.0.1:9092"},
//		Group:   "billing",
//		Topics:  []string{"orders"},
//		Handle: func(ctx context.Context, r *kgo.Record) error {
//			return bill(ctx, r.Value)
//		},
//		Retry:      kafka.Retry{InPlace: 2, Tiers: []kafka.Tier{{Topic: "orders.retry", Delay: time.Minute}}},
//		DeadLetter: "orders.dead",
//	})
//	if err != nil {
//		return err // it lists every mistake in the configuration
//	}
//	return consumer.Run(ctx) // until ctx ends
//
// Records with the same key are handled in order, other records concurrently ([Order]). A record is
// committed when it and all records before it in its partition are done: Handle has returned nil,
// or the record is in a retry topic or in the dead-letter topic.
//
// A [flow.Gate] decides how many records are handled at a time and how often: a rate with
// [flow.Rate], permits, an adaptive limit, or a chain of them. Records that the gate
// refuses wait, and those with another key of [Config.Request] go first.
//
// MaxBytes and MaxRecords bound the memory. A partition that holds much of it is paused, so that
// the others can continue ([Pause]). [Behind] sheds records, for uses in which old records are
// worth little.
//
// # Caveats
//
// A record may be handled more than once: after a crash, and after a rebalance during which a
// handler did not end within Drain. Make Handle idempotent. The topic, partition and offset of a
// record, or those of its [Origin], identify it. docs/kafka.md says how many records may be
// repeated.
//
// Order is kept within a partition, but not in retry topics: records that are sent there are
// overtaken. With Retry.InPlace alone and [Block], order is kept in any case.
//
// A handler that ignores its context cannot be stopped. It keeps its worker and its
// record, and later records of its partition are handled but not committed until the
// partition is paused.
//
// The functions of a Config other than Handle must be quick, and must not panic.
//
// Package kafkaprom has Prometheus metrics for a Consumer.
package kafka
