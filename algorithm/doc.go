// Package algorithm holds the arithmetic of limits as pure functions: state,
// limit, cost and time in, state and decision out. Nothing here reads a clock,
// locks or does I/O, so every store that uses these steps decides alike.
//
// # Basics
//
// A decision has four steps. [Advance] brings a counter's [State] up to now;
// [Fits] says whether a cost is admitted; [Charge] adds it; [Describe] tells a
// caller what is left and when more will be. All or nothing over several limits
// is a matter of calling Fits for each before Charge for any. Only an admitted
// take and a refund change what is stored, and a clock that stepped back: see
// [Moved].
//
// The exact sliding window keeps a [Log] instead of a State, one for all windows
// of a rule. A [Word] is the state of a bucket in 64 bits, for a store that changes it by
// compare-and-swap.
//
// Several lists of limits of one rule can share a counter. For sliding windows a [Span] says what the
// log remembers for which list, and a token or leaky bucket that lists of different rates share is a
// [Bucket]. A [Counter] is either of the two forms in which a limit that is no sliding window is kept.
//
// # Arithmetic
//
// Times are microseconds since the Unix epoch, and everything is an integer. A
// bucket's state is the instant at which a whole number of units was in use,
// kept to the fraction of a microsecond that the rate needs (Extra counts 1/num
// of one, for a rate of num units per den microseconds). Refill is then a
// quotient whose remainder is carried, never rounded. Products have up to 128
// bits here; the scripts for Redis reach the same quotients digit by digit.
//
// # The sliding counter's error
//
// A sliding_counter takes the units of the fixed window before as if they had come
// evenly. Their true place is unknown, so within the part f of that window which
// the sliding window still covers, the estimate may be off by f times those units
// upwards, and by (1 - f) times them downwards. What follows for a limit of Count:
//
// No fixed window admits more than Count, and no window of length period, wherever
// it begins, more than 2·Count - 1. That worst case takes a caller who spends the
// whole limit at the very end of one window and of the next. After the end of a
// window whose units came at its beginning, up to Count units may be refused that an
// exact window would admit.
//
// Measured: where units come independently of one another, at 0.8 to 10 times a
// limit of 100, no period holds more than 1.16 times the limit, and in the long run
// as many are admitted as by an exact window, to within one in a hundred.
//
// # Caveats
//
// A clock that steps back neither frees nor freezes a counter. Units that were
// charged in what is now the future count as charged now; a fixed window that has
// not begun by the stepped clock goes on, if it begins within a period; else its
// count moves to the window that the clock is in. What has left
// a sliding window by the time of its newest unit does not come back.
package algorithm
