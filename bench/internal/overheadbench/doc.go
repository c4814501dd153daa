// Package overheadbench measures what the middleware adds to the time of a request,
// with its counters in a Redis on the same machine.
//
// # Basics
//
// The same handler is served by three processes: without a limit, behind the
// middleware with the memory store, and behind it with Redis. [Run] finds out how
// many requests a second the last of them answers when it is saturated, and sends
// half as many to each in an open loop: a request is sent when its time has come,
// whether others have been answered or not, and its time counts from when it was
// due.
//
// # Caveats
//
// The load generator and Redis run on the same cores as the servers. What the
// generator takes is in the times of all alike; what Redis takes is not, and on a
// machine of two cores it is most of the difference.
package overheadbench
