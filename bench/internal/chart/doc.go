// Package chart draws the tables of docs/benchmarks.md that say most.
//
// # Basics
//
// [Of] returns the charts of the page as files of SVG by their names. The command bench writes
// them beside the page whenever it has written tables, and a test says when they are stale.
//
// # Caveats
//
// A chart shows figures of one table, or ratios within a table: figures of different tables were
// measured at different times, when the machine was not equally fast.
package chart
