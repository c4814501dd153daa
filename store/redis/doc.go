// Package redis is a [headgate.Store] in Redis 6.2 or newer, or in Valkey. Any number of processes
// can share it.
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
// A decision is one script call, however many rules, limits and keys it has. The script reads the
// server's clock, decides every limit, and charges all of them or none. So a node with a wrong
// clock does not affect decisions.
//
// [Open] connects to a single server, a primary behind Sentinels, or a Cluster, with or without
// TLS. docs/redis.md describes the URLs and the setup of the servers.
//
// # On a Cluster
//
// A script can use only the counters of one hash slot. If a request has counters in several slots,
// the store makes one call for each slot, all at once. If one of them denies, the store gives back
// what the others have charged. Until then, another request may be denied too early. But no limit
// ever admits too much, not even if the process dies in between. Rules with the same tag have their
// counters in one slot; see [headgate.Rule.WithTag].
//
// # What is stored
//
// For each rule and key there is one string, with the state of all the rule's limits. Its name is
// the prefix, the rule's name, the rule's tag in braces if it has one, a space, and the key. The
// characters {, } and % of a key are written as %7B, %7D and %25. The string expires when all of
// the limits are fully free. A token bucket takes 24 bytes in it. A sliding window takes 6 bytes
// for each request admitted within its period, or 11 bytes when requests cost more than 8 units.
//
// When many decisions are in flight, they share calls; see [Combining]. Each of them is decided by
// itself, as if it had a call of its own.
//
// # Caveats
//
// A call is never repeated once it may have reached the server, because it may have counted. The
// exceptions have charged nothing: a call whose script is missing (after a failover or SCRIPT FLUSH),
// and one that a server refuses because it is a replica, lacks replicas, loads its data, or has no
// slot. If the deadline of a call passes, the error wraps [headgate.ErrUnavailable], and it is
// unknown whether the units were charged.
//
// Counters that the server loses are lost: with asynchronous replication, a failover forgets the
// last admissions. Set maxmemory-policy to noeviction, because a key whose counter is evicted gets
// its full limits again.
//
// The times in a log are kept modulo 2^48 µs. So a server's clock must not be set back by more than
// four years while the server keeps its data.
//
// # Reasons
//
// Creating functions in Lua costs more than calling Redis. So the common shapes have scripts
// without any; when one meets something unusual, it changes nothing and the general script decides.
//
// Lua knows no time zones. Go computes the calendar window of the likely time and sends it along;
// the script uses it only if it contains the real time, so that a wrong clock costs a second call
// and never a wrong decision.
//
// Redis decides and Go explains: a script returns the state that it read, and Go computes remaining
// and the times with package algorithm. Only admission and the next state have to agree between Lua
// and Go.
//
// A request over several slots of a Cluster takes in all of them at once and gives back what it
// took if one denies. Two phases for all requests would let the common case pay for the rare one.
// The refund assumes that the bucket held only these units and takes off what was refilled, because
// any other assumption could free units that others use.
//
// Combined calls have no timer: decisions that arrive while two calls are in flight wait for the
// next one, so batches grow with the time that the server takes. Behind a slow network the server is
// idle meanwhile, and waiting would gain nothing. So as many calls may be in flight as keep it busy
// for a quarter of the time of an answer.
//
// rueidis has a client for Sentinels that is not used, because each attempt to reach a primary that
// is gone leaves a goroutine that tries on.
package redis
