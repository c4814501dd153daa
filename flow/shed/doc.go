// Package shed puts a queue in front of a gate, and sheds what cannot be served well.
//
// # Basics
//
// A [Gate] stands before another one that has no queue of its own, such as one of
// package adaptive. While that is busy, requests wait here:
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
// The queue is short in time, not only in number. A request may wait for
// [Config.Interval]. When nobody has passed a queue quickly for that long, it no longer
// smooths bursts but only adds delay; it stands. Until it is empty, a request may wait
// in it for [Config.Target] only, and the newest goes first, since it is the one whose
// caller is most likely still there. (That is CoDel with last-in-first-out, for each of
// the queues below.) Critical classes wait longer.
//
// Classes are served in order. Within a class, tenants are served in turn: each may use
// a few of the class's 64 queues, by its hash, so that one that sends a lot fills one
// queue, and made-up tenants gain nothing beyond the number of queues.
//
// A request whose deadline leaves no time for the wait and the work is refused at once,
// and not served when its turn comes.
//
// A [Signal] says how short the process is of something. [Scheduler] watches how long
// goroutines wait for a processor, [Throttling] how often the cgroup's quota stops the
// process, [Memory] how long it waits for memory. Pressure sheds the least classes first.
//
// # Caveats
//
// The gate behind is asked under a lock. It must not wait, nor call a store: in a chain,
// put a rate behind this gate, not within it.
//
// All permits of the gate behind should be taken through this one, which looks for who
// is next when one of its own permits is given back, and when a request comes.
//
// Who is refused should not try again: rejections say so with Retry. Pass that on.
package shed
