// Package insightapi answers who uses what, who is denied and why, as JSON: what the
// dashboard, "headgate top" and "headgate tail" show.
//
// # Basics
//
// A [Handler] answers the paths below /v1/insight/. It does not ask who is asking: whoever
// mounts it does that first. It asks the other instances of the service the same, merges
// what can be added up, and says in "instances" which of them did not answer.
//
// # Caveats
//
// A key is addressed by its id (see [insight.Name]), because it may hold any bytes. With
// memory stores, each instance has counters of its own, and the state of a key is that of
// the instance that was asked.
package insightapi
