// Command kafka bills the orders of a topic. The partner who does the billing takes 50
// orders a second; an order that fails is tried again, first at once and then a second
// later, and ends in a dead-letter topic. The topics orders, orders.retry and orders.dead
// must exist.
//
//	go run . 127.0.0.1:9092
//
// It ends at SIGINT or SIGTERM, when the orders that it has begun are done.
package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/signal"
	"syscall"
	"time"

	"github.com/twmb/franz-go/pkg/kgo"

	"github.com/headgate/headgate"
	"github.com/headgate/headgate/contrib/kafka"
	"github.com/headgate/headgate/flow"
	"github.com/headgate/headgate/store/memory"
)

func main() {
	if len(os.Args) != 2 {
		fmt.Fprintln(os.Stderr, "usage: kafka BROKER")
		os.Exit(2)
	}
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	if err := consume(ctx, os.Args[1]); err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
}

func consume(ctx context.Context, broker string) error {
	// Several processes together keep the limit if they share a store, such as Redis.
	partner := headgate.New(memory.New(), headgate.MustRule("partner", headgate.Sliding(50, time.Second)))
	consumer, err := kafka.New(kafka.Config{
		Brokers: []string{broker},
		Group:   "billing",
		Topics:  []string{"orders"},
		Handle:  bill,
		Timeout: 10 * time.Second,
		Gate:    flow.Rate("partner", partner),
		Retry: kafka.Retry{
			InPlace: 1,
			Tiers:   []kafka.Tier{{Topic: "orders.retry", Delay: time.Second}},
		},
		DeadLetter: "orders.dead",
		Hooks: kafka.Hooks{
			Error:        func(err error) { fmt.Fprintln(os.Stderr, err) },
			DeadLettered: func(r *kgo.Record, err error) { fmt.Printf("given up %s: %v\n", r.Value, err) },
		},
	})
	if err != nil {
		return err
	}
	return consumer.Run(ctx)
}

// bill is called for several orders at a time, but never for two with the same key.
func bill(_ context.Context, r *kgo.Record) error {
	if len(r.Value) == 0 {
		return errors.New("the order is empty")
	}
	fmt.Printf("billed %s\n", r.Value)
	return nil
}
