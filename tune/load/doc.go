// Package load sends requests to a service at given times, and measures how the service
// bears them.
//
// # Basics
//
//	target, err := load.NewTarget(load.Request{URL: "http://127.0.0.1:8080/"})
//	if err != nil {
//		return err
//	}
//	client, err := load.New(ctx, load.Options{Targets: []*load.Target{target}})
//	if err != nil {
//		return err
//	}
//	defer client.Close()
//	m, err := client.Run(ctx, load.Shape{Rate: 200, For: 30 * time.Second}, nil)
//	fmt.Println(m.Latency.P99, m.Valid)
//
// [Client.Search] looks for the highest rate that a service bears for good.
//
// # How it works
//
// The loop is open: when a request is sent does not depend on when others are answered. One
// goroutine, the pacer, waits for the instant at which a request is due and hands it to a
// worker that is free; each worker has one request in flight. A latency lasts from the
// instant at which the request was due to the end of its answer. So a service that stalls
// pays for all the requests that had to wait meanwhile.
//
// How late the sender itself is, is measured apart: from the instant at which the request
// was due and a worker was free, to the instant at which it is sent. If the sender is too
// late, the measurement is invalid: its latencies would say that the service is slow.
//
// # Caveats
//
// Requests that find all workers busy wait for one, and the time that they wait is part of
// their latency. [Measurement.Waited] counts them. A request that has waited for the timeout
// is given up without being sent.
//
// What sends and what answers share a machine if the target is on it, and take cores from
// each other. A sender that is too late shows that.
package load
