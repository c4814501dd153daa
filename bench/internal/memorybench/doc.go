// Package memorybench measures rate limiters that keep their counters in the
// process.
//
// # Basics
//
// [Peers] lists the contenders; [Run] asks each about the same sequences of keys
// and returns what it cost. In every round each contender is opened anew and
// filled with all keys, so that the heap, and with it the garbage collector's
// work, is its own.
//
// # Caveats
//
// Contenders do not all do the same: the notes say who decides what. Each
// decision goes through one function value, which costs every contender the same
// one or two nanoseconds; the row "harness alone" shows how much that is.
package memorybench
