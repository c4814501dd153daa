// Package kafka tests contrib/kafka against a real Apache Kafka: rebalances, crashes of
// consumers and of the broker, and hostile records.
package kafka
