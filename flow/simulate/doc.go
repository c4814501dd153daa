// Package simulate puts gates before a model of a server, in virtual time.
//
// # Basics
//
// A [Scenario] is a server and the requests that come to it. [Run] has a gate stand
// before the server, and returns what came of it: what got done in time, how long it
// took, what the gate's limit was at each moment. All gates meet the same requests, at
// the same instants, with the same demands:
//
//	result := simulate.Run(clock, simulate.Overload(), simulate.Subject{Name: "mine", Gate: gate})
//	fmt.Println(result.Goodput(10*time.Second, 70*time.Second), result.Latency(0.99))
//
// The scenarios are those that limits get wrong in practice: overload, a server that
// loses half of its capacity, stable timeouts, fast failures, long idleness, and others.
//
// # Caveats
//
// Gates read the clock of package time. To run in virtual time, [Run] must be called in
// a bubble of [testing/synctest], and therefore in a test; [Clock] is how it sleeps and
// waits there.
//
// The model is a queue before a number of workers. A real server has caches, locks and
// garbage besides: what fails here fails there, but not the other way round.
package simulate
