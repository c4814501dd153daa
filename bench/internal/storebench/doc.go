// Package storebench measures stores: those that are not Redis, and the layers around one.
//
// # Basics
//
// [Backends] compares PostgreSQL and memcached with Redis. [Leases], [Async] and [DenyCache]
// measure what a layer saves in calls, and whether it admits too much. [Outage] measures the
// fallback while the store is well, and while it hangs.
//
// # Caveats
//
// Servers and client share the machine, and PostgreSQL shares the disk with everything else: a
// durable commit costs what it costs on that disk. There is no network. Each round trip comes on
// top: two for a decision of PostgreSQL or memcached, one for a decision of Redis. What a layer
// saves in the network comes on top, too.
package storebench
