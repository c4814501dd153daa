// Package backendbench measures the stores that are not Redis beside it: PostgreSQL,
// with and without what makes it forget nothing, and memcached.
//
// # Basics
//
// [Start] starts the servers, [Run] asks all of them in turns: for one key, which
// everybody wants, and for many.
//
// # Caveats
//
// Servers and client share the machine, and PostgreSQL the disk with all else: what a
// durable commit costs is what that disk costs. There is no network: each round trip
// comes on top, two of them for a decision of PostgreSQL or memcached, one for Redis.
package backendbench
