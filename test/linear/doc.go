// Package linear holds what many callers do at once, with a store in the memory of
// this process or on a real server, against the pure steps of package algorithm:
// there must be an order of the calls, in which none comes before one that had ended
// when it began, by which every answer is right to the last unit.
package linear
