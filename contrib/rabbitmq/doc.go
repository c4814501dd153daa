// Package rabbitmq consumes queues of RabbitMQ as fast as a gate allows, and publishes to them
// without losing messages or blocking for ever.
//
// # Basics
//
//	consumer, err := rabbitmq.New(rabbitmq.Config{
//		Broker: rabbitmq.Broker{URLs: []string{"amqp://guest:guest@127.0.0.1/"}},
//		Queue:  rabbitmq.Queue{Name: "orders"},
//		Handle: func(ctx context.Context, d *amqp.Delivery) error {
//			return bill(ctx, d.Body)
//		},
//		Retry:      rabbitmq.Retry{InPlace: 2, Tiers: []rabbitmq.Tier{{Delay: time.Minute}}},
//		DeadLetter: rabbitmq.Queue{Name: "orders.dead"},
//	})
//	if err != nil {
//		return err // it lists every mistake in the configuration
//	}
//	return consumer.Run(ctx) // until ctx ends
//
// A message is acknowledged when it is done: Handle has returned nil, or a retry tier or the
// dead-letter queue has it. Messages are handled concurrently.
//
// A [flow.Gate] decides how many messages are handled at a time and how often: a rate with
// [flow.Rate], permits, an adaptive limit, or a chain of them. Messages that the gate
// refuses wait, and those with another key of [Config.Request] go first.
//
// The number of messages that the Consumer holds ([Prefetch]) follows from how long they take, and
// from the round trip to the broker. Queues, tiers and bindings are declared or checked ([Setup])
// when it connects.
//
// A [Publisher] publishes with confirms over a connection of its own. Publish returns when
// its context ends, whatever the broker does.
//
// # Caveats
//
// A message may be handled more than once: after a crash, after a connection broke, and when a
// handler did not end within Drain. Make Handle idempotent; a [Publisher] gives each message a
// MessageId. docs/rabbitmq.md says how many messages may be repeated.
//
// There is no order. Several messages are handled at a time, and messages that failed are
// overtaken.
//
// A handler that ignores its context cannot be stopped. It keeps its worker.
//
// The functions of a Config other than Handle must be quick, and must not panic.
//
// Package rabbitmqprom has metrics for Prometheus.
package rabbitmq
