// Package insightbench measures what it costs to know who uses what, and how right it is.
//
// # Basics
//
// [Run] has a recorder of package insight count decisions, and compares what it says with the
// truth: a million keys of one rule, drawn with the probabilities of Zipf's law, and 10,000 rules
// with a million keys between them.
//
// # Caveats
//
// A decision is counted in two steps, and the second one is done by a goroutine of the recorder.
// The time of a decision is that of the caller, on a machine that has a core for the other.
package insightbench
