// Package spellingtest attacks what decides on requests by their paths: it has
// spellings of a path, and what servers may read in them.
//
// # Basics
//
// A server is taken for a sequence of steps, such as decoding, cutting off parameters or
// resolving "..", in any order and any number. [Readings] are what all such sequences
// make of a path, so that whatever a server does is among them; what real servers were
// seen to do stands in [Servers], and test/spelling asks them.
//
// A door is tested with [Spellings]: none of those that it lets through may have a
// reading that is [Protected] by a rule under which it was not counted.
package spellingtest
