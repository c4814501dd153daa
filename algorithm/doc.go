// Package algorithm holds the arithmetic of limits as pure functions. They take a state, a limit, a
// cost and a time, and return a state or a decision. Nothing here reads a clock, locks or does I/O,
// so all stores that use these functions decide alike.
//
// # Basics
//
// A decision has four steps. [Advance] brings a counter's [State] up to now. [Fits] says whether a
// cost is admitted. [Charge] adds it. [Describe] tells the caller how many units are left, and when
// there will be more. To charge several limits or none, a store calls Fits for each limit before it
// calls Charge for any. Only an admitted take, a refund, and a clock that has stepped back change
// what is stored; see [Moved].
//
// The exact sliding window keeps a [Log] instead of a State. All sliding windows of a rule share
// one Log. A [Word] is the state of a bucket in 64 bits, for a store that changes it by
// compare-and-swap.
//
// Several lists of limits of one rule can share a counter. For sliding windows, a [Span] says for
// how long the log remembers units for a list. A token or leaky bucket that lists of different
// rates share is a [Bucket]. A [Counter] is either a State or a Bucket, for limits that are not
// sliding windows.
//
// # Arithmetic
//
// Times are in microseconds since the Unix epoch, and all numbers are integers. A bucket's state is
// the instant at which a whole number of units was in use. The instant has a fraction of a
// microsecond, which Extra counts in 1/num µs, for a rate of num units per den microseconds. A
// refill is a division whose remainder is carried over, so nothing is lost by rounding. Products
// have up to 128 bits here. The scripts for Redis compute the same quotients digit by digit.
//
// # The sliding counter's error
//
// A sliding_counter assumes that the units of the fixed window before came evenly. Their true times
// are unknown. While the sliding window still covers the part f of that window, the estimate may be
// too high by f × units, or too low by (1 - f) × units. For a limit of Count, this means:
//
// No fixed window admits more than Count. No window of length period, wherever it begins, admits
// more than 2·Count - 1. In that worst case, a caller spends the whole limit at the very end of one
// window, and of the next. If all units of a window came at its beginning, up to Count units that
// an exact window would admit may be refused after its end.
//
// Measured with independent arrivals at 0.8 to 10 times a limit of 100: no period holds more than
// 1.16 times the limit. In the long run, the number of admitted units differs by less than one
// percent from that of an exact window.
//
// # Caveats
//
// A clock that steps back neither frees nor freezes a counter. Units that were charged in what is
// now the future count as charged now. A fixed window that has not begun by the stepped clock stays
// in use if it begins within one period; otherwise its count moves to the window that contains the
// time of the clock. A unit that has left a sliding window by the time of the newest unit does not
// come back.
//
// # Reasons
//
// A list of limits that is alone needs no slot of its own in a shared bucket, and no span in a
// shared log until it has been charged beside another one: what is common costs nothing that only
// the rare case needs.
package algorithm
