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
// # What is stored
//
// Each rule and key has one string, named by prefix, rule name, a space and the
// key, with the state of all the rule's limits. It expires when all of them are
// fully free. A token bucket takes 24 bytes of it; a sliding window 6 bytes for
// each request admitted within its period, or 11 when requests cost more than 8
// units.
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
//
// On a cluster, all keys of a request must be in one slot.
package redis
