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
// If a process has two consumers, or two publishers, their metrics need a label that distinguishes
// them: register each with [prometheus.WrapRegistererWith].
package rabbitmqprom
