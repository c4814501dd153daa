// Package consistencybench measures what a rule's consistency and the deny cache
// save, and how exact they leave it: two servers of Headgate over one Redis, asked
// about a few keys often and about many now and then.
//
// # Basics
//
// [Run] gives every mode the same requests at the same rate, in an open loop: an
// eighth of them for each of four keys, the rest spread over a long tail. Once the
// limit is far beyond what anybody asks for, so that all are admitted; and once it is
// half of what the four keys ask for. Of those it counts what was admitted by both
// servers together, and holds that against what a token bucket may admit: its burst
// and what it refills from the first request to the last answer.
//
// # Caveats
//
// The load generator, both servers and Redis share the machine's cores. The round
// trip to Redis is that of the loopback: across a network each call that is saved
// saves more.
package consistencybench
