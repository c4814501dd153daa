// Package insightapi answers as JSON who uses what, and who is denied and why. The dashboard,
// "headgate top" and "headgate tail" show its answers.
//
// # Basics
//
// A [Handler] answers the paths below /v1/insight/. It does not authenticate callers, so whoever
// mounts it must do that first. It asks the other instances of the service the same question, and
// adds up what can be added. The member "instances" of an answer says which of them did not answer.
//
// # Caveats
//
// A key is addressed by its id (see [insight.Name]), because it may have any bytes. With memory
// stores, each instance has its own counters, and the state of a key is that of the instance that
// was asked.
//
// # Reasons
//
// Consumers of queues are read by their Prometheus metrics. A second API in every consumer would
// need the admin token, and reports to the server would need its address, a token and an age at
// which they are too old. The metrics are there, documented and tested.
package insightapi
