// Package flow puts Headgate's gates beside their peers: in the simulator's scenarios,
// and in what they cost.
//
// # Basics
//
// `make simulate` runs the scenarios of package simulate for each contender, and writes
// docs/flow-simulation.md with its charts. The benchmarks compare the cost of one
// permit:
//
//	go test -bench . -count 5 ./bench/flow
//
// # Caveats
//
// The peers read the clock of package time, and so run in bubbles, in virtual time. The
// BBR of aegis sheds only while the processor is busy, which no bubble can show it: its
// threshold is set so that it always thinks so, which is the best that can be done for
// it. What a peer cannot be told it is not told: a fast failure is a success to all that
// have no outcome for it.
package flow
