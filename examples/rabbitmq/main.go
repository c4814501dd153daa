// Command rabbitmq places orders in a queue and bills them. The partner who does the billing
// takes 50 orders a second; an order that fails is tried again, first at once and then a
// second later, and ends in a dead-letter queue. Queues and bindings are made when they are
// missing.
//
//	go run . amqp://guest:guest@127.0.0.1/ place 120
//	go run . amqp://guest:guest@127.0.0.1/ bill
//
// The second one ends at SIGINT or SIGTERM, when the orders that it has begun are done.
package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/signal"
	"strconv"
	"sync"
	"syscall"
	"time"

	amqp "github.com/rabbitmq/amqp091-go"

	"github.com/headgate/headgate"
	"github.com/headgate/headgate/contrib/rabbitmq"
	"github.com/headgate/headgate/flow"
	"github.com/headgate/headgate/store/memory"
)

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	if err := run(ctx, os.Args[1:]); err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
}

func run(ctx context.Context, args []string) error {
	switch {
	case len(args) == 2 && args[1] == "bill":
		return bill(ctx, args[0])
	case len(args) == 3 && args[1] == "place":
		count, err := strconv.Atoi(args[2])
		if err != nil {
			return err
		}
		return place(ctx, args[0], count)
	}
	return errors.New("usage: rabbitmq URL bill, or rabbitmq URL place COUNT")
}

// Both sides describe what they need. Whoever comes first makes it.
var (
	shop   = rabbitmq.Exchange{Name: "shop", Kind: "topic"}
	orders = rabbitmq.Queue{Name: "orders", MaxLength: 100_000, DeadLetter: "orders.dead"}
	dead   = rabbitmq.Queue{Name: "orders.dead"}
	route  = rabbitmq.Binding{Exchange: "shop", Key: "order.*", Queue: "orders"}
)

// place returns when the broker has confirmed every order.
func place(ctx context.Context, url string, count int) error {
	publisher, err := rabbitmq.NewPublisher(rabbitmq.PublisherConfig{
		Broker: rabbitmq.Broker{URLs: []string{url}, Name: "shop"},
		Topology: rabbitmq.Topology{
			Exchanges: []rabbitmq.Exchange{shop}, Queues: []rabbitmq.Queue{dead, orders}, Bindings: []rabbitmq.Binding{route},
		},
		Hooks: rabbitmq.PublisherHooks{Error: func(err error) { fmt.Fprintln(os.Stderr, err) }},
	})
	if err != nil {
		return err
	}
	var all sync.WaitGroup
	failed := make([]error, count)
	for i := range count {
		all.Go(func() {
			ctx, cancel := context.WithTimeout(ctx, 30*time.Second)
			defer cancel()
			failed[i] = publisher.Publish(ctx, rabbitmq.Message{
				Exchange: "shop", Key: "order.new",
				Publishing: amqp.Publishing{Body: fmt.Appendf(nil, "order %d", i)},
			})
		})
	}
	all.Wait()
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), 5*time.Second)
	defer cancel()
	return errors.Join(append(failed, publisher.Close(ctx))...)
}

func bill(ctx context.Context, url string) error {
	// Several processes together keep the limit if they share a store, such as Redis.
	partner := headgate.New(memory.New(), headgate.MustRule("partner", headgate.Sliding(50, time.Second)))
	consumer, err := rabbitmq.New(rabbitmq.Config{
		Broker:    rabbitmq.Broker{URLs: []string{url}, Name: "billing"},
		Queue:     orders,
		Exchanges: []rabbitmq.Exchange{shop},
		Bindings:  []rabbitmq.Binding{route},
		Handle:    billOne,
		Timeout:   10 * time.Second,
		Gate:      flow.Rate("partner", partner),
		Retry: rabbitmq.Retry{
			InPlace: 1,
			Tiers:   []rabbitmq.Tier{{Delay: time.Second}},
		},
		DeadLetter: dead,
		Hooks: rabbitmq.Hooks{
			Error:        func(err error) { fmt.Fprintln(os.Stderr, err) },
			DeadLettered: func(d *amqp.Delivery, err error) { fmt.Printf("given up %q: %v\n", d.Body, err) },
		},
	})
	if err != nil {
		return err
	}
	return consumer.Run(ctx)
}

// billOne is called for several orders at a time.
func billOne(_ context.Context, d *amqp.Delivery) error {
	if len(d.Body) == 0 {
		return errors.New("the order is empty")
	}
	fmt.Printf("billed %s\n", d.Body)
	return nil
}
