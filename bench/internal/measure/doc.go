// Package measure is what all parts of the benchmark have in common: how contenders are asked in
// turns, what a measurement holds, and how it becomes a column of a table.
//
// # Basics
//
// A [Part] is run with a [Work] and returns a text. Its [Plan] says how often and how long it
// measures. A [Row] is one line of a table: a contender, or a way to ask. [Plan.Turns] measures
// every row in each round and keeps its samples, by condition; each round begins with the next
// row, so that nobody is always first. [Closed] and [Tight] are the loops that callers run in, and
// a [Column] says how the samples of a row become a figure.
//
// To add a part, write its [Part] beside those that are like it, and add a line to the list in
// cmd/bench/parts.go and a pair of markers to the page that it is recorded in.
//
// # Caveats
//
// A ratio is the median of the ratios within each round ([Row.Over]), or the ratio of two medians
// ([Row.Median]). The first one is steadier on a machine that does something else, since what is
// measured in the same round was measured within a short time.
package measure
