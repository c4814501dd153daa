// Package redis is a [headgate.Store] in Redis 6.2 or newer, or Valkey, shared by
// any number of processes.
//
// # Basics
//
//	store, err := redis.Open(ctx, "redis://user:password@127.0.0.1:6379/0")
//	if err != nil {
//		return err
//	}
//	defer store.Close()
//	limiter := headgate.New(store, headgate.MustRule("login", headgate.PerMinute(20)))
//
// A decision is one script call, however many rules, limits and keys it has. The
// script reads the server's clock, decides every limit, and charges all of them
// or none. A node with a wrong clock changes nothing.
//
// [Open] reaches a single server, a primary behind Sentinels, or a Cluster, over TLS
// or not. docs/redis.md has the URLs and what to do on the servers.
//
// # On a Cluster
//
// A script reaches the counters of one hash slot. A request that has some in several
// is taken slot by slot, all at once, and if one denies, the others are given back.
// No limit ever admits too much, not even if the process dies in between; the last
// units of one may be refused too early meanwhile. Rules with one tag, see
// [headgate.Rule.WithTag], have their counters in one slot.
//
// # What is stored
//
// Each rule and key has one string, named by prefix, rule name, a space and the
// key, with the state of all the rule's limits. The signs {, } and % of a key are
// written %7B, %7D and %25. The string expires when all of the limits are
// fully free. A token bucket takes 24 bytes of it; a sliding window 6 bytes for
// each request admitted within its period, or 11 when requests cost more than 8
// units.
//
// When many decisions are in flight, those by one check share calls, see
// [Combining]: each is decided by itself, as if it had been alone.
//
// # Caveats
//
// A call is never repeated once it may have reached the server, because it may
// have counted: when the deadline passes, the error wraps
// [headgate.ErrUnavailable], and it is unknown whether the units were charged. A
// missing script (after a failover or SCRIPT FLUSH) is the exception, because
// then nothing was done.
//
// What the server loses is lost: with asynchronous replication a failover forgets
// the last admissions. Set maxmemory-policy to noeviction: an evicted counter is a
// fresh allowance.
//
// The times in a log are kept modulo 2^48 µs, so a server's clock must not step
// back by more than four years while it keeps its data.
package redis
