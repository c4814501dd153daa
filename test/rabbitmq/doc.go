// Package rabbitmq tests contrib/rabbitmq against a real RabbitMQ: memory alarms, restarts of
// the broker, crashes of consumers, and messages that nobody can handle.
package rabbitmq
