// Package asyncbench measures what counting asynchronously saves, and what it costs in
// exactness.
//
// # Basics
//
// [Run] asks a real Redis through the store alone and through the layer around it, in
// turns: for one hot key, and for keys that nobody has seen. Then several nodes, each
// with a store of its own, are asked for one key at a steady, a bursty and a shifting
// rate. What they admit is held against the limit at every instant, and against what a
// strict limiter admits of the same requests.
//
// # Caveats
//
// Server, nodes and client share the machine. What is saved in the network comes on
// top.
package asyncbench
