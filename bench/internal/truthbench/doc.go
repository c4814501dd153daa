// Package truthbench finds out of real limiters what is true: whether they admit more than their limit,
// deny too early, and say in Retry-After and in headers what they do. Each is started as its
// documentation shows, and audited by one "headgate load --audit". [Truth] audits all and writes the
// tables, [Hold] starts one of them, so that a reader can repeat its audit.
//
// What is counted does not depend on the machine's speed: an audit counts only what is certain, whenever
// between sending and answer a decision was made.
package truthbench
