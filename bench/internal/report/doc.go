// Package report turns measurements into the tables of docs/benchmarks.md.
//
// # Basics
//
// [Median] sums up the rounds of one cell, [Table] lays cells out in Markdown,
// and [Replace] puts the result between two markers of a file whose other text
// was written by hand:
//
//	<!-- bench:memory begin -->
//	…
//	<!-- bench:memory end -->
//
// # Caveats
//
// A median hides how far the rounds lie apart; [Spread] tells it, and belongs
// beside every table.
package report
