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
// Metrics are read from the consumer when they are scraped. The gauges of a partition are
// there for as long as it is assigned to this process, and no longer.
//
// # Caveats
//
// Two consumers in a process need a label that tells them apart: register each with
// [prometheus.WrapRegistererWith].
//
// Each assigned partition has six gauges. With thousands of them a process, keep the
// topics that matter by relabelling.
package kafkaprom
