// Package load sends requests to a service at given times, and measures how the service copes.
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
// [Client.Search] looks for the highest rate that a service sustains.
//
// # How it works
//
// The loop is open: when a request is sent does not depend on when others are answered. One
// goroutine, the pacer, waits until a request is due and hands it to a free worker. Each worker has
// one request in flight. A latency is measured from the instant at which the request was due to the
// end of its answer. So if a service stalls, the wait of all later requests counts as their
// latency.
//
// The lag of the sender itself is measured separately. It lasts from the instant at which the
// request was due and a worker was free to the instant at which the request is sent. If the sender
// lags too much, the measurement is invalid, because its latencies would be blamed on the service.
//
// # Caveats
//
// Requests that find all workers busy wait for one, and this wait is part of their latency.
// [Measurement.Waited] counts such requests. A request that has waited for the timeout is given up
// without being sent.
//
// If the target is on the same machine, it competes with the sender for cores. The sender's lag
// shows that.
package load
