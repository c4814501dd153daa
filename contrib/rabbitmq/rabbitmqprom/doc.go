// Package rabbitmqprom has the Prometheus metrics of consumers and publishers of package
// rabbitmq.
//
// # Basics
//
//	consumer, err := rabbitmq.New(config)
//	if err != nil {
//		return err
//	}
//	registry.MustRegister(rabbitmqprom.New(consumer))
//
// [NewPublisher] does the same for a publisher. Metrics are read when they are scraped.
//
// # Caveats
//
// Two consumers in a process need a label that tells them apart, and so do two publishers:
// register each with [prometheus.WrapRegistererWith].
package rabbitmqprom
