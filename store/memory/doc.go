// Package memory is a [headgate.Store] in this process: sharded, bounded, and
// free of allocations on the way to a decision.
//
// # Basics
//
//	store := memory.New()
//	limiter := headgate.New(store, headgate.MustRule("login", headgate.PerMinute(20)))
//
// Counters are kept in open-addressed tables of 32-byte entries without
// pointers, so that a garbage collection does not walk them. An entry is found
// by a 64-bit hash of rule, key and limit with a seed of this process. Two keys
// of the same hash would share a counter, and so be limited sooner, never later;
// with a million keys the chance that any two do is one in ten million.
//
// # Memory
//
// Idle counters are dropped while their neighbours are in use. When the bound of
// [WithMaxBytes] is reached, nothing is evicted, because an evicted counter is a
// fresh allowance: new keys share counters instead, four for each limit in each of
// the store's 256 shards, and are limited together. A key that has a counter keeps
// it, and one that gets its own when memory is free again finds what was used of
// the shared one used. A refund or a reset of a key that shares gives nothing back,
// since it would be to others.
//
// The log of a sliding window then adds new units to its newest entry, which
// delays when they become free again. Both refuse earlier than they should and
// never admit more. [Store.Stats] counts them.
//
// The bound may be exceeded by as much as a quarter, where tables grew before logs
// did and others grow behind them, and by the shared counters themselves.
//
// # Caveats
//
// Counters are lost when the process ends. Several processes do not share them:
// use store/redis for that. A store that is not called at all keeps the memory
// it has.
//
// Reset forgets the counters of the limits that the rule has. Those of limits that
// it had before, and may get again, stay until they are free.
package memory
