package kafka_test

import (
	"errors"
	"fmt"

	"github.com/twmb/franz-go/pkg/kgo"

	"github.com/headgate/headgate"
	"github.com/headgate/headgate/contrib/kafka"
)

func ExampleNew() {
	_, err := kafka.New(kafka.Config{
		Brokers: []string{"127.0.0.1:9092"},
		Group:   "billing",
		Topics:  []string{"orders"},
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
	r := &kgo.Record{Topic: "orders.dead", Headers: []kgo.RecordHeader{
		{Key: kafka.HeaderTopic, Value: []byte("orders")},
		{Key: kafka.HeaderPartition, Value: []byte("3")},
		{Key: kafka.HeaderOffset, Value: []byte("1042")},
		{Key: kafka.HeaderReason, Value: []byte("the order is empty")},
		{Key: kafka.HeaderAttempts, Value: []byte("4")},
	}}
	if o, ok := kafka.OriginOf(r); ok {
		fmt.Printf("%s/%d/%d failed %d times: %s\n", o.Topic, o.Partition, o.Offset, o.Attempts, o.Reason)
	}
	// Output:
	// orders/3/1042 failed 4 times: the order is empty
}
