// Package respbench measures what one check costs Headgate's server over Redis's
// protocol, beside the same server over HTTP and gRPC.
//
// # Basics
//
// The servers run and are measured as those of package servicebench are: each is a
// process of its own, saturated in turn, and what counts is its CPU time.
//
// # Caveats
//
// Those of package servicebench. A pipeline is sent in one write and its answers
// are read before the next one is sent: a client that keeps its pipeline full all
// the time makes the server read smaller pieces, and costs it more.
package respbench
