package joblimit_test

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/headgate/headgate"
	"github.com/headgate/headgate/flow"
	"github.com/headgate/headgate/joblimit"
	"github.com/headgate/headgate/policy"
	"github.com/headgate/headgate/store/memory"
)

// A worker sends mails for several tenants: two a day for each tenant, by a policy that changes
// while the worker runs. In a program the sets come from config.Load.
func Example() {
	perDay := func(count int64) *policy.Set {
		set, err := policy.New([]policy.Rule{{
			Limits: headgate.MustRule("mails", headgate.Sliding(count, 24*time.Hour)),
			Match:  []policy.Condition{policy.Equal("queue", "mails")},
			Per:    []policy.Part{{Entry: "tenant"}},
		}})
		if err != nil {
			panic(err)
		}
		return set
	}
	rules := policy.NewSource(perDay(2))
	jobs, err := joblimit.New(joblimit.Config{Name: "mails", Store: memory.New(), Rules: rules})
	if err != nil {
		panic(err)
	}
	send := func(tenant string) {
		permit, err := jobs.Acquire(context.Background(), joblimit.Job{Entries: policy.Descriptor{
			{Name: "queue", Value: "mails"}, {Name: "tenant", Value: tenant},
		}})
		var rejection *flow.Rejection
		if errors.As(err, &rejection) {
			fmt.Println(tenant, "again in", rejection.RetryAfter.Round(time.Hour))
			return
		}
		if err != nil {
			panic(err)
		}
		fmt.Println(tenant, "sent")
		permit.Done(flow.Success)
	}

	send("acme")
	send("acme")
	send("acme")
	send("globex")
	if err := rules.Swap(perDay(3)); err != nil {
		panic(err)
	}
	send("acme")
	// Output:
	// acme sent
	// acme sent
	// acme again in 24h0m0s
	// globex sent
	// acme sent
}

// The gate of a consumer: what a message is about stands in the request, and the policy decides.
func ExampleLimiter_Gate() {
	set, err := policy.New([]policy.Rule{{
		Limits: headgate.MustRule("orders", headgate.Sliding(1, time.Hour)),
		Per:    []policy.Part{{Entry: "customer"}},
	}})
	if err != nil {
		panic(err)
	}
	jobs, err := joblimit.New(joblimit.Config{Name: "orders", Store: memory.New(), Rules: policy.NewSource(set)})
	if err != nil {
		panic(err)
	}
	gate := jobs.Gate(func(r flow.Request) policy.Descriptor {
		return policy.Descriptor{{Name: "topic", Value: "orders"}, {Name: "customer", Value: r.Key}}
	})
	// As kafka.Config{Gate: gate, Request: …}, whose Request sets the Key for each record.
	for _, customer := range []string{"anna", "anna", "bob"} {
		_, err := gate.TryAcquire(context.Background(), flow.Request{Key: customer})
		fmt.Println(customer, err == nil)
	}
	// Output:
	// anna true
	// anna false
	// bob true
}
