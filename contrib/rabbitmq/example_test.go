package rabbitmq_test

import (
	"errors"
	"fmt"

	amqp "github.com/rabbitmq/amqp091-go"

	"github.com/headgate/headgate"
	"github.com/headgate/headgate/contrib/rabbitmq"
)

func ExampleNew() {
	_, err := rabbitmq.New(rabbitmq.Config{
		Broker:  rabbitmq.Broker{URLs: []string{"amqp://127.0.0.1"}},
		Queue:   rabbitmq.Queue{Name: "orders"},
		Workers: 1_000_000,
	})
	if invalid, ok := errors.AsType[*headgate.InvalidError](err); ok {
		for _, p := range invalid.Problems {
			fmt.Println(p.Field)
		}
	}
	// Output:
	// handle
	// workers
	// dead_letter
}

func ExampleOriginOf() {
	dead := &amqp.Delivery{Headers: amqp.Table{
		rabbitmq.HeaderQueue:    "orders",
		rabbitmq.HeaderReason:   "the order is empty",
		rabbitmq.HeaderAttempts: int64(4),
		rabbitmq.HeaderFailed:   "2026-11-22T12:00:00Z",
		rabbitmq.HeaderTier:     int64(1),
	}}
	if o, ok := rabbitmq.OriginOf(dead.Headers); ok {
		fmt.Printf("%s: failed %d times: %s\n", o.Queue, o.Attempts, o.Reason)
	}
	// Output:
	// orders: failed 4 times: the order is empty
}
