module github.com/headgate/headgate/contrib/rabbitmq

go 1.26.0

require (
	github.com/headgate/headgate v0.1.0
	github.com/rabbitmq/amqp091-go v1.16.0
)
