// Package limiterbench compares limiters: those that keep their counters in the process, and those
// that keep them in Redis.
//
// # Basics
//
// [Memory] and [Redis] ask all contenders about the same sequences of keys, each of which is held
// to one of two limits. [Combined] compares decisions that share script calls with a call for each.
// A contender is one function that opens it, in ours.go or peers.go. If it admits or denies wrongly
// even once, the run ends: the time of a wrong answer is worth nothing.
//
// # Caveats
//
// Contenders do not all do the same: their notes say who decides what. In memory, each decision
// goes through one function value, which costs every contender the same one or two
// nanoseconds. The row "(harness alone)" shows how much that is. In Redis, server and clients share
// the machine, so that throughput is what both manage together. CPU time for each decision travels
// better to other machines.
package limiterbench
