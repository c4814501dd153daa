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
// of a rule.
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
// # Caveats
//
// A clock that steps back neither frees nor freezes a counter. Units that were
// charged in what is now the future count as charged now; a fixed window that has
// not begun by the stepped clock goes on, unless the step was longer than a
// period: then its count moves to the window that the clock is in. What has left
// a sliding window by the time of its newest unit does not come back.
package algorithm
