// Package shed puts a queue in front of a gate, and sheds requests that cannot be served well.
//
// # Basics
//
// A [Gate] stands in front of another gate without a queue, such as one of package adaptive. While
// that gate is busy, requests wait here:
//
//	estimator, err := adaptive.NewKnee(adaptive.KneeConfig{})
//	if err != nil {
//		return err
//	}
//	gate, err := shed.New(adaptive.New("server", estimator), shed.Config{Name: "server"})
//	if err != nil {
//		return err
//	}
//	permit, err := gate.Acquire(ctx, flow.Request{Tenant: account, Class: flow.Sheddable})
//
// The queue is short in time, not only in number. A request may wait for [Config.Interval]. If no
// request has passed a queue quickly for that long, the queue no longer smooths bursts but only
// adds delay: it stands. Until it is empty, a request may wait in it only for [Config.Target], and
// the newest is served first, because its caller is most likely still there. This is CoDel with
// last-in-first-out order, for each of the queues below. Critical classes may wait longer.
//
// Classes are served in order of importance. Within a class, tenants are served in turn. Each
// tenant may use a few of the class's 64 queues, selected by its hash. So a tenant that sends a lot
// fills one queue, and made-up tenants cannot occupy more than all queues.
//
// A request whose deadline leaves no time for the wait and the work is refused at once. The
// deadline is checked again when it is the request's turn.
//
// A [Signal] reports how short the process is of a resource. [Scheduler] measures how long
// goroutines wait for a processor, [Throttling] how often the cgroup's quota stops the process, and
// [Memory] how long processes wait for memory. Pressure sheds the least important classes first.
//
// # Caveats
//
// The gate behind is asked under a lock. It must neither wait nor call a store. To combine it with
// a rate in a chain, put the rate behind this gate, not within it.
//
// Take all permits of the gate behind through this one. It looks for the next waiter when one of
// its own permits is given back, and when a request comes.
//
// Callers that are refused should not try again: see Rejection.Retry, and pass it on.
package shed
