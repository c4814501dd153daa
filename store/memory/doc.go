// Package memory is a [headgate.Store] in this process: sharded, bounded, and
// free of allocations on the way to a decision.
//
// # Basics
//
//	store := memory.New()
//	limiter := headgate.New(store, headgate.MustRule("login", headgate.PerMinute(20)))
//
// Counters are kept in open-addressed tables of 32-byte entries without pointers, so the garbage
// collector does not walk them. A check of one limit is decided by one compare-and-swap, without a
// lock, unless the limit is an exact sliding window. The lock of a part of the store is taken by the
// first check of a key, and by some checks of counts above 10^9: the first in a window, those of a
// bucket whose count has few factors in common with the period, now and then, and all checks of more
// units than an entry has room for. That is 2^46 in the window of a sliding counter, 2^39 if it is a
// second long; 2^49 in a fixed window, 2^43 if it is a microsecond long; and a bucket of 2^49 or more
// with a period of more than 25 days.
//
// An entry is found by a 64-bit hash of rule, key and limit with a seed of this process. Two keys
// with the same hash share a counter, and so are limited sooner, never later. With a million keys,
// the chance that any two do is one in ten million.
//
// # Memory
//
// Idle counters are dropped while other counters of their shard are in use. When the bound of
// [MaxBytes] is reached, nothing is evicted, because an evicted counter would be a fresh
// allowance. Instead, new keys share counters, four for each limit in each of the store's 256
// shards, and are limited together. A key that has a counter keeps it. A key that gets its own
// counter when memory is free again begins with the units in use in the shared one. A refund or a
// reset of a key with a shared counter gives nothing back, because the units may belong to other
// keys.
//
// When memory is full, the log of a sliding window adds new units to its newest entry, so older
// units of that entry become free later. Both measures deny earlier than necessary, and never admit
// too much. [Store.Stats] counts them.
//
// The bound may be exceeded by up to a quarter, if some tables grew before the logs did and others
// grow later, and by the shared counters themselves.
//
// # Caveats
//
// Time is that of the monotonic clock since the store was made. Only fixed windows that begin at
// times of the wall clock follow its steps, within a second. The At of a decision is the time of
// the wall clock, which it follows within a minute. Of decisions that overlap, one may be charged
// before another whose At is earlier.
//
// Counters are lost when the process ends. Several processes do not share them: use store/redis for
// that. A store that is not called keeps its memory.
//
// Reset forgets the counters of the rule's present limits. Counters of limits that the rule had
// before, and may get again, stay until they are free.
package memory
