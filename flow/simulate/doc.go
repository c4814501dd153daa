// Package simulate tests gates in front of a model of a server, in virtual time.
//
// # Basics
//
// A [Scenario] is a server and its requests. [Run] puts a gate in front of the server, and returns
// the results: what got done in time, how long it took, and what the gate's limit was at each
// moment. All gates get the same requests, at the same instants, with the same amounts of work:
//
//	result := simulate.Run(clock, simulate.Overload(), simulate.Subject{Name: "mine", Gate: gate})
//	fmt.Println(result.Goodput(10*time.Second, 70*time.Second), result.Latency(0.99))
//
// The scenarios are those in which limits fail in practice: overload, a server that loses half of
// its capacity, stable timeouts, fast failures, long idle times, mixes of cheap and dear requests
// that change, heavy tails, and others.
//
// # Caveats
//
// Most gates read the clock of package time. To use virtual time, [Run] must be called in a bubble of
// [testing/synctest], and therefore in a test. It sleeps and waits there by means of [Clock]. Gates of
// package adaptive can do without; see [Virtual].
//
// The model is a number of workers, with a queue in front of them or shared by all requests. A real
// server also has caches, locks and garbage. What fails in the model fails in reality, but what works in the model need not.
package simulate
