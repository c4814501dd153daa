// Package kafkaprom has the Prometheus metrics of a consumer of package kafka.
//
// # Basics
//
//	consumer, err := kafka.New(config)
//	if err != nil {
//		return err
//	}
//	registry.MustRegister(kafkaprom.New(consumer))
//
// Metrics are read from the consumer when they are scraped. The gauges of a partition exist only
// while it is assigned to this process.
//
// # Caveats
//
// If a process has two consumers, their metrics need a label that distinguishes them: register each
// with [prometheus.WrapRegistererWith].
//
// Each assigned partition has six gauges. If a process has thousands of partitions, keep only the
// topics that matter, by relabelling.
package kafkaprom
