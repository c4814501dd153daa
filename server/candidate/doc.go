// Package candidate tries a policy beside the one in force.
//
// # Basics
//
// A [Trial] is told of every decision of the service by [decide.Over]. It decides the same request by the candidate policy, on
// counters of its own, and counts where the two differ:
//
//	trial := candidate.New(candidate.Options{Live: live, Policy: policy, Store: store})
//	decider := &decide.Over{Rules: live, Store: counters, Decided: trial.Decided, Settled: trial.Settled}
//	go trial.Run(ctx)
//	…
//	report := trial.Report(true)
//
// What callers are answered depends on the policy in force alone. The way of a
// request is a copy of what the policies look at, and a place in a queue; workers
// do the rest. When the queue is full, decisions are not compared, and are counted
// as dropped.
//
// # What is compared
//
// Take, TakeOnce and Reserve are compared: requests that a list answers, and those
// that no rule binds, among them. Refunds, resets and settlements are done to the
// candidate's counters as well. A peek is nothing to the candidate.
//
// A request of several descriptors ([decide.Parts]) is decided as a whole, by the same
// code as in the service: what binds each of them, what is charged together, and in
// which order. It is compared once, if it takes anything. Refunds among its descriptors
// are done where the candidate admits the rest; peeks have their say.
//
// A request that its caller repeats under one id is charged once here too, and is
// compared each time. A reservation that is settled after the candidate has
// forgotten it keeps its estimate.
//
// # Caveats
//
// Bounds on what is in progress are compared as the policies state them. Requests are not: a
// question to the service ends before the request does.
//
// The candidate's counters begin empty: a window that was half used yesterday is
// not, until it has passed. [Report] says since when they count.
//
// Clients are answered by the policy in force, and behave accordingly: one that
// the candidate would have denied earlier might have gone away earlier.
//
// Requests of one client that are decided within microseconds of each other may
// reach the candidate in another order. At the border of a limit, one of them is
// then newly denied, and another one newly admitted. A refund is done to the
// candidate's counters even if the candidate would have denied what is refunded.
package candidate
