// Package linear holds what many callers do at once, with a store in the memory of
// this process or on a real server, against the pure steps of package algorithm:
// there must be an order of the calls, in which none comes before one that had ended
// when it began, by which every answer is right to the last unit.
//
// When a primary is killed and a replica takes its place, replication explains that the
// newest calls are lost, and nothing else: the order may have a counter go back, once and
// at that time, to what it was before some of the calls.
package linear
