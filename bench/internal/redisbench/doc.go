// Package redisbench measures rate limiters that keep their counters in Redis or
// Valkey.
//
// # Basics
//
// [Start] runs a server of its own on the loopback interface, without
// persistence. [Run] puts three questions to the contenders: what one limit
// costs under 1, 64 and 256 callers; what an exact sliding window with long logs
// costs; and what a key costs in the server's memory. What Redis itself spends is
// read from its own counters (INFO), so that the client does not blur it.
//
// # Caveats
//
// Client and server share the machine: throughput is what both together manage
// on its cores, and says nothing of a network. CPU time for each decision and
// time in the script travel better to other machines than throughput does.
package redisbench
