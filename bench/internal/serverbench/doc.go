// Package serverbench measures Headgate's servers and its middleware, beside servers that only
// echo or forward.
//
// # Basics
//
// Each contender is a process of its own. [Service], [GRPC], [RLS], [RESP] and [Gateway] saturate
// one after the other and compare the CPU time that the process spends on each request, as the
// kernel accounts it: the load generator shares the machine, but not the account. [Gateway],
// [Overhead] and [Consistency] send requests in an open loop: a request is sent when its time has
// come, whether others have been answered or not, and its time counts from when it was due. So a
// server that stalls is not spared the requests that come meanwhile.
//
// # Caveats
//
// The load generator, and the upstream server or Redis where there is one, run on the same cores
// as the servers. What they take is in the times of all contenders alike, except for what Redis
// takes: on a machine with two cores that is most of the difference between a limit in Redis and
// none. The round trip to Redis is that of the loopback.
//
// A pipeline of RESP is sent in one write, and its answers are read before the next one is sent.
// A client that keeps its pipeline full all the time makes the server read smaller pieces, which
// costs it more.
package serverbench
