// Package denycachebench measures what remembering denials saves under a flood of one
// denied key, and what it costs keys that nobody has denied.
//
// # Basics
//
// [Run] asks a real Redis through the store alone, with a call for each decision and
// with calls combined, and through a deny cache around it, in turns: first for one key whose limit is used up, then for keys that were never
// seen, while the cache remembers others. How many of the requests the server has
// answered is what it says itself.
//
// # Caveats
//
// Server and client share the machine. What is saved in the network comes on top.
package denycachebench
